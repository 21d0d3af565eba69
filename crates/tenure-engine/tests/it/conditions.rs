//! Conditions, circuits and fallback: what a session does when its upstream refuses everybody.

use crate::house::{House, PATIENCE, check, options, said};
use async_trait::async_trait;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use tenure_core::condition::{Condition, Stage};
use tenure_core::failure::{Class, Failure, plain};
use tenure_core::pace::RateBucket;
use tenure_core::*;
use tenure_engine::{EventMasker, Folders, Sandboxes, Worker};
use tenure_model::{BlockPreview, CallContext, ConfigProblem, Model, Models, Resolved, StreamEvent};
use tenure_store::*;
use tokio_util::sync::CancellationToken;

/// A provider whose models answer as a test says: by name, until told otherwise.
#[derive(Clone, Debug, Default)]
struct Upstream {
    says: Arc<Mutex<BTreeMap<String, Failure>>>,
    limits: Arc<Mutex<Vec<RateBucket>>>,
    calls: Arc<Mutex<Vec<String>>>,
    /// Lets a call of `p/slow` go on.
    slow: Arc<tokio::sync::Notify>,
}

#[derive(Debug)]
struct OneModel(Upstream, String);

impl Upstream {
    /// What this model answers from now on; an answer for `None`.
    fn says(&self, model: &str, failure: Option<Failure>) {
        let mut says = self.says.lock().unwrap();
        match failure {
            Some(failure) => says.insert(model.to_owned(), failure),
            None => says.remove(model),
        };
    }

    fn calls_of(&self, model: &str) -> usize {
        self.calls.lock().unwrap().iter().filter(|called| *called == model).count()
    }
}

impl Models for Upstream {
    fn resolve(&self, name: &str) -> Result<Resolved, ConfigProblem> {
        let (credential, model_name) = name.split_once('/').expect("tests write provider/model");
        Ok(Resolved {
            model: Arc::new(OneModel(self.clone(), name.to_owned())),
            full_name: name.to_owned(),
            credential: credential.to_owned(),
            model_name: model_name.to_owned(),
            price: Some(Price { input: 0, output: 0, cache_read: 0, cache_write: 0 }),
            max_output_tokens: 100,
            facts: ModelFacts { context_window: None, max_request_bytes: 32 * 1024 * 1024, cuts_silently: false },
        })
    }
}

#[async_trait]
impl Model for OneModel {
    async fn call(
        &self,
        _: &Prompt,
        _: &CallContext,
        on_event: &mut (dyn FnMut(StreamEvent) + Send),
    ) -> Result<Answer, Failure> {
        let Self(upstream, model) = self;
        upstream.calls.lock().unwrap().push(model.clone());
        tokio::task::yield_now().await;
        if model == "p/slow" {
            upstream.slow.notified().await;
        }
        if let Some(failure) = upstream.says.lock().unwrap().get(model) {
            return Err(failure.clone());
        }
        on_event(StreamEvent::Limits(upstream.limits.lock().unwrap().clone()));
        on_event(StreamEvent::BlockStart { index: 0, kind: BlockPreview::Text });
        let kind = BlockKind::Text { text: model.clone() };
        Ok(Answer {
            dialect: "test".into(),
            model: model.clone(),
            blocks: vec![AnswerBlock { id: None, kind, raw: Vec::new() }],
            stop: AnswerStop::EndTurn,
            usage: Usage::default(),
            request_id: None,
        })
    }
}

fn refusal(class: Class, status: u16) -> Failure {
    Failure { status: Some(status), ..plain(class, "refused") }
}

type Task = tokio::task::JoinHandle<Result<tenure_engine::Ended, Error>>;

struct Run {
    house: House,
    upstream: Upstream,
    stop: CancellationToken,
    task: Task,
}

/// A node of its own, with its own view of the upstreams.
async fn worker(house: &House, upstream: &Upstream, stop: &CancellationToken) -> Task {
    let folders = Folders { data: house.path().to_owned() };
    let sandboxes = Arc::new(Sandboxes::new(Vec::new(), folders, Vec::new()));
    let models = Arc::new(upstream.clone());
    let worker = Worker::start(house.store.clone(), models, sandboxes, EventMasker::default(), options(house.path()))
        .await
        .unwrap();
    tokio::spawn(worker.run(stop.clone()))
}

impl Run {
    /// A worker whose agent calls the first of these models, and falls back to the others.
    async fn new(models: &[&str]) -> Self {
        let mut house = House::new("").await;
        let names: Vec<String> = models.iter().map(|model| (*model).to_owned()).collect();
        house
            .change_agent(|agent| (agent.model, agent.fallback_models) = (names[0].clone(), names[1..].to_vec()))
            .await;
        let upstream = Upstream::default();
        let stop = CancellationToken::new();
        let task = worker(&house, &upstream, &stop).await;
        Self { house, upstream, stop, task }
    }

    async fn ask(&mut self) -> SessionId {
        let session = self.house.session().await;
        self.house.say(session, "go").await;
        session
    }

    /// Waits until the only condition is as `is_so` wants it.
    async fn until_condition(&self, is_so: impl Fn(&ConditionView) -> bool) -> Condition {
        let mut hints = self.house.store.hints();
        let wait = async {
            loop {
                if let [view] = &self.house.store.conditions(None).await.unwrap()[..]
                    && is_so(view)
                {
                    return view.condition.clone();
                }
                let _ = tokio::time::timeout(std::time::Duration::from_millis(50), hints.recv()).await;
            }
        };
        match tokio::time::timeout(PATIENCE, wait).await {
            Ok(condition) => condition,
            Err(_) => panic!("never so: {:#?}", self.house.store.conditions(None).await),
        }
    }

    async fn end(self) {
        self.stop.cancel();
        self.task.await.unwrap().unwrap();
    }
}

fn attempts(log: &[Event]) -> Vec<(String, Option<InsteadOf>)> {
    let attempt = |event: &Event| match &event.body {
        Body::SpanStart { model, instead_of, .. } => Some((model.clone(), instead_of.clone())),
        _ => None,
    };
    log.iter().filter_map(attempt).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn o_022_a_rotated_key_parks_its_runs_and_one_probe_lets_them_go() {
    const RUNS: usize = 60;
    let mut run = Run::new(&["p/m"]).await;
    run.upstream.says("p/m", Some(refusal(Class::Credential, 401)));
    let mut sessions = Vec::new();
    for _ in 0..RUNS {
        sessions.push(run.ask().await);
    }
    let condition = run.until_condition(|view| view.waiting == RUNS as u64).await;
    assert_eq!((condition.class, condition.key.model.as_deref()), (Class::Credential, None), "of the key, not a model");
    let refused = run.upstream.calls_of("p/m");
    assert!(refused <= 8, "as many as were on the way at once, and no retry: {refused}");
    let view = run.house.store.session(&run.house.tenant, sessions[0]).await.unwrap().unwrap();
    assert_eq!((view.session.phase(), view.session.status), (Phase::BackingOff, Status::Rescheduling));

    run.upstream.says("p/m", None);
    run.house.store.hasten_condition(condition.id).await.unwrap();
    for session in &sessions {
        run.house.until(*session, Phase::Idle).await;
        let log = run.house.log(*session).await;
        assert_eq!(said(&log), ["p/m"]);
        check(&log);
    }
    assert_eq!(run.upstream.calls_of("p/m"), refused + RUNS, "each of them once more");
    run.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn o_022_two_workers_share_the_condition_of_a_key_and_only_one_session_of_both_probes() {
    const RUNS: usize = 40;
    let mut run = Run::new(&["p/m"]).await;
    let other = worker(&run.house, &run.upstream, &run.stop).await;
    run.upstream.says("p/m", Some(refusal(Class::Credential, 401)));
    let mut sessions = Vec::new();
    for _ in 0..RUNS {
        sessions.push(run.ask().await);
    }
    let condition = run.until_condition(|view| view.waiting == RUNS as u64).await;
    let refused = run.upstream.calls_of("p/m");
    assert!(refused <= 16, "as many as were on the way at once on both: {refused}");
    run.house.store.hasten_condition(condition.id).await.unwrap();
    run.until_condition(|view| view.condition.refusals == 2 && view.waiting == RUNS as u64).await;
    assert_eq!(run.upstream.calls_of("p/m"), refused + 1, "one probe of both workers, and the others were not let go");
    run.upstream.says("p/m", None);
    run.house.store.hasten_condition(condition.id).await.unwrap();
    let mut nodes = std::collections::BTreeSet::new();
    for session in &sessions {
        run.house.until(*session, Phase::Idle).await;
        let log = run.house.log(*session).await;
        assert_eq!(said(&log), ["p/m"]);
        let query = LeaseQuery { tenant: run.house.tenant.clone(), session: *session, after: 0, limit: 100 };
        nodes.extend(run.house.store.leases(query).await.unwrap().into_iter().map(|lease| lease.node));
    }
    assert_eq!(nodes.len(), 2, "both worked");
    assert_eq!(run.upstream.calls_of("p/m"), refused + 1 + RUNS, "each of them once more");
    run.end().await;
    other.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn o_005_an_empty_account_is_not_asked_again_until_somebody_says_so() {
    let mut run = Run::new(&["p/m"]).await;
    run.upstream.says("p/m", Some(refusal(Class::Quota, 429)));
    let session = run.ask().await;
    let condition = run.until_condition(|view| view.waiting == 1).await;
    let log = run.house.log(session).await;
    assert!(log.iter().any(|event| matches!(event.body, Body::Condition { condition: id, .. } if id == condition.id)));
    // A message does not make it try: it waits in line again, and nothing was sent.
    run.house.say(session, "hello?").await;
    run.house
        .until_log(session, |log| log.iter().filter(|event| matches!(event.body, Body::Condition { .. })).count() == 2)
        .await;
    assert_eq!(run.upstream.calls_of("p/m"), 1);
    let steps = run.house.store.session(&run.house.tenant, session).await.unwrap().unwrap().session.budget.steps;
    assert_eq!(steps, 1, "what was not sent is not counted");
    // An operator's word does, and it is refused once more.
    run.house.send(session, InputBody::Resume).await;
    run.until_condition(|view| view.condition.refusals == 2 && view.waiting == 1).await;
    assert_eq!(run.upstream.calls_of("p/m"), 2);
    run.upstream.says("p/m", None);
    run.house.store.clear_condition(condition.id).await.unwrap();
    run.house.until(session, Phase::Idle).await;
    assert_eq!(run.upstream.calls_of("p/m"), 3);
    run.end().await;
}

/// The second turn of a session is too long, so that a summary is asked for first.
async fn summarised_by(writer: &str) -> Run {
    let mut run = Run::new(&["p/m"]).await;
    let compaction = CompactionPolicy {
        trigger_tokens: Some(1_000),
        keep_tokens: Some(50),
        model: Some(writer.to_owned()),
        ..CompactionPolicy::default()
    };
    run.house.change_agent(|agent| agent.policies.compaction = compaction).await;
    run
}

/// A session after its first turn, which was long.
async fn after_a_long_turn(run: &mut Run) -> SessionId {
    let session = run.house.session().await;
    run.house.say(session, &"x".repeat(8_000)).await;
    run.house.until(session, Phase::Idle).await;
    session
}

/// What is asked in the next turn, whose answer needs a summary.
async fn attempts_of_the_next_turn(run: &mut Run, session: SessionId) -> Vec<(String, Option<InsteadOf>)> {
    run.house.say(session, "again").await;
    let log = run.house.until_log(session, |log| said(log).len() == 2).await;
    check(&log);
    assert!(log.iter().any(|event| matches!(event.body, Body::ContextCompacted { .. })));
    attempts(&log).split_off(1)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_summary_goes_through_the_conditions_of_the_model_that_writes_it() {
    let mut run = summarised_by("s/sum").await;
    run.upstream.says("s/sum", Some(refusal(Class::Credential, 401)));
    let (session, other) = (after_a_long_turn(&mut run).await, after_a_long_turn(&mut run).await);
    let instead_of = Some(InsteadOf { model: "s/sum".into(), class: Class::Credential });
    assert_eq!(
        attempts_of_the_next_turn(&mut run, session).await,
        [("s/sum".into(), None), ("p/m".into(), instead_of.clone()), ("p/m".into(), None)],
        "refused once; the working model writes the summary, and then answers"
    );
    let condition = run.until_condition(|view| view.condition.stage == Stage::Open).await;
    assert_eq!(condition.key.credential, "s", "of the writer's key, not of the one that works");
    // Nobody else asks it.
    let asked = attempts_of_the_next_turn(&mut run, other).await;
    assert_eq!(asked, [("p/m".into(), instead_of), ("p/m".into(), None)]);
    assert_eq!(run.upstream.calls_of("s/sum"), 1);
    run.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_summary_waits_with_all_others_if_every_model_that_could_write_it_is_refused() {
    let mut run = summarised_by("s/sum").await;
    let session = after_a_long_turn(&mut run).await;
    run.upstream.says("s/sum", Some(refusal(Class::Quota, 429)));
    run.upstream.says("p/m", Some(refusal(Class::Quota, 429)));
    run.house.say(session, "again").await;
    run.house.until(session, Phase::BackingOff).await;
    assert_eq!((run.upstream.calls_of("s/sum"), run.upstream.calls_of("p/m")), (1, 2), "each is asked once");
    // The summary is the probe of the working model; the writer is refused still.
    run.upstream.says("p/m", None);
    let conditions = run.house.store.conditions(None).await.unwrap();
    let working = conditions.iter().find(|view| view.condition.key.credential == "p").unwrap();
    assert_eq!(working.waiting, 1);
    run.house.store.hasten_condition(working.condition.id).await.unwrap();
    let log = run.house.until_log(session, |log| said(log).len() == 2).await;
    assert!(log.iter().any(|event| matches!(event.body, Body::ContextCompacted { .. })));
    assert_eq!(run.upstream.calls_of("s/sum"), 1);
    check(&log);
    run.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn o_021_a_user_leaves_a_model_that_nobody_serves_and_comes_back_to_it() {
    let mut run = Run::new(&["p/old"]).await;
    run.upstream.says("p/old", Some(refusal(Class::Config, 404)));
    let session = run.ask().await;
    run.until_condition(|view| view.waiting == 1).await;
    let choice = ModelChoice { model: Some("q/new".into()), fallback_models: None };
    run.house.send(session, InputBody::Models(choice.clone())).await;
    let view = run.house.until(session, Phase::Idle).await;
    assert_eq!(view.session.models, choice);
    // The next turn and the next worker know it too.
    run.house.say(session, "again").await;
    run.house.until_log(session, |log| said(log).len() == 2).await;
    run.upstream.says("p/old", None);
    let condition = run.house.store.conditions(None).await.unwrap().remove(0).condition.id;
    run.house.store.clear_condition(condition).await.unwrap();
    run.house.send(session, InputBody::Models(ModelChoice::default())).await;
    run.house.say(session, "and the old one?").await;
    let log = run.house.until_log(session, |log| said(log).len() == 3).await;
    assert_eq!(said(&log), ["q/new", "q/new", "p/old"]);
    let models: Vec<String> = attempts(&log).into_iter().map(|(model, _)| model).collect();
    assert_eq!(models, ["p/old", "q/new", "q/new", "p/old"], "the old one is asked once, until it is wanted again");
    check(&log);
    run.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn o_021_a_retired_model_is_replaced_at_once_and_not_asked_again_until_it_is_back() {
    let mut run = Run::new(&["p/old", "p/new"]).await;
    run.upstream.says("p/old", Some(refusal(Class::Config, 404)));
    let session = run.ask().await;
    run.house.until(session, Phase::Idle).await;
    run.house.say(session, "again").await;
    let is_second = |log: &[Event]| said(log).len() == 2;
    let log = run.house.until_log(session, is_second).await;
    let instead_of = Some(InsteadOf { model: "p/old".into(), class: Class::Config });
    assert_eq!(
        attempts(&log),
        [("p/old".into(), None), ("p/new".into(), instead_of.clone()), ("p/new".into(), instead_of)],
        "the log says which one answered, and why"
    );
    assert!(!log.iter().any(|event| matches!(event.body, Body::WaitStarted { .. })), "nobody waited");
    let condition = run.until_condition(|_| true).await;
    run.upstream.says("p/old", None);
    run.house.store.clear_condition(condition.id).await.unwrap();
    run.until_condition(|view| view.condition.stage == Stage::Releasing).await;
    // The worker hears of it with its next look; a session that is quicker asks the other one.
    for turn in 3..150 {
        run.house.until(session, Phase::Idle).await;
        run.house.say(session, "and now?").await;
        let log = run.house.until_log(session, |log| said(log).len() == turn).await;
        check(&log);
        if said(&log).last().is_some_and(|text| text == "p/old") {
            assert_eq!(attempts(&log).last(), Some(&("p/old".into(), None)), "back at the first choice");
            return run.end().await;
        }
    }
    panic!("never back at the first choice");
}

#[tokio::test(flavor = "multi_thread")]
async fn o_002_an_overloaded_provider_is_left_for_another_at_once_and_cools_down() {
    let mut run = Run::new(&["p/m", "q/m"]).await;
    // As the first event of a stream: status 200, nothing reached a client.
    run.upstream.says("p/m", Some(refusal(Class::Transient, 200)));
    run.house
        .change_agent(|agent| agent.policies.retry = retry::Policy { max_attempts: 4, base: 60_000, cap: 60_000 })
        .await;
    let (one, other) = (run.ask().await, run.ask().await);
    for session in [one, other] {
        let log = run.house.until_log(session, |log| !said(log).is_empty()).await;
        assert_eq!(said(&log), ["q/m"]);
        assert!(!log.iter().any(|event| matches!(event.body, Body::WaitStarted { .. })));
        check(&log);
    }
    let third = run.ask().await;
    let log = run.house.until_log(third, |log| !said(log).is_empty()).await;
    let instead_of = Some(InsteadOf { model: "p/m".into(), class: Class::Transient });
    assert_eq!(attempts(&log), [("q/m".into(), instead_of)], "it is not asked while it cools down");
    run.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn o_023_four_attempts_are_four_requests_and_each_is_in_the_log() {
    let mut run = Run::new(&["p/m"]).await;
    run.upstream.says("p/m", Some(refusal(Class::RateLimit, 429)));
    let session = run.ask().await;
    run.house.until(session, Phase::NeedsYou).await;
    assert_eq!(run.upstream.calls_of("p/m"), 4);
    let log = run.house.log(session).await;
    let numbers: Vec<u32> = log
        .iter()
        .filter_map(|event| match event.body {
            Body::SpanStart { attempt, .. } => Some(attempt),
            _ => None,
        })
        .collect();
    assert_eq!(numbers, [1, 2, 3, 4]);
    let ends = log.iter().filter(|event| matches!(event.body, Body::SpanEnd { is_error: true, .. })).count();
    assert_eq!(ends, 4);
    check(&log);
    run.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn p10_failures_in_a_row_open_the_circuit_for_everybody() {
    let mut run = Run::new(&["p/m"]).await;
    run.house
        .change_agent(|agent| agent.policies.retry = retry::Policy { max_attempts: 40, base: 1, cap: 60_000 })
        .await;
    run.upstream.says("p/m", Some(refusal(Class::Transient, 529)));
    let session = run.ask().await;
    run.until_condition(|view| view.condition.class == Class::Transient && view.waiting == 1).await;
    run.upstream.says("p/m", None);
    run.house.until(session, Phase::Idle).await;
    let log = run.house.log(session).await;
    let backoffs = log
        .iter()
        .filter(|event| matches!(&event.body, Body::WaitStarted { wait: Wait { kind: WaitKind::Backoff { .. }, .. } }));
    assert_eq!(backoffs.count(), 4, "the fifth failure in a row is everybody's");
    check(&log);
    run.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_that_the_headers_show_as_used_up_is_not_tried() {
    let mut run = Run::new(&["p/m"]).await;
    let bucket = RateBucket { name: "requests".into(), limit: Some(60), remaining: 0, resets_in: Some(600_000) };
    *run.upstream.limits.lock().unwrap() = vec![bucket];
    let first = run.ask().await;
    run.house.until(first, Phase::Idle).await;
    let condition = run.until_condition(|_| true).await;
    assert!(condition.probe_at.since(condition.opened_at) >= 600_000);
    let second = run.ask().await;
    run.until_condition(|view| view.waiting == 1).await;
    assert_eq!(run.upstream.calls_of("p/m"), 1, "the provider never had to say no");
    assert_eq!(attempts(&run.house.log(second).await), []);
    run.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_waits_for_a_slow_model_keeps_its_lease_for_longer_than_a_dead_one_would() {
    let mut run = Run::new(&["p/slow"]).await;
    let other = worker(&run.house, &run.upstream, &run.stop).await;
    let session = run.ask().await;
    let is_sent = |log: &[Event]| log.iter().any(|event| matches!(event.body, Body::SpanStart { .. }));
    run.house.until_log(session, is_sent).await;
    let begun = run.house.store.now().await.unwrap();
    let dead_after = u64::try_from(options(run.house.path()).dead_after.as_millis()).unwrap();
    // Both workers look for dead nodes all the while.
    while run.house.store.now().await.unwrap().since(begun) < dead_after + dead_after / 2 {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    run.upstream.slow.notify_one();
    run.house.until(session, Phase::Idle).await;
    let log = run.house.log(session).await;
    assert_eq!(said(&log), ["p/slow"]);
    check(&log);
    let query = LeaseQuery { tenant: run.house.tenant.clone(), session, after: 0, limit: 100 };
    let leases = run.house.store.leases(query).await.unwrap();
    assert_eq!((leases.len(), run.upstream.calls_of("p/slow")), (1, 1), "one lease, one call: {leases:?}");
    run.end().await;
    other.await.unwrap().unwrap();
}
