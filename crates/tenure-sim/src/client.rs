//! Clients: each talks to one session, answers what it asks, and remembers what was acknowledged.

use crate::dice::Dice;
use crate::store::Reached;
use crate::world::World;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tenure_core::{
    AgentId, AgentRef, Block, Budget, CallKind, CallState, Decision, EnvironmentId, EventId, InputBody, Limits, Phase,
    Session, SessionId, TenantId, Timestamp, WaitKind,
};
use tenure_store::{Delivery, Idempotency, Kind, NewSession, Receipt, SessionView, State, Store};

/// Longest pause of a client between two things that it does, in milliseconds.
const PAUSE: u64 = 6_000;

/// How often a client looks whether its session is at rest, in milliseconds.
const LOOK: u64 = 500;

/// How long after the faults stopped all sessions are at rest, in milliseconds.
pub(crate) const REST_WITHIN: u64 = 20 * 60 * 1_000;

/// One client with its session.
pub(crate) struct Client {
    world: Arc<World>,
    store: Reached,
    dice: Dice,
    tenant: TenantId,
    session: SessionId,
    sent: u128,
    is_paused: bool,
}

/// Whose the session with this number is.
pub(crate) fn tenant(number: u64) -> TenantId {
    TenantId(format!("tenant_{}", number % 2))
}

impl Client {
    pub(crate) fn new(world: Arc<World>, store: Reached, number: u64) -> Self {
        let dice = Dice::of(world.plan.seed, 100 + number);
        let session = SessionId::from_bits(u128::from(number + 1) << 16);
        Self { world, store, dice, tenant: tenant(number), session, sent: 0, is_paused: false }
    }

    /// Talks until faults stop, then sees to it that the session comes to rest.
    pub(crate) async fn run(mut self) {
        self.create().await;
        while !self.world.is_quiet() {
            let pause = self.dice.between(1, PAUSE);
            tokio::time::sleep(Duration::from_millis(pause)).await;
            self.act().await;
        }
        // A message with which everything that was kept goes on.
        self.say().await;
        self.rest().await;
    }

    fn id(&mut self) -> EventId {
        self.sent += 1;
        EventId::from_bits(self.session.bits() << 32 | self.sent)
    }

    fn key(&self, id: u128) -> Option<Idempotency> {
        Some(Idempotency { scope: self.session.to_string(), key: id.to_string(), body_digest: [0; 32] })
    }

    async fn create(&mut self) {
        let tenant = self.tenant.clone();
        let agent = AgentRef { id: AgentId::from_bits(1), version: 1 };
        let mut session = Session::new(self.session, tenant, agent, EnvironmentId::from_bits(1), Timestamp(0));
        session.budget = Budget { limits: limits(&self.world), ..Budget::default() };
        let (metadata, idempotency) = (BTreeMap::new(), self.key(0));
        let new = NewSession { session, events: Vec::new(), metadata, inputs: Vec::new(), idempotency };
        while self.store.create(new.clone()).await.is_err() {
            tokio::time::sleep(Duration::from_millis(LOOK)).await;
        }
    }

    /// Sends an input until it is acknowledged or refused; sometimes twice.
    async fn send(&mut self, body: InputBody) {
        let id = self.id();
        let delivery = Delivery {
            tenant: self.tenant.clone(),
            session: self.session,
            inputs: vec![(id, body.clone())],
            notes: None,
            idempotency: self.key(id.bits()),
        };
        let mut repeats = u32::from(self.dice.percent(10));
        loop {
            match self.store.deliver(delivery.clone()).await {
                Ok(delivered) => self.acknowledged(id, &body, delivered.receipts.first()),
                Err(error) if error.kind == Kind::Retry => {
                    tokio::time::sleep(Duration::from_millis(LOOK)).await;
                    continue;
                }
                Err(_) => return,
            }
            if repeats == 0 {
                return;
            }
            repeats -= 1;
        }
    }

    fn acknowledged(&self, id: EventId, body: &InputBody, receipt: Option<&Receipt>) {
        self.world.judge(|referee| {
            let shadow = referee.of(self.session);
            if shadow.acknowledged.iter().any(|(known, _)| *known == id) {
                return;
            }
            shadow.acknowledged.push((id, body.clone()));
            let counts = match receipt {
                Some(Receipt::Queued(input)) => Some(input.id),
                Some(Receipt::Logged(event)) => Some(event.id),
                Some(Receipt::Nothing) | None => None,
            };
            if let (Some(call), Some(counts)) = (body.answers(), counts) {
                shadow.answers.entry(call).or_insert(counts);
            }
        });
    }

    async fn view(&self) -> Option<SessionView> {
        self.store.session(&self.tenant, self.session).await.ok().flatten()
    }

    async fn say(&mut self) {
        let text = format!("message {}", self.sent);
        self.send(InputBody::Message { content: vec![Block::Text(text)] }).await;
    }

    async fn act(&mut self) {
        match self.dice.between(1, 100) {
            1..=40 => self.say().await,
            41..=75 => self.answer().await,
            76..=80 => self.send(InputBody::Interrupt).await,
            81..=85 => {
                let body = if self.is_paused { InputBody::Resume } else { InputBody::Pause };
                self.is_paused = !self.is_paused;
                self.send(body).await;
            }
            86 => self.send(InputBody::Cancel).await,
            87..=90 => self.send(InputBody::Limits(limits(&self.world))).await,
            _ => {}
        }
    }

    /// Answers what the session asks.
    async fn answer(&mut self) {
        let Some(view) = self.view().await else { return };
        for call in &view.session.calls {
            if !matches!(call.state, CallState::NeedsAnswer { .. }) {
                continue;
            }
            let (tool_use_id, twice) = (call.id, self.dice.percent(20));
            for _ in 0..=u32::from(twice) {
                let yes = self.dice.percent(70);
                let body = match call.kind {
                    CallKind::Custom | CallKind::AskUser => {
                        let content = vec![Block::Text(format!("answer {}", self.sent))];
                        InputBody::CustomResult { tool_use_id, content, is_error: !yes }
                    }
                    _ if yes => InputBody::Confirmation { tool_use_id, decision: Decision::Allow },
                    _ => InputBody::Confirmation { tool_use_id, decision: Decision::Deny { message: None } },
                };
                self.send(body).await;
            }
        }
        for callback in view.session.callbacks.iter().filter(|callback| callback.received_seq.is_none()) {
            self.send(InputBody::Callback { callback: callback.id, body: "built".into() }).await;
        }
    }

    async fn rest(&mut self) {
        let until = self.world.plan.quiet_at + REST_WITHIN;
        loop {
            tokio::time::sleep(Duration::from_millis(LOOK)).await;
            let Some(view) = self.view().await else { continue };
            if self.world.now() > until {
                let now = self.store.now().await.unwrap_or(view.state_since);
                self.world.judge(|referee| referee.restless(&view, now));
                return;
            }
            if !matches!(view.state, State::Parked | State::Ended) || view.inbox_len > 0 {
                continue;
            }
            match view.session.phase() {
                Phase::Idle | Phase::Done | Phase::Failed | Phase::Cancelled => return,
                Phase::Paused => self.send(InputBody::Resume).await,
                Phase::NeedsYou => match view.session.wait.as_ref().map(|wait| &wait.kind) {
                    Some(WaitKind::Action) => self.answer().await,
                    _ => return,
                },
                Phase::Waiting => self.answer().await,
                Phase::BackingOff | Phase::Queued | Phase::Working => {}
            }
        }
    }
}

fn limits(world: &World) -> Limits {
    Limits { steps: world.plan.steps, ..Limits::default() }
}
