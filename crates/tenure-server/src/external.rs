//! Writes for the holder of an external loop's lease: what the engine does for its own loop, done for a
//! program that speaks HTTP. Nothing is kept between two requests: the head comes from the store, and the
//! store's fence decides, so that any server can answer the next one.

use crate::error::{ApiError, Result};
use crate::state::ServerState;
use std::collections::VecDeque;
use std::time::Duration;
use tenure_api::callback;
use tenure_api::error::Code;
use tenure_api::event::WireEvent;
use tenure_api::lease::{LeaseTicket, LoopEvent, LoopThen, Until, WireCall, WireCallback, WireLease};
use tenure_core::{
    Action, Agent, Block, Body, Call, CallKind, CallState, CallbackId, Done, Draft, Effect, End, Estimate, Event,
    EventId, Input, InputBody, Invalid, Json, LeaseId, MAX_LOSSES, Origin, Outcome, Permission, Position, Sent,
    Session, Stop, Timestamp, Wait, WaitKind, apply, cancelled, ended, failure::Class, finished, intake, next, recover,
    set_aside, usage_due,
};
use tenure_store::{Checkpoint, Kind, Lease, Leased, Then};

/// Waits between repeats of a commit whose reply was lost.
const COMMIT_RETRY: Duration = Duration::from_millis(50);

/// Most repeats of such a commit; then the caller repeats the request.
const MAX_COMMIT_RETRIES: u32 = 20;

/// What the last event of a cancelled session says: programs outside are not ours to end.
const FENCED: &str = "an external loop had the session; it is fenced, and what it started elsewhere is its own";

/// What is due in a session that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// The loop's next thought.
    Model,
    /// Calls to run.
    Tools,
    /// Nothing: it is not held any more.
    Nothing,
}

/// The head of a leased session, and what is not committed yet.
pub(crate) struct Pen<'a> {
    state: &'a ServerState,
    agent: &'a Agent,
    lease: Lease,
    session: Session,
    pending: Vec<Event>,
    written: Vec<Event>,
    inbox: VecDeque<(u64, Input)>,
    taken: Vec<EventId>,
    consumed: u64,
    callbacks: Vec<CallbackId>,
    now: Timestamp,
    /// The id of the next commit: those of one request follow each other, so that its repeat is recognised
    /// whichever of them was the last.
    commit_id: LeaseId,
}

impl<'a> Pen<'a> {
    /// Takes up a new lease: closes what a lost holder left open, takes in what waits, and goes on until the
    /// loop has something to do.
    pub(crate) async fn begin(state: &'a ServerState, agent: &'a Agent, leased: Leased) -> Result<(Self, Due)> {
        let Leased { lease, session, inbox, claims, now, .. } = leased;
        let mut pen = Self::new(state, agent, lease, session, now);
        pen.inbox = inbox.into();
        let drafts = recover(&pen.session, agent.policies.unknown_outcome, now);
        pen.push_all(drafts)?;
        let losses = claims.saturating_sub(1);
        if losses >= MAX_LOSSES {
            pen.take_inputs()?;
            if !pen.pending.iter().any(|event| event.body.is_progress()) {
                let reason =
                    format!("the external loop that held it was lost {losses} times in a row during this step");
                let drafts = set_aside(&pen.session, &reason, now);
                pen.push_all(drafts)?;
            }
        }
        let due = pen.advance().await?;
        Ok((pen, due))
    }

    /// Goes on with a lease that is held already.
    pub(crate) fn new(
        state: &'a ServerState,
        agent: &'a Agent,
        lease: Lease,
        session: Session,
        now: Timestamp,
    ) -> Self {
        Self {
            state,
            agent,
            lease,
            session,
            pending: Vec::new(),
            written: Vec::new(),
            inbox: VecDeque::new(),
            taken: Vec::new(),
            consumed: 0,
            callbacks: Vec::new(),
            now,
            commit_id: LeaseId::from_bits(rand::random()),
        }
    }

    /// Commits what a loop did, and goes on until it has something to do or has let go. `commit_id` recognises
    /// the request when it is repeated.
    pub(crate) async fn checkpoint(
        &mut self,
        events: Vec<LoopEvent>,
        then: LoopThen,
        commit_id: LeaseId,
    ) -> Result<Due> {
        let blocks = self.state.loops.end(self.session.id, self.lease.epoch);
        let (end, ids) = blocks.map_or((None, Vec::new()), |(end, ids)| (Some(end), ids));
        self.commit_id = commit_id;
        let due = self.commit_all(events, ids, then).await;
        if let Some(end) = end {
            // Its rows are there, or never will be: also when the checkpoint was refused.
            self.state.previews.take(crate::live::OWN_NODE, end);
        }
        due
    }

    async fn commit_all(
        &mut self,
        events: Vec<LoopEvent>,
        ids: Vec<(EventId, &'static str)>,
        then: LoopThen,
    ) -> Result<Due> {
        self.write(events, ids)?;
        let then = self.settle(then)?;
        if !self.commit(then).await? {
            return Ok(Due::Nothing);
        }
        self.advance().await
    }

    /// The rows of what a loop did. A model call that it reports is a span around what the model said.
    fn write(&mut self, events: Vec<LoopEvent>, mut ids: Vec<(EventId, &'static str)>) -> Result<()> {
        let mut id_of = |kind: &str| {
            let place = ids.iter().position(|(_, of)| *of == kind)?;
            Some(ids.remove(place).0)
        };
        // The models of the calls that are still to be reported.
        let mut models: VecDeque<String> = events
            .iter()
            .filter_map(|event| if let LoopEvent::Usage { model, .. } = event { Some(model.clone()) } else { None })
            .collect();
        let mut span: Option<EventId> = None;
        for event in events {
            if span.is_none()
                && matches!(event, LoopEvent::Message(_) | LoopEvent::Thinking(_))
                && let Some(model) = models.front()
            {
                span = Some(self.begin_span(model.clone())?);
            }
            let step = self.session.last_step;
            let origin = || Origin { dialect: "external".into(), ..Origin::default() };
            match event {
                LoopEvent::Message(content) => {
                    for block in content {
                        if let Block::Text(text) = block {
                            let body = Body::AgentMessage { text, origin: origin() };
                            self.push(Draft { id: id_of("agent.message"), step, body })?;
                        }
                    }
                }
                LoopEvent::Thinking(text) => {
                    let body = Body::AgentThinking { text, origin: origin() };
                    self.push(Draft { id: id_of("agent.thinking"), step, body })?;
                }
                LoopEvent::ToolUse { name, input, effect, asks } => {
                    let permission = if asks { Permission::Ask } else { Permission::Allow };
                    self.tool_use(step, name, input, effect, permission)?;
                }
                LoopEvent::CustomToolUse { name, input } => {
                    let body = Body::AgentCustomToolUse { name, input, kind: CallKind::Custom, origin: origin() };
                    self.push(Draft::of_step(step, body))?;
                }
                LoopEvent::ToolStarted(call) => {
                    let step = self.open_call(call)?.step;
                    self.push(Draft::of_step(step, Body::ToolStarted { tool_use_id: call }))?;
                }
                LoopEvent::ToolResult { call, content, is_error } => {
                    let outcome = if is_error { Outcome::Failed } else { Outcome::Done };
                    let draft = finished(self.open_call(call)?, Done { content, outcome });
                    self.push(draft)?;
                }
                LoopEvent::Callback { label, life } => {
                    let callback = CallbackId::from_bits(rand::random());
                    let expires_at = self.now.after(life);
                    self.push(Draft::new(Body::CallbackCreated { callback, label, expires_at }))?;
                    self.callbacks.push(callback);
                }
                LoopEvent::Usage { model, usage, cost_usd_micros } => {
                    models.pop_front();
                    let span = match span.take() {
                        Some(span) => span,
                        None => self.begin_span(model.clone())?,
                    };
                    let assumed = Estimate::default();
                    let end = Body::SpanEnd { span, model, is_error: false, usage, cost_usd_micros, assumed };
                    self.push(Draft::of_step(self.session.last_step, end))?;
                }
                LoopEvent::Error(message) => {
                    let body =
                        Body::Error { class: Class::Request, message, retrying: true, request_id: None, limit: None };
                    self.push(Draft::new(body))?;
                }
            }
        }
        Ok(())
    }

    fn begin_span(&mut self, model: String) -> Result<EventId> {
        let step = self.session.last_step + 1;
        let start = Body::SpanStart { model, attempt: 1, instead_of: None, sent: Sent::default() };
        self.push(Draft::of_step(step, start))
    }

    fn tool_use(&mut self, step: u64, name: String, input: Json, effect: Effect, permission: Permission) -> Result<()> {
        let origin = Origin { dialect: "external".into(), ..Origin::default() };
        let kind = CallKind::Sandbox;
        let body = Body::AgentToolUse { name, input, kind, effect, permission, malformed: None, origin };
        self.push(Draft::of_step(step, body)).map(drop)
    }

    fn open_call(&self, id: EventId) -> Result<&Call> {
        self.session.call(id).ok_or_else(|| {
            let message =
                format!("{id} is no open call of session {}: it has its result, or never was one", self.session.id);
            ApiError::new(Code::CheckpointRefused, message)
        })
    }

    /// The rows of what becomes of the lease.
    fn settle(&mut self, then: LoopThen) -> Result<Then> {
        let asks = |call: &Call| matches!(call.state, CallState::NeedsAnswer { .. });
        match then {
            LoopThen::Keep => Ok(Then::Keep),
            LoopThen::Yield => Ok(Then::Yield),
            // Whoever is asked ends the turn by answering.
            LoopThen::Idle if !self.session.calls.is_empty() && self.session.calls.iter().all(asks) => Ok(Then::Keep),
            LoopThen::Idle if !self.session.calls.is_empty() => {
                let open = self.session.calls.iter().filter(|call| !asks(call));
                let open: Vec<String> = open.map(|call| call.id.to_string()).collect();
                let message = format!("then: calls have no result yet: {}", open.join(", "));
                Err(ApiError::new(Code::CheckpointRefused, message))
            }
            LoopThen::Idle => {
                if self.session.position != Position::Idle {
                    self.push(Draft::new(Body::StatusIdle { stop: Stop::EndTurn }))?;
                }
                Ok(Then::Park)
            }
            LoopThen::Finish => {
                let drafts = ended(&self.session, End::Done);
                self.push_all(drafts)?;
                Ok(Then::Park)
            }
            LoopThen::Wait { callback, until } => {
                let kind = match callback {
                    None => WaitKind::Timer,
                    Some(callback) => {
                        let Some(open) = self.session.callback(callback) else {
                            let message = format!("then.callback_id: {callback} is no open callback of this session");
                            return Err(ApiError::new(Code::CheckpointRefused, message));
                        };
                        // The answer was quicker than the wait (case O-051).
                        if open.received_seq.is_some() {
                            return Ok(Then::Keep);
                        }
                        WaitKind::Callback { callback }
                    }
                };
                let until = until.map(|until| match until {
                    Until::After(millis) => self.now.after(millis),
                    Until::At(at) => at,
                });
                let wait = Wait { kind, since: self.now, until, calls: Vec::new() };
                self.push(Draft::new(Body::WaitStarted { wait }))?;
                Ok(Then::Park)
            }
        }
    }

    /// Goes on until the loop has something to do, or nothing is due and the session is let go.
    async fn advance(&mut self) -> Result<Due> {
        loop {
            self.take_inputs()?;
            let action = next(&self.session, &self.agent.policies, self.now);
            if let Action::Record(drafts) = action {
                self.push_all(drafts)?;
                continue;
            }
            let due = self.due_of(&action);
            let then = if due == Due::Nothing { Then::Park } else { Then::Keep };
            if self.pending.is_empty() && self.consumed == 0 && then == Then::Keep {
                return Ok(due);
            }
            let is_held = self.commit(then).await?;
            if !is_held {
                return Ok(Due::Nothing);
            }
            if self.inbox.is_empty() && due != Due::Nothing {
                return Ok(due);
            }
        }
    }

    /// Takes what waits in the inbox into the log; a cancel or an archive ends the session.
    fn take_inputs(&mut self) -> Result<()> {
        if self.session.has_ended() {
            return Ok(());
        }
        let inputs: Vec<(u64, Input)> = self.inbox.drain(..).collect();
        let Some((position, _)) = inputs.last() else { return Ok(()) };
        self.consumed = *position;
        let inputs: Vec<Input> = inputs.into_iter().map(|(_, input)| input).collect();
        let is_end = |input: &&Input| matches!(input.body, InputBody::Cancel | InputBody::Archive);
        let drafts = match inputs.iter().find(is_end).map(|input| &input.body) {
            Some(InputBody::Cancel) => cancelled(&self.session, FENCED),
            Some(_) => ended(&self.session, End::Done),
            None => {
                self.taken.extend(inputs.iter().map(|input| input.id));
                intake(&self.session, &inputs, self.now)
            }
        };
        self.push_all(drafts)
    }

    fn push(&mut self, draft: Draft) -> Result<EventId> {
        if let Some(told) = usage_due(&self.session, &draft.body) {
            self.append(told)?;
        }
        self.append(draft)
    }

    fn push_all(&mut self, drafts: Vec<Draft>) -> Result<()> {
        drafts.into_iter().try_for_each(|draft| self.push(draft).map(drop))
    }

    fn append(&mut self, draft: Draft) -> Result<EventId> {
        let id = draft.id.unwrap_or_else(|| EventId::from_bits(self.state.new_bits()));
        let event = Event { id, seq: self.session.last_seq + 1, at: self.now, step: draft.step, body: draft.body };
        apply(&mut self.session, &event).map_err(|Invalid { reason, .. }| {
            ApiError::new(Code::CheckpointRefused, format!("session {}: {reason}", self.session.id))
        })?;
        self.pending.push(event);
        Ok(id)
    }

    /// Commits what is pending; returns whether the lease is still held. A lost reply is asked for again with
    /// the same id (hazard Z-20).
    async fn commit(&mut self, then: Then) -> Result<bool> {
        let commit_id = self.commit_id;
        self.commit_id = following(commit_id);
        let checkpoint = Checkpoint {
            lease: self.lease.clone(),
            commit_id,
            events: std::mem::take(&mut self.pending),
            session: self.session.clone(),
            consumed: std::mem::take(&mut self.consumed),
            then,
        };
        let mut tries = 0;
        let committed = loop {
            match self.state.store().commit(checkpoint.clone()).await {
                Ok(committed) => break committed,
                Err(error) if error.kind == Kind::Retry && tries < MAX_COMMIT_RETRIES => {
                    tries += 1;
                    tokio::time::sleep(COMMIT_RETRY).await;
                }
                Err(error) => return Err(lost(error, &self.lease)),
            }
        };
        self.written.extend(checkpoint.events);
        self.inbox = committed.inbox.into();
        self.now = committed.now;
        Ok(committed.is_held)
    }

    /// The lease as its holder sees it.
    pub(crate) fn show(self, due: Due, tail: Option<Vec<Event>>, expires_at: Option<Timestamp>) -> WireLease {
        let wire = |event: &Event| to_value(&self.state.shown(self.session.id, event));
        let inbox = self.written.iter().filter(|event| self.taken.contains(&event.id)).map(wire).collect();
        let config = &self.state.config;
        let callback = |id: &CallbackId| {
            let token = callback::token(&config.installation_key, self.session.id, *id);
            let url = format!("{}{}", config.public_url.trim_end_matches('/'), callback::path(&token));
            WireCallback { callback_id: id.to_string(), url }
        };
        let ticket = LeaseTicket { session: self.session.id, epoch: self.lease.epoch, nonce: self.lease.nonce };
        WireLease {
            id: ticket.to_id(),
            session_id: self.session.id.to_string(),
            held: due != Due::Nothing,
            expires_at: expires_at.filter(|_| due != Due::Nothing).map(tenure_api::time::write),
            epoch: self.lease.epoch,
            seq: self.session.last_seq,
            due: match due {
                Due::Model => "model".into(),
                Due::Tools => "tools".into(),
                Due::Nothing => "nothing".into(),
            },
            calls: self.session.calls.iter().map(show_call).collect(),
            events: tail.as_ref().unwrap_or(&self.written).iter().map(wire).collect(),
            inbox,
            callbacks: self.callbacks.iter().map(callback).collect(),
        }
    }

    pub(crate) fn lease(&self) -> &Lease {
        &self.lease
    }

    /// Says that a request was a repeat: these rows it wrote when it came first.
    pub(crate) fn repeated(&mut self, rows: Vec<Event>) {
        self.written = rows;
    }

    /// What is due in the head as it is.
    pub(crate) fn due(&self) -> Due {
        self.due_of(&next(&self.session, &self.agent.policies, self.now))
    }

    fn due_of(&self, action: &Action) -> Due {
        let session = &self.session;
        let is_free = !session.has_ended() && !session.is_paused && session.wait.is_none();
        match action {
            Action::CallModel { .. } => Due::Model,
            Action::RunCalls(_) => Due::Tools,
            // The core would wait for the effect that runs; here it is the loop that runs it.
            Action::Park if is_free && session.calls.iter().any(|call| call.state == CallState::Started) => Due::Tools,
            Action::Record(_) | Action::Park => Due::Nothing,
        }
    }
}

fn show_call(call: &Call) -> WireCall {
    let state = match call.state {
        CallState::Ready => "ready",
        CallState::NeedsAnswer { .. } => "needs_answer",
        CallState::Started => "started",
        CallState::Waiting { .. } => "waiting",
    };
    WireCall { tool_use_id: call.id.to_string(), name: call.name.clone(), state: state.into() }
}

fn to_value(event: &WireEvent) -> serde_json::Value {
    serde_json::to_value(event).expect("an event is always JSON")
}

/// The id of the commit after this one in the same request.
pub(crate) fn following(id: LeaseId) -> LeaseId {
    LeaseId::from_bits(id.bits().wrapping_add(1))
}

/// An error of the store as the holder of a lease reads it.
pub(crate) fn lost(error: tenure_store::Error, lease: &Lease) -> ApiError {
    match error.kind {
        Kind::Fenced => lease_lost(lease.session),
        _ => error.into(),
    }
}

pub(crate) fn lease_lost(session: tenure_core::SessionId) -> ApiError {
    let message = format!("the lease of session {session} is gone: it ran out, was let go, or the session moved on");
    ApiError::new(Code::LeaseLost, message)
}
