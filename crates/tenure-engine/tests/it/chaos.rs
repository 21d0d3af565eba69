//! A bad hour of a provider, on a simulated clock: every session finishes, and no history is broken.
//!
//! The worker is the real one, on the store in memory; tokio's clock is paused and jumps from timer to
//! timer, and the store's clock follows it. The heartbeat has a thread of its own in real time, so that
//! nodes are not declared dead here.

use crate::house::{check, options};
use async_trait::async_trait;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tenure_core::failure::{Class, Failure, Reply, classify, incomplete, plain};
use tenure_core::*;
use tenure_engine::{EventMasker, Folders, Sandboxes, Worker};
use tenure_model::{BlockPreview, CallContext, ConfigProblem, Model, Models, Resolved, StreamEvent};
use tenure_store::memory::Memory;
use tenure_store::*;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

const SESSIONS: usize = 60;
const TURNS: usize = 6;
const HOUR: Duration = Duration::from_secs(3_600);
/// Between these times nobody answers.
const OUTAGE: (Duration, Duration) = (Duration::from_secs(20 * 60), Duration::from_secs(40 * 60));
/// How long an answer takes.
const ANSWER: Duration = Duration::from_secs(4);
/// Tokens of each attempt, whether it was of use or not.
const TOKENS: u64 = 1_000;

#[derive(Clone, Debug)]
struct Hour {
    begun: Instant,
    random: Arc<Mutex<u64>>,
    seen: Arc<Mutex<Seen>>,
}

/// What the provider saw.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Seen {
    answers: u64,
    failures: BTreeMap<&'static str, u64>,
    in_outage: u64,
}

impl Hour {
    /// A number below 100, the same ones for the same seed.
    fn percent(&self) -> u64 {
        let mut random = self.random.lock().unwrap();
        *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*random >> 33) % 100
    }

    fn fails(&self, kind: &'static str) {
        *self.seen.lock().unwrap().failures.entry(kind).or_default() += 1;
    }
}

impl Models for Hour {
    fn resolve(&self, name: &str) -> Result<Resolved, ConfigProblem> {
        Ok(Resolved {
            model: Arc::new(self.clone()),
            full_name: name.to_owned(),
            credential: "p".into(),
            model_name: name.to_owned(),
            price: Some(Price { input: 0, output: 0, cache_read: 0, cache_write: 0 }),
            max_output_tokens: 100,
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
        assert_eq!(validate::validate(&prompt.messages), Ok(()), "no provider would take it");
        let now = self.begun.elapsed();
        if now >= OUTAGE.0 && now < OUTAGE.1 {
            self.seen.lock().unwrap().in_outage += 1;
            return Err(failure::unreachable("connection refused"));
        }
        tokio::time::sleep(ANSWER / 2).await;
        let status = |status, kind: &str| {
            let body = format!(r#"{{"type":"error","error":{{"type":"{kind}","message":"no"}}}}"#);
            Err(classify(&Reply { status, body: &body, headers: &[] }))
        };
        match self.percent() {
            0..5 => {
                self.fails("cut");
                on_event(StreamEvent::BlockStart { index: 0, kind: BlockPreview::Text });
                on_event(StreamEvent::Text { index: 0, text: "half an ans".into() });
                tokio::time::sleep(ANSWER / 4).await;
                Err(incomplete("the stream ended before its terminal marker"))
            }
            5..10 => {
                self.fails("529");
                status(529, "overloaded_error")
            }
            10..12 => {
                self.fails("429");
                status(429, "rate_limit_error")
            }
            12 => {
                self.fails("garbage");
                Err(plain(Class::Incomplete, "the stream holds bytes that are no event"))
            }
            _ => {
                on_event(StreamEvent::BlockStart { index: 0, kind: BlockPreview::Text });
                tokio::time::sleep(ANSWER / 2).await;
                self.seen.lock().unwrap().answers += 1;
                Ok(Answer {
                    dialect: "test".into(),
                    model: "p/m".into(),
                    blocks: vec![AnswerBlock {
                        id: None,
                        kind: BlockKind::Text { text: "done".into() },
                        raw: Vec::new(),
                    }],
                    stop: AnswerStop::EndTurn,
                    usage: Usage { output: TOKENS, ..Usage::default() },
                    request_id: None,
                })
            }
        }
    }
}

fn agent() -> Agent {
    Agent {
        id: AgentId::from_bits(1),
        version: 1,
        tenant: TenantId::default_tenant(),
        name: "worker of a bad hour".into(),
        description: None,
        model: "p/m".into(),
        fallback_models: Vec::new(),
        system: None,
        tools: Vec::new(),
        limits: Limits::default(),
        policies: Policies::default(),
        run_loop: Loop::BuiltIn,
        metadata: BTreeMap::new(),
        created_at: Timestamp(0),
        updated_at: Timestamp(0),
        archived_at: None,
    }
}

async fn log(store: &Memory, session: SessionId) -> Vec<Event> {
    let tenant = TenantId::default_tenant();
    let mut rows = Vec::new();
    loop {
        let after = Some(rows.len() as u64);
        let query = EventQuery { tenant: tenant.clone(), session, after, order: Order::Ascending, limit: 1_000 };
        let page = store.events(query).await.unwrap();
        if page.is_empty() {
            return rows;
        }
        rows.extend(page);
    }
}

/// Sends one message after the other, spread over the hour, and waits until all are answered.
async fn user(store: Arc<Memory>, number: u128, begun: Instant) {
    let tenant = TenantId::default_tenant();
    let session = SessionId::from_bits(number << 16);
    let agent = AgentRef { id: AgentId::from_bits(1), version: 1 };
    let new = Session::new(session, tenant.clone(), agent, EnvironmentId::from_bits(1), Timestamp(0));
    store
        .create(NewSession {
            session: new,
            metadata: BTreeMap::new(),
            events: vec![],
            inputs: vec![],
            idempotency: None,
        })
        .await
        .unwrap();
    for turn in 0..TURNS {
        let at = HOUR.mul_f64((turn as f64 + number as f64 / SESSIONS as f64) / TURNS as f64);
        tokio::time::sleep_until(begun + at).await;
        let id = EventId::from_bits((number << 32) + turn as u128);
        let inputs = vec![(id, InputBody::Message { content: vec![Block::Text("go on".into())] })];
        store
            .deliver(Delivery { tenant: tenant.clone(), session, inputs, notes: None, idempotency: None })
            .await
            .unwrap();
        loop {
            tokio::time::sleep(Duration::from_secs(5)).await;
            let view = store.session(&tenant, session).await.unwrap().unwrap();
            if view.state == State::Parked && view.inbox_len == 0 && view.session.phase() == Phase::Idle {
                break;
            }
            assert_ne!(view.session.phase(), Phase::NeedsYou, "nobody has to do anything: {:?}", view.session.wait);
            assert!(begun.elapsed() < HOUR * 3, "it never finishes: {view:?}");
        }
    }
}

/// Runs the hour with a seed. Returns what the provider saw, and all logs.
async fn hour(seed: u64) -> (Seen, Vec<Vec<Event>>) {
    let data = tempfile::tempdir().unwrap();
    let store = Arc::new(Memory::new());
    store.put_agent(agent(), None).await.unwrap();
    let begun = Instant::now();
    let model = Hour { begun, random: Arc::new(Mutex::new(seed)), seen: Arc::default() };
    let options = tenure_engine::Options {
        slots: 64,
        // Real seconds of the heartbeat's thread are nothing beside simulated ones.
        dead_after: Duration::from_secs(100 * 3_600),
        short_wait: Duration::from_secs(2),
        ..options(data.path())
    };
    let sandboxes = Arc::new(Sandboxes::new(Vec::new(), Folders { data: data.path().to_owned() }, Vec::new()));
    let worker = Worker::start(store.clone(), Arc::new(model.clone()), sandboxes, EventMasker::default(), options)
        .await
        .unwrap();
    let stop = CancellationToken::new();
    let clock = tokio::spawn({
        let (store, stop) = (store.clone(), stop.clone());
        async move {
            let start = store.now().await.unwrap();
            while !stop.is_cancelled() {
                tokio::time::sleep(Duration::from_millis(100)).await;
                store.set_now(start.after(u64::try_from(begun.elapsed().as_millis()).unwrap()));
            }
        }
    });
    let task = tokio::spawn(worker.run(stop.clone()));
    let users: Vec<_> =
        (0..SESSIONS).map(|number| tokio::spawn(user(store.clone(), number as u128 + 1, begun))).collect();
    for user in users {
        user.await.unwrap();
    }
    stop.cancel();
    task.await.unwrap().unwrap();
    clock.await.unwrap();
    let mut logs = Vec::new();
    for number in 1..=SESSIONS {
        logs.push(log(&store, SessionId::from_bits((number as u128) << 16)).await);
    }
    let seen = model.seen.lock().unwrap().clone();
    (seen, logs)
}

#[tokio::test(start_paused = true)]
async fn p9_every_session_survives_a_bad_hour_and_no_history_is_broken() {
    let (seen, logs) = hour(7).await;
    let mut attempts = 0;
    for log in &logs {
        check(log);
        attempts += log.iter().filter(|event| matches!(event.body, Body::SpanStart { .. })).count() as u64;
    }
    let needed = (SESSIONS * TURNS) as u64;
    let failed: u64 = seen.failures.values().sum();
    assert_eq!(seen.answers, needed, "each message was answered once");
    assert_eq!(attempts, needed + failed + seen.in_outage, "every attempt is in a log");
    // What a failed attempt may have cost: those in the outage reached nobody.
    let overhead = failed as f64 / needed as f64;
    println!("chaos hour: {seen:?}; attempts {attempts} for {needed} answers, cost overhead {:.1} %", overhead * 100.0);
    assert!(overhead < 0.25, "{overhead}");
    // A circuit's worth of failures, and probes that come ever later: not one per session.
    assert!(seen.in_outage <= 60, "{seen:?}");
}
