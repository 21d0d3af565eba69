//! Drives the core like a worker does, with answers that the test gives.

use tenure_core::failure::{Class, Failure};
use tenure_core::*;

/// A session that is driven by hand, with all its rows.
pub(crate) struct Driven {
    pub(crate) session: Session,
    pub(crate) log: Vec<Event>,
    pub(crate) now: Timestamp,
    pub(crate) policies: Policies,
    pub(crate) tools: Vec<(&'static str, ToolFacts)>,
    next_id: u128,
    taken: usize,
}

pub(crate) fn facts(effect: Effect, permission: Permission) -> ToolFacts {
    ToolFacts { kind: CallKind::Sandbox, effect, permission }
}

pub(crate) fn text(text: &str) -> BlockKind {
    BlockKind::Text { text: text.into() }
}

pub(crate) fn tool(name: &str, input: &str) -> BlockKind {
    BlockKind::ToolUse {
        provider_id: "p".into(),
        name: name.into(),
        input: Json::parse(input).map_err(|error| error.to_string()),
    }
}

pub(crate) fn failure(class: Class) -> Failure {
    Failure {
        class,
        status: Some(529),
        kind: "overloaded_error".into(),
        message: "Overloaded".into(),
        retry_after: None,
        request_id: None,
    }
}

impl Driven {
    pub(crate) fn new() -> Self {
        let agent = AgentRef { id: AgentId::from_bits(1), version: 1 };
        let session = Session::new(
            SessionId::from_bits(1),
            TenantId::default_tenant(),
            agent,
            EnvironmentId::from_bits(1),
            Timestamp(0),
        );
        let tools = vec![
            ("bash", facts(Effect::Once, Permission::Allow)),
            ("read", facts(Effect::Pure, Permission::Allow)),
            ("push", facts(Effect::Once, Permission::Ask)),
            ("form", ToolFacts { kind: CallKind::Custom, effect: Effect::Once, permission: Permission::Allow }),
            ("ask_user", ToolFacts { kind: CallKind::AskUser, effect: Effect::Once, permission: Permission::Allow }),
            ("sleep", ToolFacts { kind: CallKind::Sleep, effect: Effect::Pure, permission: Permission::Allow }),
            (
                "wait_for_callback",
                ToolFacts { kind: CallKind::WaitForCallback, effect: Effect::Pure, permission: Permission::Allow },
            ),
        ];
        Self {
            session,
            log: Vec::new(),
            now: Timestamp(1_000),
            policies: Policies::default(),
            tools,
            next_id: 100,
            taken: 0,
        }
    }

    pub(crate) fn id(&mut self) -> EventId {
        self.next_id += 1;
        EventId::from_bits(self.next_id)
    }

    pub(crate) fn record(&mut self, drafts: Vec<Draft>) {
        for draft in drafts {
            let id = draft.id.unwrap_or_else(|| self.id());
            let event = Event { id, seq: self.session.last_seq + 1, at: self.now, step: draft.step, body: draft.body };
            apply(&mut self.session, &event).unwrap();
            self.log.push(event);
        }
    }

    pub(crate) fn input(&mut self, body: InputBody) {
        let input = Input { id: self.id(), at: self.now, body };
        let drafts = intake(&self.session, &[input], self.now);
        self.record(drafts);
    }

    pub(crate) fn say(&mut self, message: &str) {
        self.input(InputBody::Message { content: vec![Block::Text(message.into())] });
    }

    /// Records bookkeeping until an effect is due or the session parks.
    pub(crate) fn settle(&mut self) -> Action {
        for _ in 0..20 {
            match next(&self.session, &self.policies, self.now) {
                Action::Record(drafts) => self.record(drafts),
                action => return action,
            }
        }
        panic!("the core does not come to rest: {:?}", self.session);
    }

    /// Begins the model call that is due.
    pub(crate) fn begin(&mut self) {
        let Action::CallModel { step, attempt } = self.settle() else {
            panic!("no model call is due: {:?}", self.session)
        };
        self.record(vec![Draft::of_step(
            step,
            Body::SpanStart { model: "script/x".into(), attempt, instead_of: None, sent: Sent::default() },
        )]);
    }

    pub(crate) fn answer(&mut self, stop: AnswerStop, blocks: Vec<BlockKind>) {
        self.begin();
        let blocks =
            blocks.into_iter().map(|kind| AnswerBlock { id: Some(self.id()), kind, raw: Vec::new() }).collect();
        let usage = Usage { input: 10, output: 5, ..Usage::default() };
        let answer =
            Answer { dialect: "script".into(), model: "script/x".into(), blocks, stop, usage, request_id: None };
        let tools = self.tools.clone();
        let find = |name: &str| tools.iter().find(|(known, _)| *known == name).map(|(_, facts)| *facts);
        let drafts = answered(&self.session, answer, None, &find, "bash, read");
        self.record(drafts);
    }

    pub(crate) fn fail(&mut self, class: Class) {
        self.begin();
        let attempt = Attempt { model: "script/x", ..Attempt::default() };
        let drafts = failed(&self.session, &failure(class), &attempt, &self.policies, u64::MAX, self.now);
        self.record(drafts);
    }

    /// Runs the calls that are due, each with this result.
    pub(crate) fn run(&mut self, result: &str) {
        let Action::RunCalls(ids) = self.settle() else { panic!("no call is due: {:?}", self.session) };
        for id in ids {
            let call = self.session.call(id).unwrap().clone();
            if !call.effect.may_repeat() {
                self.record(vec![Draft::of_step(call.step, Body::ToolStarted { tool_use_id: id })]);
            }
            self.record(vec![finished(&call, Done::text(Outcome::Done, result))]);
        }
    }

    pub(crate) fn open(&self, name: &str) -> EventId {
        self.session.calls.iter().find(|call| call.name == name).unwrap().id
    }

    /// Names of the events since the last look, in the words of the API.
    pub(crate) fn news(&mut self) -> Vec<&'static str> {
        let names = self.log[self.taken..].iter().map(|event| name(&event.body)).collect();
        self.taken = self.log.len();
        names
    }
}

pub(crate) fn name(body: &Body) -> &'static str {
    match body {
        Body::UserMessage { .. } => "user.message",
        Body::UserInterrupt => "user.interrupt",
        Body::UserToolConfirmation { .. } => "user.tool_confirmation",
        Body::UserCustomToolResult { .. } => "user.custom_tool_result",
        Body::SystemMessage { .. } => "system.message",
        Body::AgentMessage { .. } => "agent.message",
        Body::AgentThinking { .. } => "agent.thinking",
        Body::AgentToolUse { .. } => "agent.tool_use",
        Body::AgentCustomToolUse { .. } => "agent.custom_tool_use",
        Body::AgentToolResult { .. } => "agent.tool_result",
        Body::ToolStarted { .. } => "tool_started",
        Body::StatusRunning => "running",
        Body::StatusIdle { stop: Stop::EndTurn } => "idle end_turn",
        Body::StatusIdle { stop: Stop::RequiresAction(_) } => "idle requires_action",
        Body::StatusIdle { stop: Stop::RetriesExhausted } => "idle retries_exhausted",
        Body::StatusIdle { stop: Stop::BudgetReached } => "idle budget_reached",
        Body::StatusIdle { stop: Stop::Refusal } => "idle refusal",
        Body::StatusRescheduled => "rescheduled",
        Body::StatusTerminated { .. } => "terminated",
        Body::Error { .. } => "error",
        Body::SpanStart { .. } => "span start",
        Body::SpanEnd { is_error: false, .. } => "span end",
        Body::SpanEnd { is_error: true, .. } => "span failed",
        Body::Condition { .. } => "condition",
        Body::WaitStarted { .. } => "wait_started",
        Body::WaitResolved { .. } => "wait_resolved",
        Body::CallbackCreated { .. } => "callback_created",
        Body::CallbackReceived { .. } => "callback_received",
        Body::ContextCompacted { .. } => "compacted",
        Body::BudgetUpdated { .. } => "budget_updated",
        Body::Updated { .. } => "updated",
        Body::UsageSnapshot { .. } => "usage",
        Body::EnvironmentStarted { .. } => "environment.started",
        Body::EnvironmentReset { .. } => "environment.reset",
        Body::Forked { .. } => "forked",
        Body::SnapshotCreated { .. } => "snapshot",
    }
}
