//! Checks while the world runs, and what the checks at its end need to know: every commit, lease, effect
//! and acknowledgement, as they really were, whoever was told what.

use std::collections::{BTreeMap, BTreeSet};
use tenure_core::{Body, Call, CallKind, Decision, Event, EventId, InputBody, LeaseId, NodeId, SessionId, Timestamp};
use tenure_store::{Checkpoint, Committed, Error, Kind, Leased, SessionView, State};

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which promise, in a word.
    pub promise: &'static str,
    /// What happened.
    pub what: String,
}

/// What really happened to a session.
#[derive(Debug, Default)]
pub(crate) struct Shadow {
    /// Its log, put together from the commits that were applied.
    pub(crate) log: Vec<Event>,
    commits: BTreeSet<LeaseId>,
    holders: BTreeMap<u64, NodeId>,
    /// How often each call was carried out.
    pub(crate) effects: BTreeMap<EventId, u32>,
    /// Model calls by step and attempt.
    model_calls: BTreeMap<(u64, u32), u32>,
    /// Tokens of answers that the provider sent to their end.
    pub(crate) tokens: u64,
    /// Inputs that were acknowledged, in the order of the acknowledgements of their sender.
    pub(crate) acknowledged: Vec<(EventId, InputBody)>,
    /// Ids of all inputs that were ever sent.
    pub(crate) sent: BTreeSet<EventId>,
    /// The answer of each call that was acknowledged first.
    pub(crate) answers: BTreeMap<EventId, EventId>,
}

/// Sees everything, and remembers the first broken promise.
#[derive(Debug, Default)]
pub(crate) struct Referee {
    pub(crate) sessions: BTreeMap<SessionId, Shadow>,
    pub(crate) violation: Option<Violation>,
}

impl Referee {
    pub(crate) fn of(&mut self, session: SessionId) -> &mut Shadow {
        self.sessions.entry(session).or_default()
    }

    pub(crate) fn broken(&mut self, promise: &'static str, what: impl Into<String>) {
        self.violation.get_or_insert(Violation { promise, what: what.into() });
    }

    /// A lease was given, whether or not its node learns of it.
    pub(crate) fn leased(&mut self, leased: &Leased) {
        let lease = &leased.lease;
        let first = *self.of(lease.session).holders.entry(lease.epoch).or_insert(lease.node);
        if first != lease.node {
            let what = format!("{} epoch {} was given to {first} and to {}", lease.session, lease.epoch, lease.node);
            self.broken("P5 one holder for each epoch", what);
        }
    }

    /// A commit was decided; `before` is the session as it was right before.
    pub(crate) fn committed(
        &mut self,
        checkpoint: &Checkpoint,
        before: &SessionView,
        after: &SessionView,
        result: &Result<Committed, Error>,
    ) {
        let lease = &checkpoint.lease;
        let is_repeat = self.of(lease.session).commits.contains(&checkpoint.commit_id);
        let is_current =
            before.state == State::Leased && before.epoch == lease.epoch && before.node == Some(lease.node);
        match result {
            Ok(_) if is_repeat => {}
            Ok(_) if !is_current => {
                let what = format!(
                    "{}: a commit of epoch {} was taken while the session was {:?} in epoch {}",
                    lease.session, lease.epoch, before.state, before.epoch
                );
                self.broken("P5 an old holder changes nothing", what);
            }
            Ok(_) => {
                let shadow = self.of(lease.session);
                shadow.commits.insert(checkpoint.commit_id);
                shadow.log.extend(checkpoint.events.iter().cloned());
                if after.state == State::Parked && after.inbox_len > 0 {
                    let what =
                        format!("{} parked at seq {} over a waiting input", lease.session, after.session.last_seq);
                    self.broken("P6 no lost wake-up", what);
                }
            }
            Err(error) if error.kind == Kind::Invalid && is_current && !is_repeat => {
                self.broken("P5 a holder may commit", format!("{}: {error}", lease.session));
            }
            Err(_) => {}
        }
    }

    /// A model is called.
    pub(crate) fn model_called(&mut self, session: SessionId, step: u64, attempt: u32) {
        let shadow = self.of(session);
        let is_begun = |event: &Event| match &event.body {
            Body::SpanStart { attempt: begun, .. } => event.step == step && *begun == attempt,
            _ => false,
        };
        let begun = shadow.log.iter().filter(|event| is_begun(event)).count();
        let calls = shadow.model_calls.entry((step, attempt)).or_default();
        *calls += 1;
        if *calls as usize > begun {
            let what =
                format!("{session}: call {calls} of attempt {attempt} of step {step}, and its log tells of {begun}");
            self.broken("P3 intent before effect", what);
        }
    }

    /// The provider sent an answer to its end.
    pub(crate) fn answered(&mut self, session: SessionId, tokens: u64) {
        self.of(session).tokens += tokens;
    }

    /// A call is carried out now.
    pub(crate) fn carried_out(&mut self, session: SessionId, call: &Call) {
        let shadow = self.of(session);
        let is_told = shadow.log.iter().any(|event| event.id == call.id);
        let is_started = shadow
            .log
            .iter()
            .any(|event| matches!(event.body, Body::ToolStarted { tool_use_id } if tool_use_id == call.id));
        *shadow.effects.entry(call.id).or_default() += 1;
        if !is_told || !is_started && !call.effect.may_repeat() {
            let what = format!("{session}: {} {} ran before its log told of it", call.name, call.id);
            self.broken("P3 intent before effect", what);
        }
    }

    /// The checks of a log at the end.
    pub(crate) fn check_log(&mut self, session: SessionId, view: &SessionView, log: &[Event]) {
        for (place, event) in (1..).zip(log) {
            if event.seq != place {
                self.broken("P12 no gap in the log", format!("{session}: seq {} at place {place}", event.seq));
            }
        }
        let shadow = self.of(session);
        if shadow.log != log {
            let what = format!("{session}: {} rows were committed, the log has {}", shadow.log.len(), log.len());
            self.broken("P12 the log is what was committed", what);
            return;
        }
        self.check_inputs(session, view, log);
        self.check_effects(session, log);
    }

    /// Every acknowledged input is there once, in order, and nothing is there that nobody sent.
    fn check_inputs(&mut self, session: SessionId, view: &SessionView, log: &[Event]) {
        let shadow = self.of(session);
        let mut problems = Vec::new();
        let mut seen: BTreeMap<EventId, usize> = BTreeMap::new();
        for (place, event) in log.iter().enumerate() {
            if seen.insert(event.id, place).is_some() {
                problems.push(("P12 each event once", format!("{} is there twice", event.id)));
            }
        }
        if !view.session.has_ended() {
            let messages = shadow.acknowledged.iter().filter(|(_, body)| matches!(body, InputBody::Message { .. }));
            let mut last = None;
            for (id, _) in messages {
                match seen.get(id) {
                    None => problems.push(("P1 an acknowledged input is kept", format!("message {id} is gone"))),
                    Some(place) if last.is_some_and(|last| last > place) => {
                        problems.push(("P1 inputs stay in order", format!("message {id} came before an earlier one")));
                    }
                    Some(place) => last = Some(place),
                }
            }
        }
        let was_cancelled = shadow.acknowledged.iter().any(|(_, body)| *body == InputBody::Cancel);
        if was_cancelled && !view.session.has_ended() {
            problems.push(("P15 cancel cancels", "an acknowledged cancel did not end it".to_owned()));
        }
        for event in log {
            let (Body::UserMessage { .. }
            | Body::UserInterrupt
            | Body::UserToolConfirmation { .. }
            | Body::UserCustomToolResult { .. }) = &event.body
            else {
                continue;
            };
            // The engine itself denies what nobody answered in time.
            let is_ours = matches!(event.body, Body::UserToolConfirmation { .. });
            if !is_ours && !shadow.sent.contains(&event.id) {
                problems.push(("P1 nothing is made up", format!("nobody sent {}", event.id)));
            }
            if let Some(first) = event.body.answers().and_then(|call| shadow.answers.get(&call))
                && *first != event.id
            {
                let what = format!("{} counts, and {first} was acknowledged before it", event.id);
                problems.push(("P6 the first answer wins", what));
            }
        }
        for (promise, what) in problems {
            self.broken(promise, format!("{session}: {what}"));
        }
    }

    /// What the log says of each call agrees with how often it was carried out.
    fn check_effects(&mut self, session: SessionId, log: &[Event]) {
        let shadow = self.of(session);
        let mut problems = Vec::new();
        let mut results: BTreeMap<EventId, Vec<&Body>> = BTreeMap::new();
        let mut allowed: BTreeMap<EventId, u32> = BTreeMap::new();
        for event in log {
            match &event.body {
                Body::AgentToolResult { tool_use_id, .. } | Body::UserCustomToolResult { tool_use_id, .. } => {
                    results.entry(*tool_use_id).or_default().push(&event.body);
                }
                Body::UserToolConfirmation { tool_use_id, decision: Decision::Allow } => {
                    *allowed.entry(*tool_use_id).or_default() += 1;
                }
                _ => {}
            }
        }
        for event in log {
            let Body::AgentToolUse { name, kind: CallKind::Sandbox, effect, .. } = &event.body else { continue };
            let runs = shadow.effects.get(&event.id).copied().unwrap_or(0);
            let results = results.get(&event.id).map(Vec::as_slice).unwrap_or_default();
            if results.len() > 1 {
                problems.push(("P4 one result for each call", format!("{} has {}", event.id, results.len())));
            }
            // A person who is asked about an unknown outcome may allow one more run.
            let most = 1 + allowed.get(&event.id).copied().unwrap_or(0);
            if !effect.may_repeat() && runs > most {
                problems.push(("P3 an effect happens once", format!("{name} {} ran {runs} times", event.id)));
            }
            let Some(Body::AgentToolResult { outcome, .. }) = results.first() else { continue };
            use tenure_core::Outcome;
            let is_right = match outcome {
                Outcome::Done => runs >= 1,
                // Of a call that may be repeated nothing is written down when it starts, so the log cannot
                // tell, after its worker died and the turn was closed, that it ran.
                Outcome::NotRun if effect.may_repeat() => true,
                Outcome::Denied | Outcome::NotRun | Outcome::Failed => runs == 0,
                Outcome::Unknown | Outcome::Interrupted => true,
            };
            if !is_right {
                let what = format!("{name} {} ran {runs} times and the log says {outcome:?}", event.id);
                problems.push(("P3 the log tells what happened", what));
            }
        }
        for (promise, what) in problems {
            self.broken(promise, format!("{session}: {what}"));
        }
    }

    /// A session did not come to rest.
    pub(crate) fn restless(&mut self, view: &SessionView, now: Timestamp) {
        let what = format!(
            "{} is {:?} since {} ms, {:?}, with {} inputs; it waits for {:?}, at {:?}",
            view.session.id,
            view.state,
            now.since(view.state_since),
            view.session.phase(),
            view.inbox_len,
            view.session.wait,
            view.session.position,
        );
        self.broken("P14 every session comes to rest", what);
    }
}
