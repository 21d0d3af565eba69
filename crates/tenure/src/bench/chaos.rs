//! A bad hour of a provider, on a simulated clock: every session finishes, no history is broken, and what the
//! failed attempts cost (promise P9).
//!
//! The worker is the real one, on the store in memory; tokio's clock is paused and jumps from timer to
//! timer, and the store's clock follows it, so that the figures depend on no machine.

use super::Figure;
use anyhow::{Context, Result, anyhow, ensure};
use async_trait::async_trait;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tenure_core::failure::{Class, Failure, Reply, classify, incomplete, plain, unreachable};
use tenure_core::{
    Agent, AgentId, AgentRef, Answer, AnswerBlock, AnswerStop, Block, BlockKind, Body, EnvironmentId, Event, EventId,
    InputBody, Limits, Loop, ModelFacts, Phase, Policies, Price, Prompt, Session, SessionId, TenantId, Timestamp,
    Usage, transcript, validate,
};
use tenure_engine::{EventMasker, Folders, Options, Sandboxes, Worker};
use tenure_model::{BlockPreview, CallContext, ConfigProblem, Model, Models, Resolved, StreamEvent};
use tenure_store::memory::Memory;
use tenure_store::{Delivery, EventQuery, NewSession, Order, State, Store};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Sessions, and messages of each, spread over the hour.
const SESSIONS: u64 = 200;
const TURNS: u64 = 10;

const HOUR: Duration = Duration::from_secs(3_600);
/// Between these times nobody answers.
const OUTAGE: (Duration, Duration) = (Duration::from_secs(20 * 60), Duration::from_secs(40 * 60));
/// Longest simulated time.
const PATIENCE: Duration = Duration::from_secs(3 * 3_600);

/// Attempts in a hundred that fail, by kind.
const CUT: u64 = 5;
const OVERLOADED: u64 = 5;
const LIMITED: u64 = 2;
const GARBAGE: u64 = 1;

/// How long an answer takes, and what it is.
const ANSWER: Duration = Duration::from_secs(4);
const ANSWER_TOKENS: u64 = 400;
const PIECES: u64 = 4;
/// What each request reads.
const REQUEST_TOKENS: u64 = 2_000;
/// US dollars per million tokens, in millionths.
const PRICE: Price = Price { input: 3_000_000, output: 15_000_000, cache_read: 300_000, cache_write: 3_750_000 };

const MODEL: &str = "p/m";

pub(crate) async fn run(folder: &Path) -> Result<Vec<Figure>> {
    let folder = folder.to_owned();
    // Only a runtime of one thread can pause its clock.
    let played = tokio::task::spawn_blocking(move || play(&folder, 7, SESSIONS, TURNS)).await??;
    let needed = (SESSIONS * TURNS) as f64;
    let params = json!({
        "sessions": SESSIONS, "messages_each": TURNS, "cut_percent": CUT, "overloaded_percent": OVERLOADED,
        "limited_percent": LIMITED, "garbage_percent": GARBAGE, "outage_minutes": 20, "clock": "simulated",
    });
    let figure = |name: &str, unit, value: f64| Figure::new("chaos", name, unit, vec![value]).with(params.clone());
    Ok(vec![
        figure("sessions that finished", "sessions", played.finished as f64).against(SESSIONS as f64),
        figure("prefixes that are no valid history", "prefixes", played.invalid as f64),
        figure("messages answered once", "messages", played.answers as f64).against(needed),
        figure("attempts", "attempts", played.attempts as f64).against(needed),
        figure("attempts during the outage", "attempts", played.in_outage as f64),
        figure("failed at the provider, of all answers", "%", played.failed as f64 * 100.0 / needed),
        figure("charged for failed attempts, of all charges", "%", played.overhead_percent()),
        figure("longest from a last message to its answer", "s", played.late.as_secs_f64()),
    ])
}

/// What came of an hour.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Played {
    finished: u64,
    answers: u64,
    attempts: u64,
    failed: u64,
    in_outage: u64,
    invalid: u64,
    /// Millionths of dollars, of answers and of attempts that broke off.
    cost: u64,
    wasted: u64,
    /// How long after the last message the last answer came.
    late: Duration,
}

impl Played {
    fn overhead_percent(&self) -> f64 {
        self.wasted as f64 * 100.0 / self.cost as f64
    }
}

/// Runs an hour with a seed, in a runtime of its own.
fn play(folder: &Path, seed: u64, sessions: u64, turns: u64) -> Result<Played> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().start_paused(true).build()?;
    runtime.block_on(hour(folder, seed, sessions, turns))
}

const UNPOISONED: &str = "nobody panics while holding it";

/// What the provider saw.
#[derive(Clone, Debug, Default)]
struct Seen {
    answers: u64,
    failures: BTreeMap<&'static str, u64>,
    in_outage: u64,
}

/// The provider.
#[derive(Clone, Debug)]
struct Hour {
    begun: Instant,
    random: Arc<Mutex<u64>>,
    seen: Arc<Mutex<Seen>>,
}

impl Hour {
    /// A number below 100, the same ones for the same seed.
    fn percent(&self) -> u64 {
        let mut random = self.random.lock().expect(UNPOISONED);
        *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*random >> 33) % 100
    }

    fn fails(&self, kind: &'static str) {
        *self.seen.lock().expect(UNPOISONED).failures.entry(kind).or_default() += 1;
    }

    /// Streams the begin of an answer.
    async fn say(&self, pieces: u64, on_event: &mut (dyn FnMut(StreamEvent) + Send)) {
        on_event(StreamEvent::Started { request_id: None });
        on_event(StreamEvent::BlockStart { index: 0, kind: BlockPreview::Text });
        for _ in 0..pieces {
            tokio::time::sleep(ANSWER / 2 / u32::try_from(PIECES).unwrap_or(1)).await;
            on_event(StreamEvent::Text { index: 0, text: piece() });
        }
    }
}

/// A part of an answer: four bytes are about a token.
fn piece() -> String {
    "word".repeat(usize::try_from(ANSWER_TOKENS / PIECES).unwrap_or(1))
}

impl Models for Hour {
    fn resolve(&self, name: &str) -> Result<Resolved, ConfigProblem> {
        Ok(Resolved {
            model: Arc::new(self.clone()),
            full_name: name.to_owned(),
            credential: "p".to_owned(),
            model_name: name.to_owned(),
            price: Some(PRICE),
            max_output_tokens: 1_000,
            facts: ModelFacts { context_window: None, max_request_bytes: 32 * 1024 * 1024, cuts_silently: false },
        })
    }
}

#[async_trait]
impl Model for Hour {
    async fn call(
        &self,
        prompt: &Prompt,
        _: &CallContext,
        on_event: &mut (dyn FnMut(StreamEvent) + Send),
    ) -> Result<Answer, Failure> {
        if validate::validate(&prompt.messages).is_err() {
            self.fails("history");
            return Err(plain(Class::BadHistory, "no provider would take it"));
        }
        let now = self.begun.elapsed();
        if now >= OUTAGE.0 && now < OUTAGE.1 {
            self.seen.lock().expect(UNPOISONED).in_outage += 1;
            return Err(unreachable("connection refused"));
        }
        tokio::time::sleep(ANSWER / 2).await;
        let status = |status, kind: &str| {
            let body = format!(r#"{{"type":"error","error":{{"type":"{kind}","message":"no"}}}}"#);
            Err(classify(&Reply { status, body: &body, headers: &[] }))
        };
        let lot = self.percent();
        if lot < CUT {
            self.fails("cut");
            self.say(PIECES / 2, on_event).await;
            return Err(incomplete("the stream ended before its terminal marker"));
        }
        if lot < CUT + OVERLOADED {
            self.fails("529");
            return status(529, "overloaded_error");
        }
        if lot < CUT + OVERLOADED + LIMITED {
            self.fails("429");
            return status(429, "rate_limit_error");
        }
        if lot < CUT + OVERLOADED + LIMITED + GARBAGE {
            self.fails("garbage");
            self.say(1, on_event).await;
            return Err(plain(Class::Incomplete, "the stream holds an event that cannot be read"));
        }
        self.say(PIECES, on_event).await;
        self.seen.lock().expect(UNPOISONED).answers += 1;
        let text = (0..PIECES).map(|_| piece()).collect();
        Ok(Answer {
            dialect: "bench".to_owned(),
            model: MODEL.to_owned(),
            blocks: vec![AnswerBlock { id: None, kind: BlockKind::Text { text }, raw: Vec::new() }],
            stop: AnswerStop::EndTurn,
            usage: Usage { input: REQUEST_TOKENS, output: ANSWER_TOKENS, ..Usage::default() },
            request_id: None,
        })
    }
}

fn agent() -> Agent {
    Agent {
        id: AgentId::from_bits(1),
        version: 1,
        tenant: TenantId::default_tenant(),
        name: "bench".to_owned(),
        description: None,
        model: MODEL.to_owned(),
        fallback_models: Vec::new(),
        system: None,
        tools: Vec::new(),
        limits: Limits::NONE,
        policies: Policies::default(),
        run_loop: Loop::BuiltIn,
        metadata: BTreeMap::new(),
        created_at: Timestamp(0),
        updated_at: Timestamp(0),
        archived_at: None,
    }
}

fn options(folder: &Path) -> Options {
    Options {
        slots: 64,
        quantum: Duration::from_secs(45),
        short_wait: Duration::from_secs(2),
        grace: Duration::from_secs(1),
        heartbeat: Duration::from_millis(500),
        // Real seconds of the heartbeat's thread are nothing beside simulated ones.
        dead_after: Duration::from_secs(100 * 3_600),
        sandbox_idle: Duration::from_secs(300),
        data: folder.to_owned(),
        public_url: "http://127.0.0.1".to_owned(),
        installation_key: [0; 32],
        node_key: "bench".to_owned(),
        internal_listen: ([127, 0, 0, 1], 0).into(),
        telemetry: tenure_telemetry::Telemetry::default(),
    }
}

async fn hour(folder: &Path, seed: u64, sessions: u64, turns: u64) -> Result<Played> {
    let store = Arc::new(Memory::new());
    store.put_agent(agent(), None).await?;
    let begun = Instant::now();
    let model = Hour { begun, random: Arc::new(Mutex::new(seed)), seen: Arc::default() };
    let sandboxes = Arc::new(Sandboxes::new(Vec::new(), Folders { data: folder.to_owned() }, Vec::new()));
    let models = Arc::new(model.clone());
    let worker = Worker::start(store.clone(), models, sandboxes, EventMasker::default(), options(folder)).await?;
    let stop = CancellationToken::new();
    let clock = tokio::spawn(follow(store.clone(), begun, stop.clone()));
    let running = tokio::spawn(worker.run(stop.clone()));
    let users: Vec<_> =
        (0..sessions).map(|number| tokio::spawn(user(store.clone(), number, sessions, turns, begun))).collect();
    let mut played = Played::default();
    for user in users {
        played.late = played.late.max(user.await.context("a user panicked")??);
        played.finished += 1;
    }
    stop.cancel();
    running.await.context("the worker panicked")??;
    clock.await.context("the clock panicked")??;
    for number in 0..sessions {
        count(&store, session_of(number), &mut played).await?;
    }
    let seen = model.seen.lock().expect(UNPOISONED).clone();
    played.answers = seen.answers;
    played.failed = seen.failures.values().sum();
    played.in_outage = seen.in_outage;
    Ok(played)
}

/// Keeps the clock of the store beside that of the runtime.
async fn follow(store: Arc<Memory>, begun: Instant, stop: CancellationToken) -> Result<()> {
    let start = store.now().await?;
    while !stop.is_cancelled() {
        tokio::time::sleep(Duration::from_millis(100)).await;
        store.set_now(start.after(u64::try_from(begun.elapsed().as_millis())?));
    }
    Ok(())
}

fn session_of(number: u64) -> SessionId {
    SessionId::from_bits(u128::from(number + 1) << 16)
}

/// Sends one message after the other, spread over the hour, and waits until all are answered. Returns how
/// long after its last message the last answer came.
async fn user(store: Arc<Memory>, number: u64, sessions: u64, turns: u64, begun: Instant) -> Result<Duration> {
    let tenant = TenantId::default_tenant();
    let session = session_of(number);
    let agent = AgentRef { id: AgentId::from_bits(1), version: 1 };
    let mut new = Session::new(session, tenant.clone(), agent, EnvironmentId::from_bits(1), Timestamp(0));
    new.budget.limits = Limits::NONE;
    store
        .create(NewSession {
            session: new,
            events: Vec::new(),
            metadata: BTreeMap::new(),
            inputs: Vec::new(),
            idempotency: None,
        })
        .await?;
    let mut sent = begun;
    for turn in 0..turns {
        let place = turn as f64 + number as f64 / sessions as f64;
        tokio::time::sleep_until(begun + HOUR.mul_f64(place / turns as f64)).await;
        sent = Instant::now();
        let id = EventId::from_bits((u128::from(number + 1) << 32) + u128::from(turn));
        let inputs = vec![(id, InputBody::Message { content: vec![Block::Text("go on".to_owned())] })];
        store.deliver(Delivery { tenant: tenant.clone(), session, inputs, notes: None, idempotency: None }).await?;
        until_idle(&store, &tenant, session, begun).await?;
    }
    Ok(sent.elapsed())
}

async fn until_idle(store: &Memory, tenant: &TenantId, session: SessionId, begun: Instant) -> Result<()> {
    loop {
        tokio::time::sleep(Duration::from_secs(5)).await;
        let view = store.session(tenant, session).await?.context("the session is there")?;
        if view.state == State::Parked && view.inbox_len == 0 && view.session.phase() == Phase::Idle {
            return Ok(());
        }
        ensure!(view.session.phase() != Phase::NeedsYou, "a session needs a person: {:?}", view.session.wait);
        ensure!(begun.elapsed() < PATIENCE, "a session never finishes: {:?}", view.session.wait);
    }
}

/// Counts attempts and money of a session, and looks at every prefix of its log.
async fn count(store: &Memory, session: SessionId, played: &mut Played) -> Result<()> {
    let tenant = TenantId::default_tenant();
    let view = store.session(&tenant, session).await?.ok_or_else(|| anyhow!("the session is gone"))?;
    played.cost += view.session.budget.cost_usd_micros;
    played.wasted += view.session.budget.estimated_cost_usd_micros;
    let mut log: Vec<Event> = Vec::new();
    loop {
        let after = Some(log.len() as u64);
        let query = EventQuery { tenant: tenant.clone(), session, after, order: Order::Ascending, limit: 1_000 };
        let page = store.events(query).await?;
        if page.is_empty() {
            break;
        }
        log.extend(page);
    }
    played.attempts += log.iter().filter(|event| matches!(event.body, Body::SpanStart { .. })).count() as u64;
    let is_invalid = |cut: &usize| validate::validate(&transcript(&log[..*cut])).is_err();
    let has_gap = log.iter().zip(1..).any(|(event, seq)| event.seq != seq);
    played.invalid += (0..=log.len()).filter(is_invalid).count() as u64 + u64::from(has_gap);
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests {
    use super::*;

    #[test]
    fn p9_every_session_survives_a_bad_hour_and_no_history_is_broken() {
        let (sessions, turns) = (60, 6);
        let needed = sessions * turns;
        let folder = tempfile::tempdir().unwrap();
        let played = play(folder.path(), 7, sessions, turns).unwrap();
        assert_eq!((played.finished, played.invalid), (sessions, 0), "{played:?}");
        assert_eq!(played.answers, needed, "each message was answered once");
        assert_eq!(played.attempts, needed + played.failed + played.in_outage, "every attempt is in a log");
        // A circuit's worth of failures, and probes that come ever later: not one per session.
        assert!(played.in_outage > 0 && played.in_outage <= 60, "{played:?}");
        // What a failed attempt may have cost: those in the outage reached nobody.
        assert!(played.failed > 0 && played.failed * 4 < needed, "{played:?}");
        // Only those that had begun to answer are charged.
        assert!(played.wasted > 0 && played.overhead_percent() < 10.0, "{played:?}");
    }
}
