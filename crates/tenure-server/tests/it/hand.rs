//! A worker played by hand: takes a lease and commits what a test says.

use crate::house::House;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tenure_core::*;
use tenure_store::*;

static NEXT: AtomicU64 = AtomicU64::new(1);

/// A number that no other test of this run has.
pub(crate) fn next() -> u128 {
    u128::from(NEXT.fetch_add(1, Ordering::Relaxed)) << 64 | 0xabcd
}

pub(crate) struct Hand {
    store: Arc<dyn Store>,
    pub(crate) lease: Lease,
    pub(crate) head: Session,
    inbox: Vec<(u64, Input)>,
    consumed: u64,
    now: Timestamp,
}

/// A node that lives.
pub(crate) async fn node(house: &House, address: &str) -> NodeId {
    let id = NodeId::from_bits(next());
    house.store.register(NewNode { id, address: address.into(), label: "by hand".into() }).await.unwrap();
    id
}

impl Hand {
    /// Takes the only runnable session.
    pub(crate) async fn claim(house: &House) -> Self {
        let node = node(house, "127.0.0.1:1").await;
        Self::claim_as(house, node).await
    }

    pub(crate) async fn claim_as(house: &House, node: NodeId) -> Self {
        let claim = Claim { node, lane: Lane::Workers, id: LeaseId::from_bits(next()), limit: 1 };
        let leased = house.store.claim(claim).await.unwrap().pop().expect("a runnable session");
        Self {
            store: house.store.clone(),
            lease: leased.lease,
            head: leased.session,
            inbox: leased.inbox,
            consumed: 0,
            now: leased.now,
        }
    }

    /// Commits drafts and returns their events.
    pub(crate) async fn commit(&mut self, drafts: Vec<Draft>, then: Then) -> Vec<Event> {
        let mut events = Vec::new();
        for draft in drafts {
            let id = draft.id.unwrap_or_else(|| EventId::from_bits(next()));
            let event = Event { id, seq: self.head.last_seq + 1, at: self.now, step: draft.step, body: draft.body };
            apply(&mut self.head, &event).unwrap();
            events.push(event);
        }
        let checkpoint = Checkpoint {
            lease: self.lease.clone(),
            commit_id: LeaseId::from_bits(next()),
            events: events.clone(),
            session: self.head.clone(),
            consumed: self.consumed,
            then,
        };
        let committed = self.store.commit(checkpoint).await.unwrap();
        self.inbox = committed.inbox;
        self.now = committed.now;
        events
    }

    /// How many inputs wait.
    pub(crate) async fn waiting(&mut self) -> usize {
        self.commit(Vec::new(), Then::Keep).await;
        self.inbox.len()
    }

    /// Turns the inbox into events.
    pub(crate) async fn take_inputs(&mut self) -> Vec<Event> {
        let inputs: Vec<Input> = self.inbox.iter().map(|(_, input)| input.clone()).collect();
        self.consumed = self.inbox.last().map_or(self.consumed, |(place, _)| *place);
        let drafts = intake(&self.head, &inputs, self.now);
        self.commit(drafts, Then::Keep).await
    }

    /// Begins a model call.
    pub(crate) async fn begin(&mut self, attempt: u32) -> Event {
        let step = self.head.last_step + u64::from(attempt == 1);
        let sent = Sent::default();
        let start = Draft::of_step(step, Body::SpanStart { model: "p/priced".into(), attempt, instead_of: None, sent });
        self.commit(vec![start], Then::Keep).await.pop().unwrap()
    }

    /// Ends a model call with a message and the turn.
    pub(crate) async fn answer(&mut self, span: &Event, id: EventId, text: &str) {
        let message = Draft {
            id: Some(id),
            step: span.step,
            body: Body::AgentMessage { text: text.into(), origin: Origin::default() },
        };
        let end = self.end(span, false);
        self.commit(vec![message, end, Draft::new(Body::StatusIdle { stop: Stop::EndTurn })], Then::Park).await;
    }

    pub(crate) fn end(&self, span: &Event, is_error: bool) -> Draft {
        let usage = if is_error { Usage::default() } else { Usage { input: 10, output: 5, ..Usage::default() } };
        let cost_usd_micros = (!is_error).then_some(7);
        Draft::of_step(
            span.step,
            Body::SpanEnd {
                span: span.id,
                model: "p/priced".into(),
                is_error,
                usage,
                cost_usd_micros,
                assumed: Estimate::default(),
            },
        )
    }

    /// A whole turn that answers what waits.
    pub(crate) async fn turn(&mut self, text: &str) {
        self.take_inputs().await;
        let span = self.begin(1).await;
        self.answer(&span, EventId::from_bits(next()), text).await;
    }

    /// The model asks for a tool that asks a person; returns the call.
    pub(crate) async fn ask(&mut self, kind: CallKind) -> EventId {
        self.take_inputs().await;
        let span = self.begin(1).await;
        let id = EventId::from_bits(next());
        let input = Json::parse(r#"{"command":"make deploy"}"#).unwrap();
        let body = if kind.is_answered_outside() {
            Body::AgentCustomToolUse { name: "form".into(), input, kind, origin: Origin::default() }
        } else {
            Body::AgentToolUse {
                name: "bash".into(),
                input,
                kind,
                effect: Effect::Once,
                permission: Permission::Ask,
                malformed: None,
                origin: Origin::default(),
            }
        };
        let end = self.end(&span, false);
        self.commit(vec![end, Draft { id: Some(id), step: span.step, body }], Then::Keep).await;
        let wait = Wait { kind: WaitKind::Action, since: self.now, until: None, calls: vec![id] };
        let idle = Body::StatusIdle { stop: Stop::RequiresAction(vec![id]) };
        self.commit(vec![Draft::new(Body::WaitStarted { wait }), Draft::new(idle)], Then::Park).await;
        id
    }
}
