//! Whole turns with models behind real sockets, in every dialect and from one dialect to the next.

use crate::house::{House, check, options, said};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tenure_core::*;
use tenure_engine::{EventMasker, Folders, Sandboxes, Worker};
use tenure_model::script::{Scenario, ScriptServer};
use tenure_model::{ConfigProblem, DialectName, Models, PriceConfig, ProviderConfig, Providers, Resolved};
use tokio_util::sync::CancellationToken;

const DIALECTS: [DialectName; 5] =
    [DialectName::Anthropic, DialectName::OpenAi, DialectName::Responses, DialectName::Gemini, DialectName::Ollama];

/// Whatever an agent's model is called, each call goes to the next of these dialects.
#[derive(Debug)]
struct InTurns {
    providers: Providers,
    dialects: Vec<DialectName>,
    next: AtomicUsize,
}

impl Models for InTurns {
    fn resolve(&self, _: &str) -> Result<Resolved, ConfigProblem> {
        let place = self.next.fetch_add(1, Ordering::Relaxed) % self.dialects.len();
        self.providers.resolve(&format!("{}/m", self.dialects[place]))
    }
}

/// Says "go" to a session whose model plays this scenario over a socket, and waits until it is done.
async fn play(scenario: &str, dialects: &[DialectName]) -> (Vec<Event>, ScriptServer) {
    let server = ScriptServer::start_scenario(Arc::new(Scenario::parse(scenario).unwrap())).await.unwrap();
    let config = |dialect: &DialectName| {
        // Without a price a session with a limit of money would not begin.
        let price = PriceConfig { input: 1.0, output: 1.0, cached_input: None, cache_write: None };
        let prices = BTreeMap::from([("m".to_owned(), price)]);
        let base_url = Some(server.base_url());
        let config = ProviderConfig { base_url, prices, ..ProviderConfig::new(*dialect) };
        (dialect.to_string(), config)
    };
    let providers = Providers::new(dialects.iter().map(config).collect::<BTreeMap<_, _>>(), None).unwrap();
    let models = Arc::new(InTurns { providers, dialects: dialects.to_vec(), next: AtomicUsize::new(0) });
    let mut house = House::new("[[turn]]\ndo = [{ say = \"not asked\" }]").await;
    let folders = Folders { data: house.path().to_owned() };
    let sandboxes = Arc::new(Sandboxes::new(Vec::new(), folders, Vec::new()));
    let options = options(house.path());
    let worker = Worker::start(house.store.clone(), models, sandboxes, EventMasker::default(), options).await.unwrap();
    let stop = CancellationToken::new();
    let running = tokio::spawn(worker.run(stop.clone()));
    let session = house.session().await;
    house.say(session, "go").await;
    house.until(session, Phase::Idle).await;
    let log = house.log(session).await;
    stop.cancel();
    running.await.unwrap().unwrap();
    check(&log);
    (log, server)
}

#[tokio::test(flavor = "multi_thread")]
async fn o_003_and_o_023_failed_attempts_leave_nothing_and_are_counted_once_in_every_dialect() {
    let scenario = r#"
[[turn]]
do = [{ say = "hello world" }]
attempts = [
  { do = [{ say = "hello wor", pieces = 3 }, { call = "sleep", input = { seconds = 0 } }, { cut = "end" }] },
  { status = 529, type = "overloaded_error" },
  { do = [{ say = "hel" }, { error = "server_error", message = "Overloaded" }] },
]
"#;
    for dialect in DIALECTS {
        let (log, server) = play(scenario, &[dialect]).await;
        assert_eq!(said(&log), ["hello world"], "{dialect}");
        assert_eq!(server.requests().len(), 4, "{dialect}");
        let ends: Vec<bool> = log
            .iter()
            .filter_map(|event| match event.body {
                Body::SpanEnd { is_error, .. } => Some(is_error),
                _ => None,
            })
            .collect();
        assert_eq!(ends, [true, true, true, false], "{dialect}: every attempt is in the log");
        assert!(!log.iter().any(|event| matches!(event.body, Body::AgentToolUse { .. })), "{dialect}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn p4_a_session_changes_its_provider_at_every_step_and_each_reads_what_the_others_wrote() {
    // No two calls are the same, so that nobody is asked whether it goes round in circles.
    let turn = |text: &str| {
        format!(
            "[[turn]]\ndo = [{{ think = \"hm\" }}, {{ say = \"{text}\" }}, {{ call = \"sleep\", input = {{ seconds = 0.00{} }} }}]\n",
            text.len()
        )
    };
    let texts = ["1", "to", "tre", "four", "fünf", "sextus"];
    let scenario = texts.map(turn).concat() + "[[turn]]\ndo = [{ say = \"done\" }]\n";
    let (log, server) = play(&scenario, &DIALECTS).await;
    assert_eq!(said(&log), [texts.as_slice(), &["done"]].concat());
    let requests = server.requests();
    assert_eq!(requests.len(), texts.len() + 1);
    let last = String::from_utf8_lossy(&requests.last().unwrap().body).into_owned();
    assert!(texts.iter().all(|text| last.contains(text)), "{last}");
}
