//! Scenarios: which turn is due, what it may use, and the same play in this process and over sockets.

use crate::given::{ALL, context, prompt, said};
use std::collections::BTreeMap;
use std::sync::Arc;
use tenure_core::failure::{Class, Failure};
use tenure_core::{Answer, AnswerStop, AssistantPart, Block, BlockKind, EventId, Message, Origin, UserPart};
use tenure_model::script::{BUILT_IN_SCENARIOS, Library, Scenario, ScriptModel, ScriptServer};
use tenure_model::{Model, Models, ProviderConfig, Providers};

const AGENT: &str = r#"
[[turn]]
attempts = [{ status = 529, headers = { retry-after = "1" } }, { do = [{ say = "Hal" }, { cut = "break" }] }]
do = [{ think = "First a token.", pieces = 3 }, { say = "I make one." }, { call = "create_callback", input = { label = "ci {{user}}" } }]

[[turn]]
do = [{ call = "bash", input = { command = "post {{result.create_callback.url}} {{literal}}", list = ["{{result.create_callback.ids.1}}"] } }]

[[turn]]
when = { tool = "bash", result_contains = "unknown" }
do = [{ call = "bash", input = { command = "check" } }]

[[turn]]
label = "last"
do = [{ say = "Done with {{result.bash after pid=}}." }]
usage = { input = 7, output = 2 }
"#;

/// A conversation that grows by answers and results.
struct Talk {
    messages: Vec<Message>,
    calls: u128,
}

impl Talk {
    fn new(text: &str) -> Self {
        Self { messages: vec![said(text)], calls: 0 }
    }

    /// Adds an answer, and the results of its calls.
    fn go_on(&mut self, answer: &Answer, results: &[&str]) {
        let (mut parts, mut answers, mut results) = (Vec::new(), Vec::new(), results.iter());
        for block in &answer.blocks {
            let origin =
                Origin { dialect: answer.dialect.clone(), model: answer.model.clone(), blocks: block.raw.clone() };
            parts.push(match &block.kind {
                BlockKind::Text { text } => AssistantPart::Text { text: text.clone(), origin },
                BlockKind::Thinking { text } => AssistantPart::Thinking { text: text.clone(), origin },
                BlockKind::ToolUse { name, input, .. } => {
                    self.calls += 1;
                    let call = EventId::from_bits(self.calls);
                    let content = vec![Block::Text((*results.next().unwrap()).to_owned())];
                    answers.push(UserPart::Result { call, content, is_error: false });
                    AssistantPart::ToolUse { call, name: name.clone(), input: input.clone().unwrap(), origin }
                }
            });
        }
        self.messages.push(Message::Assistant(parts));
        if !answers.is_empty() {
            self.messages.push(Message::User(answers));
        }
    }

    fn say(&mut self, text: &str) {
        self.messages.push(said(text));
    }
}

async fn call(model: &dyn Model, talk: &Talk, attempt: u32) -> Result<Answer, Failure> {
    model.call(&prompt(talk.messages.clone()), &context(attempt), &mut |_| {}).await
}

fn shown(answer: &Answer) -> Vec<String> {
    answer
        .blocks
        .iter()
        .map(|block| match &block.kind {
            BlockKind::Text { text } | BlockKind::Thinking { text } => text.clone(),
            BlockKind::ToolUse { name, input, .. } => format!("{name} {}", input.as_ref().unwrap()),
        })
        .collect()
}

/// Plays the whole scenario against one model, by way of the unknown outcome or not.
async fn play_all(model: &dyn Model, outcome: &str) -> Vec<Vec<String>> {
    let mut talk = Talk::new("go");
    let mut all = Vec::new();
    for (attempt, class) in [(1, Class::Transient), (2, Class::Incomplete)] {
        assert_eq!(call(model, &talk, attempt).await.unwrap_err().class, class);
    }
    for attempt in 3..9 {
        let answer = call(model, &talk, attempt).await.unwrap();
        all.push(shown(&answer));
        if answer.stop == AnswerStop::EndTurn {
            return all;
        }
        let result =
            if all.len() == 1 { r#"{"callback_id":"call_1","url":"http://h/1","ids":["a","b"]}"# } else { outcome };
        talk.go_on(&answer, &[result]);
    }
    panic!("the scenario does not end: {all:?}");
}

fn expected(checks: usize) -> Vec<Vec<String>> {
    let mut expected = vec![
        vec!["First a token.".to_owned(), "I make one.".into(), r#"create_callback {"label":"ci go"}"#.into()],
        vec![r#"bash {"command":"post http://h/1 {{literal}}","list":["b"]}"#.into()],
    ];
    expected.extend((0..checks).map(|_| vec![r#"bash {"command":"check"}"#.to_owned()]));
    expected.push(vec!["Done with 42.".into()]);
    expected
}

#[tokio::test]
async fn a_scenario_is_played_the_same_in_this_process_and_over_every_dialect() {
    let scenario = Arc::new(Scenario::parse(AGENT).unwrap());
    for (outcome, checks) in [("pid=42 ok", 0), ("unknown, pid=42", 1)] {
        let here = ScriptModel::new(scenario.clone(), "script/agent".into());
        assert_eq!(play_all(&here, outcome).await, expected(checks));
        for dialect in ALL.map(|given| given.dialect) {
            let server = ScriptServer::start_scenario(scenario.clone()).await.unwrap();
            let config = ProviderConfig { base_url: Some(server.base_url()), ..ProviderConfig::new(dialect) };
            let providers = Providers::new(BTreeMap::from([("p".to_owned(), config)]), None).unwrap();
            let model = providers.resolve("p/m").unwrap().model;
            assert_eq!(play_all(&*model, outcome).await, expected(checks), "{dialect}");
        }
    }
}

#[tokio::test]
async fn a_new_worker_goes_on_where_a_killed_one_was() {
    let mut talk = Talk::new("go");
    let new = || ScriptModel::new(Arc::new(Scenario::parse(AGENT).unwrap()), "script/agent".into());
    let first = call(&new(), &talk, 9).await.unwrap();
    talk.go_on(&first, &[r#"{"url":"u","ids":["a","b"]}"#]);
    let second = call(&new(), &talk, 9).await.unwrap();
    assert_eq!(shown(&second), [r#"bash {"command":"post u {{literal}}","list":["b"]}"#]);
    assert_eq!(call(&new(), &talk, 9).await.unwrap(), second, "asking again changes nothing");
}

#[tokio::test]
async fn after_the_last_turn_the_model_says_so_and_next_can_lead_back() {
    let model =
        ScriptModel::new(Arc::new(Scenario::parse("[[turn]]\ndo = [{ say = \"one\" }]").unwrap()), "script/x".into());
    let mut talk = Talk::new("a");
    talk.go_on(&call(&model, &talk, 1).await.unwrap(), &[]);
    talk.say("b");
    assert_eq!(shown(&call(&model, &talk, 1).await.unwrap()), ["The scenario has no more turns."]);

    let echo = Providers::scripted(None).resolve("script/echo").unwrap().model;
    let mut talk = Talk::new("a");
    for text in ["b", "c"] {
        talk.go_on(&call(&*echo, &talk, 1).await.unwrap(), &[]);
        talk.say(text);
        assert_eq!(shown(&call(&*echo, &talk, 1).await.unwrap()), [text]);
    }
}

#[tokio::test]
async fn failures_stops_and_malformed_calls_are_played() {
    let answer = |text: &str| {
        let model = ScriptModel::new(Arc::new(Scenario::parse(text).unwrap()), "script/x".into());
        async move { call(&model, &Talk::new("a"), 1).await }
    };
    for (fields, class) in [
        ("attempts = [{ status = 429, type = \"insufficient_quota\" }]", Class::Quota),
        ("attempts = [{ status = 401 }]", Class::Credential),
        ("attempts = [{ status = 500, body = \"<html>\" }]", Class::Transient),
        ("do = [{ say = \"Hal\" }, { error = \"overloaded_error\" }]", Class::Transient),
        ("do = [{ say = \"Hal\" }, { cut = \"end\" }]", Class::Incomplete),
        ("do = [{ say = \"{{result.bash.url}}\" }]", Class::Config),
    ] {
        assert_eq!(answer(&format!("[[turn]]\n{fields}")).await.unwrap_err().class, class, "{fields}");
    }
    for (stop, expected) in [
        ("max_tokens", AnswerStop::MaxTokens),
        ("refusal", AnswerStop::Refusal),
        ("context_window", AnswerStop::ContextWindow),
    ] {
        assert_eq!(
            answer(&format!("[[turn]]\ndo = [{{ say = \"x\" }}]\nstop = \"{stop}\"")).await.unwrap().stop,
            expected
        );
    }
    let malformed = answer("[[turn]]\ndo = [{ call = \"bash\", raw_input = '{\"op\": list}' }]").await.unwrap();
    assert!(matches!(&malformed.blocks[0].kind, BlockKind::ToolUse { input: Err(_), .. }));
    assert!(answer("[[turn]]\ndo = []\nstop = \"tool_use\"").await.unwrap().is_empty());
    assert!(answer("[[turn]]\ndo = [{ say = \"x\" }]\nusage = { output = 3 }").await.unwrap().usage.output == 3);
}

#[test]
fn bad_scenarios_say_what_is_wrong_where_and_what_to_do() {
    for (text, line, message) in [
        ("x = 1", Some(1), "unknown field `x`"),
        ("", None, "there is no turn"),
        ("[[turn]]\ndo = [\n  { sai = \"x\" },\n]", Some(3), "unknown field `sai`"),
        ("[[turn]]\ndo = [\n  { say = \"x\", call = \"y\" },\n]", Some(3), "exactly one thing"),
        ("[[turn]]\ndo = [{ say = \"x\", input = {} }]", Some(2), "only a call has an input"),
        ("[[turn]]\ndo = [{ call = \"x\", input = {}, raw_input = \"\" }]", Some(2), "either input or raw_input"),
        ("[[turn]]\ndo = [{ stall = \"long\" }]", Some(2), "is unknown"),
        ("[[turn]]\ndo = [{ cut = \"x\" }]", Some(2), "is unknown"),
        ("[[turn]]\ndo = [{ say = \"x\", pieces = 0 }]", Some(2), "out of range"),
        ("[[turn]]\ndo = [{ say = \"x\" }]\nstop = \"never\"", Some(3), "no reason to stop"),
        ("[[turn]]\ndo = [{ say = \"x\" }]\nnext = \"a\"", Some(3), "no turn has the label"),
        ("[[turn]]\nlabel = \"a\"\ndo = []\nstop = \"end_turn\"\n\n[[turn]]\nlabel = \"a\"", Some(6), "used twice"),
        ("[[turn]]\nlabel = \"a\"", Some(1), "does nothing"),
        ("[[turn]]\nattempts = [{ times = 2 }]", Some(2), "neither status nor do"),
        ("[[turn]]\nattempts = [{ status = 9 }]", Some(2), "no HTTP status"),
        ("[[turn]]\ndo = [{ say = \"x ", Some(2), ""),
    ] {
        let problem = Scenario::parse(text).unwrap_err();
        assert_eq!(problem.line, line, "{text}: {problem}");
        assert!(problem.message.contains(message) && !problem.hint.is_empty(), "{problem}");
    }
}

#[test]
fn a_scenario_file_is_read_again_when_it_has_changed_and_problems_name_it() {
    let folder = tempfile::tempdir().unwrap();
    let library = Library::new(Some(folder.path().to_owned()));
    let path = folder.path().join("a.toml");
    std::fs::write(&path, "[[turn]]\ndo = [{ say = \"x\" }]").unwrap();
    assert_eq!(library.scenario("a").unwrap().turns.len(), 1);
    std::fs::write(&path, "[[turn]]\ndo = [{ say = \"x\" }]\n[[turn]]\ndo = [{ say = \"y\" }]").unwrap();
    assert_eq!(library.scenario("a").unwrap().turns.len(), 2);
    std::fs::write(&path, "\n\nnonsense").unwrap();
    let problem = library.scenario("a").unwrap_err();
    assert_eq!(problem.code, "scenario_invalid");
    assert!(problem.message.contains("a.toml, line 3"), "{problem}");
    assert_eq!(library.scenario("../a").unwrap_err().code, "scenario_not_found");
}

#[test]
fn the_built_in_scenarios_are_valid() {
    for (name, text) in BUILT_IN_SCENARIOS {
        assert!(Scenario::parse(text).is_ok(), "{name}");
    }
}
