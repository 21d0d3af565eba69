//! Stored heads.

use super::event::{ModelChoiceForm, callback_id, condition_id, event_id, snapshot_id};
use super::words::Word;
use super::{Form, position};
use crate::agent::AgentRef;
use crate::budget::{Budget, Estimate, Limits};
use crate::call::{Call, CallState};
use crate::event::{End, Purpose, Sent, Stop};
use crate::fork::ForkedFrom;
use crate::id::TenantId;
use crate::session::{Callback, Compaction, Files, Position, Repeats, Retry, Session, Status};
use crate::size::{Learnt, Size};
use crate::time::Timestamp;
use crate::usage::Usage;
use crate::wait::{Wait, WaitKind};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

pub(super) fn is_zero<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "k", rename_all = "snake_case")]
pub(super) enum StopForm {
    EndTurn,
    RequiresAction { i: Vec<String> },
    RetriesExhausted,
    BudgetReached,
    Refusal,
}

impl Form<Stop> for StopForm {
    fn of(value: &Stop) -> Self {
        match value {
            Stop::EndTurn => Self::EndTurn,
            Stop::RequiresAction(ids) => Self::RequiresAction { i: ids.iter().map(ToString::to_string).collect() },
            Stop::RetriesExhausted => Self::RetriesExhausted,
            Stop::BudgetReached => Self::BudgetReached,
            Stop::Refusal => Self::Refusal,
        }
    }

    fn to(self) -> Result<Stop, String> {
        Ok(match self {
            Self::EndTurn => Stop::EndTurn,
            Self::RequiresAction { i } => {
                Stop::RequiresAction(i.iter().map(|id| event_id(id)).collect::<Result<_, _>>()?)
            }
            Self::RetriesExhausted => Stop::RetriesExhausted,
            Self::BudgetReached => Stop::BudgetReached,
            Self::Refusal => Stop::Refusal,
        })
    }
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "k", rename_all = "snake_case")]
pub(super) enum EndForm {
    Done,
    Failed { r: String },
    Cancelled { p: String },
}

impl Form<End> for EndForm {
    fn of(value: &End) -> Self {
        match value {
            End::Done => Self::Done,
            End::Failed { reason } => Self::Failed { r: reason.clone() },
            End::Cancelled { processes } => Self::Cancelled { p: processes.clone() },
        }
    }

    fn to(self) -> Result<End, String> {
        Ok(match self {
            Self::Done => End::Done,
            Self::Failed { r } => End::Failed { reason: r },
            Self::Cancelled { p } => End::Cancelled { processes: p },
        })
    }
}

#[derive(Default, PartialEq, Serialize, Deserialize)]
pub(super) struct UsageForm {
    #[serde(default, skip_serializing_if = "is_zero")]
    i: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    o: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    r: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    w: u64,
}

impl Form<Usage> for UsageForm {
    fn of(value: &Usage) -> Self {
        Self { i: value.input, o: value.output, r: value.cache_read, w: value.cache_write }
    }

    fn to(self) -> Result<Usage, String> {
        Ok(Usage { input: self.i, output: self.o, cache_read: self.r, cache_write: self.w })
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct LimitsForm {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    s: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    t: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    c: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    w: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    f: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    r: Option<u64>,
}

impl Form<Limits> for LimitsForm {
    fn of(value: &Limits) -> Self {
        Self {
            s: value.steps,
            t: value.tokens,
            c: value.cost_usd_micros,
            w: value.wall,
            f: value.failures,
            r: value.identical_calls,
        }
    }

    fn to(self) -> Result<Limits, String> {
        Ok(Limits {
            steps: self.s,
            tokens: self.t,
            cost_usd_micros: self.c,
            wall: self.w,
            failures: self.f,
            identical_calls: self.r,
        })
    }
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "k", rename_all = "snake_case")]
enum WaitKindForm {
    Timer,
    Action,
    Callback {
        c: String,
    },
    Backoff {
        c: String,
        a: u32,
    },
    Condition {
        c: String,
        m: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        i: Option<String>,
    },
    Upstream {
        c: String,
    },
    Budget {
        w: String,
    },
    Stuck,
    SetAside {
        r: String,
    },
}

#[derive(Serialize, Deserialize)]
pub(super) struct WaitForm {
    w: WaitKindForm,
    s: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    u: Option<i64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    i: Vec<String>,
}

impl Form<Wait> for WaitForm {
    fn of(value: &Wait) -> Self {
        let w = match &value.kind {
            WaitKind::Timer => WaitKindForm::Timer,
            WaitKind::Action => WaitKindForm::Action,
            WaitKind::Callback { callback } => WaitKindForm::Callback { c: callback.to_string() },
            WaitKind::Backoff { class, attempt } => WaitKindForm::Backoff { c: class.word().to_string(), a: *attempt },
            WaitKind::Condition { class, model, condition } => WaitKindForm::Condition {
                c: class.word().to_string(),
                m: model.clone(),
                i: condition.map(|id| id.to_string()),
            },
            WaitKind::Upstream { class } => WaitKindForm::Upstream { c: class.word().to_string() },
            WaitKind::Budget { which } => WaitKindForm::Budget { w: which.word().to_string() },
            WaitKind::Stuck => WaitKindForm::Stuck,
            WaitKind::SetAside { reason } => WaitKindForm::SetAside { r: reason.clone() },
        };
        let i = value.calls.iter().map(ToString::to_string).collect();
        Self { w, s: value.since.0, u: value.until.map(|until| until.0), i }
    }

    fn to(self) -> Result<Wait, String> {
        let kind = match self.w {
            WaitKindForm::Timer => WaitKind::Timer,
            WaitKindForm::Action => WaitKind::Action,
            WaitKindForm::Callback { c } => WaitKind::Callback { callback: callback_id(&c)? },
            WaitKindForm::Backoff { c, a } => WaitKind::Backoff { class: Word::of_word(&c)?, attempt: a },
            WaitKindForm::Condition { c, m, i } => WaitKind::Condition {
                class: Word::of_word(&c)?,
                model: m,
                condition: i.map(|id| condition_id(&id)).transpose()?,
            },
            WaitKindForm::Upstream { c } => WaitKind::Upstream { class: Word::of_word(&c)? },
            WaitKindForm::Budget { w } => WaitKind::Budget { which: Word::of_word(&w)? },
            WaitKindForm::Stuck => WaitKind::Stuck,
            WaitKindForm::SetAside { r } => WaitKind::SetAside { reason: r },
        };
        let calls = self.i.iter().map(|id| event_id(id)).collect::<Result<_, _>>()?;
        Ok(Wait { kind, since: Timestamp(self.s), until: self.u.map(Timestamp), calls })
    }
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "k", rename_all = "snake_case")]
enum PositionForm {
    Idle,
    Model,
    Calling { s: String, a: u32 },
    Tools,
    Ended { e: EndForm },
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "k", rename_all = "snake_case")]
enum StatusForm {
    Idle { s: StopForm },
    Running,
    Rescheduling,
    Terminated,
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "k", rename_all = "snake_case")]
enum CallStateForm {
    Ready,
    NeedsAnswer {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        d: Option<i64>,
    },
    Started,
    Waiting {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        u: Option<i64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        c: Option<String>,
    },
}

#[derive(Serialize, Deserialize)]
struct CallForm {
    i: String,
    q: u64,
    p: u64,
    n: String,
    k: String,
    f: String,
    s: CallStateForm,
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    w: bool,
}

impl Form<Call> for CallForm {
    fn of(value: &Call) -> Self {
        let s = match value.state {
            CallState::Ready => CallStateForm::Ready,
            CallState::NeedsAnswer { deadline } => CallStateForm::NeedsAnswer { d: deadline.map(|at| at.0) },
            CallState::Started => CallStateForm::Started,
            CallState::Waiting { until, callback } => {
                CallStateForm::Waiting { u: until.map(|at| at.0), c: callback.map(|id| id.to_string()) }
            }
        };
        Self {
            i: value.id.to_string(),
            q: value.seq,
            p: value.step,
            n: value.name.clone(),
            k: value.kind.word().to_string(),
            f: value.effect.word().to_string(),
            s,
            w: value.was_started,
        }
    }

    fn to(self) -> Result<Call, String> {
        let state = match self.s {
            CallStateForm::Ready => CallState::Ready,
            CallStateForm::NeedsAnswer { d } => CallState::NeedsAnswer { deadline: d.map(Timestamp) },
            CallStateForm::Started => CallState::Started,
            CallStateForm::Waiting { u, c } => {
                CallState::Waiting { until: u.map(Timestamp), callback: c.map(|id| callback_id(&id)).transpose()? }
            }
        };
        Ok(Call {
            id: event_id(&self.i)?,
            seq: self.q,
            step: self.p,
            name: self.n,
            kind: Word::of_word(&self.k)?,
            effect: Word::of_word(&self.f)?,
            state,
            was_started: self.w,
        })
    }
}

#[derive(Serialize, Deserialize)]
struct CallbackForm {
    i: String,
    x: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    r: Option<u64>,
}

#[derive(Serialize, Deserialize)]
struct BudgetForm {
    l: LimitsForm,
    #[serde(default, skip_serializing_if = "is_zero")]
    s: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    u: UsageForm,
    #[serde(default, skip_serializing_if = "is_zero")]
    c: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    n: bool,
    #[serde(default, skip_serializing_if = "is_zero")]
    d: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    et: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    ec: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    f: u64,
}

#[derive(Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct SizeForm {
    #[serde(default, skip_serializing_if = "is_zero")]
    t: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    m: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    n: u64,
}

impl Form<Size> for SizeForm {
    fn of(value: &Size) -> Self {
        Self { t: value.text_bytes, m: value.media_bytes, n: value.media }
    }

    fn to(self) -> Result<Size, String> {
        Ok(Size { text_bytes: self.t, media_bytes: self.m, media: self.n })
    }
}

#[derive(Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct EstimateForm {
    #[serde(default, skip_serializing_if = "is_zero")]
    t: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    c: Option<u64>,
}

impl EstimateForm {
    /// Whether it says nothing, and is left out.
    pub(super) fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

impl Form<Estimate> for EstimateForm {
    fn of(value: &Estimate) -> Self {
        Self { t: value.tokens, c: value.cost_usd_micros }
    }

    fn to(self) -> Result<Estimate, String> {
        Ok(Estimate { tokens: self.t, cost_usd_micros: self.c })
    }
}

#[derive(Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "k", rename_all = "snake_case")]
enum PurposeForm {
    #[default]
    Answer,
    Summary {
        f: u64,
        r: u64,
        b: u64,
    },
}

#[derive(Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct SentForm {
    #[serde(default, skip_serializing_if = "is_zero")]
    s: SizeForm,
    #[serde(default, skip_serializing_if = "is_zero")]
    i: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    r: EstimateForm,
    #[serde(default, skip_serializing_if = "is_zero")]
    p: PurposeForm,
}

impl SentForm {
    /// Whether it says nothing, and is left out.
    pub(super) fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

impl Form<Sent> for SentForm {
    fn of(value: &Sent) -> Self {
        let p = match value.purpose {
            Purpose::Answer => PurposeForm::Answer,
            Purpose::Summary { keep_from, room, before } => PurposeForm::Summary { f: keep_from, r: room, b: before },
        };
        Self { s: SizeForm::of(&value.size), i: value.input_tokens, r: EstimateForm::of(&value.reserved), p }
    }

    fn to(self) -> Result<Sent, String> {
        let purpose = match self.p {
            PurposeForm::Answer => Purpose::Answer,
            PurposeForm::Summary { f, r, b } => {
                Purpose::Summary { keep_from: position("keep_from", f)?, room: r, before: b }
            }
        };
        Ok(Sent { size: self.s.to()?, input_tokens: self.i, reserved: self.r.to()?, purpose })
    }
}

#[derive(Default, PartialEq, Serialize, Deserialize)]
struct LearntForm {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    m: String,
    #[serde(default, skip_serializing_if = "is_zero")]
    u: UsageForm,
    #[serde(default, skip_serializing_if = "is_zero")]
    s: SizeForm,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    t: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    b: Option<u64>,
}

impl Form<Learnt> for LearntForm {
    fn of(value: &Learnt) -> Self {
        Self {
            m: value.model.clone(),
            u: UsageForm::of(&value.usage),
            s: SizeForm::of(&value.size),
            t: value.max_tokens,
            b: value.refused_bytes,
        }
    }

    fn to(self) -> Result<Learnt, String> {
        Ok(Learnt { model: self.m, usage: self.u.to()?, size: self.s.to()?, max_tokens: self.t, refused_bytes: self.b })
    }
}

#[derive(Default, PartialEq, Serialize, Deserialize)]
struct CompactionForm {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    d: Option<String>,
    #[serde(default, skip_serializing_if = "is_zero")]
    t: u32,
    #[serde(default, skip_serializing_if = "is_zero")]
    f: u64,
}

impl Form<Compaction> for CompactionForm {
    fn of(value: &Compaction) -> Self {
        Self { d: value.due.map(|due| due.word().to_string()), t: value.tries, f: value.futile_tokens }
    }

    fn to(self) -> Result<Compaction, String> {
        let due = self.d.map(|due| Word::of_word(&due)).transpose()?;
        Ok(Compaction { due, tries: self.t, futile_tokens: self.f })
    }
}

#[derive(Default, PartialEq, Serialize, Deserialize)]
struct RetryForm {
    f: u32,
    e: u32,
    #[serde(default, skip_serializing_if = "is_zero")]
    r: bool,
}

#[derive(Default, PartialEq, Serialize, Deserialize)]
struct RepeatsForm {
    d: u64,
    c: u32,
    f: u32,
}

#[derive(Serialize, Deserialize)]
pub(super) struct SessionForm {
    id: String,
    tenant: String,
    agent: String,
    agent_v: u32,
    #[serde(default, skip_serializing_if = "is_zero")]
    models: ModelChoiceForm,
    env: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    title: String,
    at: i64,
    seq: u64,
    from: u64,
    step: u64,
    pos: PositionForm,
    st: StatusForm,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    calls: Vec<CallForm>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    wait: Option<WaitForm>,
    #[serde(default, skip_serializing_if = "is_zero")]
    paused: bool,
    budget: BudgetForm,
    #[serde(default, skip_serializing_if = "is_zero")]
    retry: RetryForm,
    #[serde(default, skip_serializing_if = "is_zero")]
    rep: RepeatsForm,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    cb: Vec<CallbackForm>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sent: Option<SentForm>,
    #[serde(default, skip_serializing_if = "is_zero")]
    learnt: LearntForm,
    #[serde(default, skip_serializing_if = "is_zero")]
    compaction: CompactionForm,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    queue: Option<String>,
    #[serde(default, skip_serializing_if = "is_zero")]
    files: FilesForm,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    forked: Option<ForkedForm>,
}

#[derive(PartialEq, Serialize, Deserialize)]
pub(super) struct ForkedForm {
    s: String,
    q: u64,
}

impl Form<ForkedFrom> for ForkedForm {
    fn of(value: &ForkedFrom) -> Self {
        Self { s: value.session.to_string(), q: value.seq }
    }

    fn to(self) -> Result<ForkedFrom, String> {
        let session = self.s.parse().map_err(|error: crate::IdError| error.to_string())?;
        Ok(ForkedFrom { session, seq: position("forked", self.q)? })
    }
}

#[derive(Default, PartialEq, Serialize, Deserialize)]
struct FilesForm {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    s: Option<String>,
    #[serde(default, skip_serializing_if = "is_zero")]
    q: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    e: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    d: bool,
}

impl Form<Files> for FilesForm {
    fn of(value: &Files) -> Self {
        Self { s: value.snapshot.map(|id| id.to_string()), q: value.snapshot_seq, e: value.epoch, d: value.is_dirty }
    }

    fn to(self) -> Result<Files, String> {
        let snapshot = self.s.map(|id| snapshot_id(&id)).transpose()?;
        Ok(Files { snapshot, snapshot_seq: self.q, epoch: self.e, is_dirty: self.d })
    }
}

impl Form<Session> for SessionForm {
    fn of(value: &Session) -> Self {
        Self {
            id: value.id.to_string(),
            tenant: value.tenant.0.clone(),
            agent: value.agent.id.to_string(),
            agent_v: value.agent.version,
            models: ModelChoiceForm::of(&value.models),
            env: value.environment.to_string(),
            title: value.title.clone(),
            at: value.created_at.0,
            seq: value.last_seq,
            from: value.context_from_seq,
            step: value.last_step,
            pos: match &value.position {
                Position::Idle => PositionForm::Idle,
                Position::Model => PositionForm::Model,
                Position::Calling { span, attempt } => PositionForm::Calling { s: span.to_string(), a: *attempt },
                Position::Tools => PositionForm::Tools,
                Position::Ended(end) => PositionForm::Ended { e: EndForm::of(end) },
            },
            st: match &value.status {
                Status::Idle(stop) => StatusForm::Idle { s: StopForm::of(stop) },
                Status::Running => StatusForm::Running,
                Status::Rescheduling => StatusForm::Rescheduling,
                Status::Terminated => StatusForm::Terminated,
            },
            calls: value.calls.iter().map(CallForm::of).collect(),
            wait: value.wait.as_ref().map(WaitForm::of),
            paused: value.is_paused,
            budget: BudgetForm {
                l: LimitsForm::of(&value.budget.limits),
                s: value.budget.steps,
                u: UsageForm::of(&value.budget.usage),
                c: value.budget.cost_usd_micros,
                n: value.budget.has_unpriced,
                et: value.budget.estimated_tokens,
                ec: value.budget.estimated_cost_usd_micros,
                f: value.budget.failures,
                d: value.budget.told_tokens,
            },
            retry: RetryForm { f: value.retry.failures, e: value.retry.empty, r: value.retry.is_repaired },
            rep: RepeatsForm { d: value.repeats.digest, c: value.repeats.calls, f: value.repeats.failures },
            cb: value
                .callbacks
                .iter()
                .map(|callback| CallbackForm {
                    i: callback.id.to_string(),
                    x: callback.expires_at.0,
                    r: callback.received_seq,
                })
                .collect(),
            sent: value.sent.as_ref().map(SentForm::of),
            learnt: LearntForm::of(&value.learnt),
            compaction: CompactionForm::of(&value.compaction),
            queue: value.queue.clone(),
            files: FilesForm::of(&value.files),
            forked: value.forked.as_ref().map(ForkedForm::of),
        }
    }

    fn to(self) -> Result<Session, String> {
        let id = |error: crate::IdError| error.to_string();
        let callback = |form: CallbackForm| {
            Ok(Callback { id: callback_id(&form.i)?, expires_at: Timestamp(form.x), received_seq: form.r })
        };
        let (seq, from) = (position("seq", self.seq)?, position("from", self.from)?);
        if from == 0 || from > seq + 1 {
            return Err(alloc::format!("from is {from}, which is no row of a log of {seq}"));
        }
        Ok(Session {
            id: self.id.parse().map_err(id)?,
            tenant: TenantId(self.tenant),
            agent: AgentRef { id: self.agent.parse().map_err(id)?, version: self.agent_v },
            models: self.models.to()?,
            environment: self.env.parse().map_err(id)?,
            title: self.title,
            created_at: Timestamp(self.at),
            last_seq: seq,
            context_from_seq: from,
            last_step: position("step", self.step)?,
            position: match self.pos {
                PositionForm::Idle => Position::Idle,
                PositionForm::Model => Position::Model,
                PositionForm::Calling { s, a } => Position::Calling { span: event_id(&s)?, attempt: a },
                PositionForm::Tools => Position::Tools,
                PositionForm::Ended { e } => Position::Ended(e.to()?),
            },
            status: match self.st {
                StatusForm::Idle { s } => Status::Idle(s.to()?),
                StatusForm::Running => Status::Running,
                StatusForm::Rescheduling => Status::Rescheduling,
                StatusForm::Terminated => Status::Terminated,
            },
            calls: self.calls.into_iter().map(Form::to).collect::<Result<_, _>>()?,
            wait: self.wait.map(Form::to).transpose()?,
            is_paused: self.paused,
            budget: Budget {
                limits: self.budget.l.to()?,
                steps: self.budget.s,
                usage: self.budget.u.to()?,
                cost_usd_micros: self.budget.c,
                has_unpriced: self.budget.n,
                estimated_tokens: self.budget.et,
                estimated_cost_usd_micros: self.budget.ec,
                failures: self.budget.f,
                told_tokens: self.budget.d,
            },
            retry: Retry { failures: self.retry.f, empty: self.retry.e, is_repaired: self.retry.r },
            repeats: Repeats { digest: self.rep.d, calls: self.rep.c, failures: self.rep.f },
            callbacks: self.cb.into_iter().map(callback).collect::<Result<_, String>>()?,
            sent: self.sent.map(Form::to).transpose()?,
            learnt: self.learnt.to()?,
            compaction: self.compaction.to()?,
            queue: self.queue,
            files: self.files.to()?,
            forked: self.forked.map(ForkedForm::to).transpose()?,
        })
    }
}
