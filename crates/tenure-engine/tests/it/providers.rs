//! Whole turns with models behind real sockets, in every dialect and from one dialect to the next.

use crate::house::{House, check, options, said};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tenure_core::*;
use tenure_engine::{EventMasker, Folders, Requests, Sandboxes, Worker};
use tenure_model::script::{Scenario, ScriptServer};
use tenure_model::{ConfigProblem, DialectName, Models, PriceConfig, ProviderConfig, Providers, Resolved};
use tenure_store::Store;
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

/// A provider that speaks this dialect and is named after it.
fn config(dialect: DialectName, server: &ScriptServer) -> (String, ProviderConfig) {
    // Without a price a session with a limit of money would not begin.
    let price = PriceConfig { input: 1.0, output: 1.0, cached_input: None, cache_write: None };
    let prices = BTreeMap::from([("m".to_owned(), price)]);
    let config = ProviderConfig { base_url: Some(server.base_url()), prices, ..ProviderConfig::new(dialect) };
    (dialect.to_string(), config)
}

/// Says "go" to a session whose model plays this scenario over a socket, and waits until it is done.
async fn play(scenario: &str, dialects: &[DialectName]) -> (Vec<Event>, ScriptServer) {
    let server = ScriptServer::start_scenario(Arc::new(Scenario::parse(scenario).unwrap())).await.unwrap();
    let configs = config_of(dialects, &server);
    let providers = Providers::new(configs, None).unwrap();
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
    same_as_sent(&house, session, &log, &server, config_of(dialects, &server)).await;
    (log, server)
}

fn config_of(dialects: &[DialectName], server: &ScriptServer) -> BTreeMap<String, ProviderConfig> {
    dialects.iter().map(|dialect| config(*dialect, server)).collect()
}

/// What is built again from the log is what the server was sent, byte for byte.
async fn same_as_sent(
    house: &House,
    session: SessionId,
    log: &[Event],
    server: &ScriptServer,
    configs: BTreeMap<String, ProviderConfig>,
) {
    let models = Arc::new(Providers::new(configs, None).unwrap());
    let requests = Requests::new(models, options(house.path()).public_url, options(house.path()).installation_key);
    let view = house.store.session(&house.tenant, session).await.unwrap().unwrap();
    let pinned = view.session.agent;
    let agent = house.store.agent(&house.tenant, pinned.id, Some(pinned.version)).await.unwrap().unwrap();
    let mut head =
        Session::new(session, house.tenant.clone(), pinned, view.session.environment, view.session.created_at);
    let mut built = Vec::new();
    for (place, event) in log.iter().enumerate() {
        if matches!(event.body, Body::SpanStart { .. }) {
            let from = usize::try_from(head.context_from_seq).unwrap() - 1;
            let rebuilt = requests.rebuild(&agent, &head, &log[from..place], event).unwrap();
            assert!(rebuilt.is_exact, "row {}", event.seq);
            built.push(String::from_utf8(rebuilt.written.body).unwrap());
        }
        apply(&mut head, event).unwrap();
    }
    let sent: Vec<String> =
        server.requests().into_iter().map(|request| String::from_utf8(request.body).unwrap()).collect();
    assert_eq!(built, sent);
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
async fn p4_a_user_changes_the_model_between_steps_and_each_reads_what_the_others_wrote() {
    // No two calls are the same, so that nobody is asked whether it goes round in circles.
    let turn = |place: usize| {
        format!(
            r#"
[[turn]]
do = [{{ think = "hm" }}, {{ say = "hello" }}, {{ call = "sleep", input = {{ seconds = 0.00{place} }} }}]
[[turn]]
do = [{{ say = "bye" }}]
"#
        )
    };
    let scenario: String = (1..=6).map(turn).collect();
    let server = ScriptServer::start_scenario(Arc::new(Scenario::parse(&scenario).unwrap())).await.unwrap();
    let configs = config_of(&DIALECTS, &server);
    let models = Arc::new(Providers::new(configs, None).unwrap());
    let mut house = House::new("").await;
    house.change_agent(|agent| agent.model = "anthropic/m".into()).await;
    let folders = Folders { data: house.path().to_owned() };
    let sandboxes = Arc::new(Sandboxes::new(Vec::new(), folders, Vec::new()));
    let options = options(house.path());
    let worker = Worker::start(house.store.clone(), models, sandboxes, EventMasker::default(), options).await.unwrap();
    let stop = CancellationToken::new();
    let running = tokio::spawn(worker.run(stop.clone()));
    let session = house.session().await;
    let mut wanted = Vec::new();
    for (place, dialect) in DIALECTS.into_iter().chain([DialectName::Anthropic]).enumerate() {
        let name = format!("{dialect}/m");
        let choice = ModelChoice { model: Some(name.clone()), fallback_models: None };
        house.send(session, InputBody::Models(choice)).await;
        house.say(session, &format!("go {place}")).await;
        let log = house.until_log(session, |log| said(log).len() == 2 * (place + 1)).await;
        check(&log);
        wanted.extend([name.clone(), name]);
    }
    house.until(session, Phase::Idle).await;
    let log = house.log(session).await;
    stop.cancel();
    running.await.unwrap().unwrap();
    check(&log);
    let asked: Vec<String> = log
        .iter()
        .filter_map(|event| match &event.body {
            Body::SpanStart { model, .. } => Some(model.clone()),
            _ => None,
        })
        .collect();
    assert_eq!(asked, wanted, "each turn is of the model that was chosen for it, without a failed attempt");
    same_as_sent(&house, session, &log, &server, config_of(&DIALECTS, &server)).await;
    let last = String::from_utf8_lossy(&server.requests().last().unwrap().body).into_owned();
    assert!((0..6).all(|place| last.contains(&format!("go {place}"))), "{last}");
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
