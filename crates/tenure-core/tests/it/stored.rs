//! Stored forms: what was written once is read for ever, whatever is in it; what is damaged or newer
//! is said to be, and never panics.

use crate::random_log::log;
use proptest::prelude::*;
use std::collections::BTreeMap;
use tenure_core::condition::*;
use tenure_core::failure::Class;
use tenure_core::stored::*;
use tenure_core::*;

/// One line per record: its kind, a tab, its text. Lines are added, never changed.
const V1: &str = include_str!("../fixtures/stored-v1.txt");

fn id(bits: u128) -> EventId {
    EventId::from_bits(bits)
}

fn event(body: Body) -> Event {
    Event { id: id(5), seq: 9, at: Timestamp(11), step: 3, body }
}

fn text(text: &str) -> Vec<Block> {
    vec![Block::Text(text.to_owned())]
}

fn json(text: &str) -> Json {
    Json::parse(text).unwrap()
}

fn origin() -> Origin {
    Origin {
        dialect: "anthropic".into(),
        model: "a/m".into(),
        blocks: vec![json(r#"{"type":"thinking","big":12345678901234567890123}"#)],
    }
}

fn chosen_models() -> ModelChoice {
    ModelChoice { model: Some("b/n".into()), fallback_models: Some(vec!["c/o".into()]) }
}

fn waits() -> Vec<Wait> {
    let kinds = [
        WaitKind::Timer,
        WaitKind::Action,
        WaitKind::Callback { callback: CallbackId::from_bits(4) },
        WaitKind::Backoff { class: Class::RateLimit, attempt: 3 },
        WaitKind::Condition { class: Class::Quota, model: "a/m".into(), condition: None },
        WaitKind::Upstream { class: Class::Overflow },
        WaitKind::Budget { which: Which::Cost },
        WaitKind::Stuck,
        WaitKind::SetAside { reason: "why".into() },
        WaitKind::Condition {
            class: Class::RateLimit,
            model: "a/m".into(),
            condition: Some(ConditionId::from_bits(12)),
        },
    ];
    let wait = |kind| Wait { kind, since: Timestamp(1), until: Some(Timestamp(2)), calls: vec![id(7)] };
    kinds
        .into_iter()
        .map(wait)
        .chain([Wait { kind: WaitKind::Stuck, since: Timestamp(1), until: None, calls: Vec::new() }])
        .collect()
}

fn stops() -> [Stop; 5] {
    [Stop::EndTurn, Stop::RequiresAction(vec![id(7)]), Stop::RetriesExhausted, Stop::BudgetReached, Stop::Refusal]
}

fn ends() -> [End; 3] {
    [End::Done, End::Failed { reason: "r".into() }, End::Cancelled { processes: "killed".into() }]
}

/// At least one of each variant.
fn bodies() -> Vec<Body> {
    let tool_use_id = id(7);
    let media = Block::Media { kind: MediaKind::Image, json: json(r#"{"type":"image"}"#) };
    let usage = Usage { input: 1, output: 2, cache_read: 3, cache_write: 4 };
    let limits = Limits { steps: Some(1), cost_usd_micros: Some(3), wall: Some(4), ..Limits::NONE };
    let mut bodies = vec![
        Body::UserMessage { content: vec![Block::Text("a\0b \u{1F600}".into()), media] },
        Body::UserInterrupt,
        Body::UserToolConfirmation { tool_use_id, decision: Decision::Allow },
        Body::UserToolConfirmation { tool_use_id, decision: Decision::Deny { message: Some("no".into()) } },
        Body::UserCustomToolResult { tool_use_id, content: text("x"), is_error: true },
        Body::SystemMessage { content: text("x") },
        Body::AgentMessage { text: "hi".into(), origin: origin() },
        Body::AgentThinking { text: "hm".into(), origin: Origin::default() },
        Body::AgentCustomToolUse { name: "form".into(), input: json("{}"), kind: CallKind::Custom, origin: origin() },
        Body::ToolStarted { tool_use_id },
        Body::StatusRunning,
        Body::StatusRescheduled,
        Body::Error {
            class: Class::Transient,
            message: "Overloaded".into(),
            retrying: true,
            request_id: Some("req".into()),
            limit: None,
        },
        Body::SpanStart { model: "a/m".into(), attempt: 2, instead_of: None, sent: Sent::default() },
        Body::SpanStart {
            model: "b/m".into(),
            attempt: 2,
            instead_of: Some(InsteadOf { model: "a/m".into(), class: Class::Transient }),
            sent: Sent::default(),
        },
        Body::Condition {
            condition: ConditionId::from_bits(12),
            class: Class::RateLimit,
            model: "a/m".into(),
            message: "slow down".into(),
        },
        Body::SpanEnd {
            span: id(8),
            model: "a/m".into(),
            is_error: false,
            usage,
            cost_usd_micros: Some(12),
            assumed: Estimate::default(),
        },
        Body::CallbackCreated { callback: CallbackId::from_bits(4), label: "ci".into(), expires_at: Timestamp(99) },
        Body::CallbackReceived { callback: CallbackId::from_bits(4), body: "{}".into() },
        Body::BudgetUpdated { limits },
        Body::Updated { update: Update::Paused },
        Body::Updated { update: Update::Resumed },
        Body::Updated { update: Update::Title("t".into()) },
        Body::Updated { update: Update::Models(chosen_models()) },
        Body::Updated { update: Update::Models(ModelChoice::default()) },
        Body::Updated { update: Update::Metadata([("k".to_owned(), "v".to_owned())].into()) },
        Body::UsageSnapshot {
            usage,
            cost_usd_micros: 3,
            has_unpriced: true,
            estimated: Estimate::default(),
            limit_usd_micros: Some(9),
        },
        Body::UsageSnapshot {
            usage,
            cost_usd_micros: 0,
            has_unpriced: false,
            estimated: Estimate { tokens: 4, cost_usd_micros: Some(5) },
            limit_usd_micros: None,
        },
        Body::EnvironmentStarted { driver: "namespace".into(), missing: vec!["cgroup".into()], epoch: 0 },
        Body::EnvironmentStarted { driver: "process".into(), missing: Vec::new(), epoch: 7 },
        Body::EnvironmentReset { reason: "lost".into(), snapshot: None },
        Body::EnvironmentReset { reason: "lost".into(), snapshot: Some(SnapshotId::from_bits(7)) },
    ];
    for outcome in
        [Outcome::Done, Outcome::Failed, Outcome::Unknown, Outcome::Denied, Outcome::NotRun, Outcome::Interrupted]
    {
        bodies.push(Body::AgentToolResult { tool_use_id, content: text("x"), outcome });
    }
    let tools = [
        (CallKind::Sandbox, Effect::Pure, Permission::Allow),
        (CallKind::Sleep, Effect::Idempotent, Permission::Ask),
        (CallKind::CreateCallback, Effect::FilesOnly, Permission::Deny),
        (CallKind::WaitForCallback, Effect::Once, Permission::Allow),
        (CallKind::AskUser, Effect::Once, Permission::Allow),
    ];
    for (kind, effect, permission) in tools {
        let malformed = (effect == Effect::Pure).then(|| "bad".to_owned());
        bodies.push(Body::AgentToolUse {
            name: "t".into(),
            input: json("{}"),
            kind,
            effect,
            permission,
            malformed,
            origin: Origin::default(),
        });
    }
    bodies.extend(stops().map(|stop| Body::StatusIdle { stop }));
    bodies.extend(ends().map(|end| Body::StatusTerminated { end }));
    bodies.extend(waits().into_iter().map(|wait| Body::WaitStarted { wait }));
    bodies.extend(
        [Resolution::Answered, Resolution::Due, Resolution::Cleared]
            .map(|resolution| Body::WaitResolved { resolution }),
    );
    bodies.extend(sizes_and_compactions());
    bodies.extend(snapshots());
    bodies.extend(forks());
    bodies
}

fn forks() -> [Body; 2] {
    let from = ForkedFrom { session: SessionId::from_bits(2), seq: 7 };
    [
        Body::Forked { from, snapshot: None, limits: Limits::NONE },
        Body::Forked { from, snapshot: Some(SnapshotId::from_bits(7)), limits: Limits::default() },
    ]
}

fn snapshots() -> Vec<Body> {
    let reasons = [
        SnapshotReason::Step,
        SnapshotReason::Lease,
        SnapshotReason::Wait,
        SnapshotReason::Turn,
        SnapshotReason::Manual,
    ];
    let consistencies = [Consistency::Frozen, Consistency::Fuzzy, Consistency::Torn];
    let taken = reasons.into_iter().zip(consistencies.into_iter().cycle()).enumerate();
    taken
        .map(|(number, (reason, consistency))| Body::SnapshotCreated {
            snapshot: SnapshotId::from_bits(number as u128),
            taken: SnapshotTaken {
                reason,
                consistency,
                entries: 3,
                bytes: 1 << 40,
                new_bytes: 9,
                left_out: number as u64,
            },
        })
        .collect()
}

fn sizes_and_compactions() -> Vec<Body> {
    let wait = |kind| Body::WaitStarted { wait: Wait { kind, since: Timestamp(1), until: None, calls: Vec::new() } };
    vec![
        Body::Error {
            class: Class::Overflow,
            message: "too long".into(),
            retrying: true,
            request_id: None,
            limit: Some(200_000),
        },
        Body::SpanStart { model: "a/m".into(), attempt: 1, instead_of: None, sent: sent() },
        Body::SpanEnd {
            span: id(8),
            model: String::new(),
            is_error: true,
            usage: Usage::default(),
            cost_usd_micros: None,
            assumed: Estimate { tokens: 5, cost_usd_micros: Some(6) },
        },
        Body::ContextCompacted { compacted: compacted(Some(summary())) },
        Body::ContextCompacted { compacted: compacted(None) },
        Body::BudgetUpdated { limits: Limits { failures: Some(5), identical_calls: Some(6), ..Limits::NONE } },
        wait(WaitKind::Budget { which: Which::Failures }),
        wait(WaitKind::Budget { which: Which::IdenticalCalls }),
        wait(WaitKind::Budget { which: Which::Price }),
        wait(WaitKind::Upstream { class: Class::Malformed }),
    ]
}

fn sent() -> Sent {
    Sent {
        size: Size { text_bytes: 1, media_bytes: 2, media: 3 },
        input_tokens: 4,
        reserved: Estimate { tokens: 5, cost_usd_micros: Some(6) },
        purpose: Purpose::Summary { keep_from: 3, room: 8, before: 9 },
    }
}

fn summary() -> Summary {
    Summary { text: "so far".into(), instructions: text("be kind"), request: text("do it") }
}

fn compacted(summary: Option<Summary>) -> Compacted {
    let (before, after) = (Measured { tokens: 9, bytes: 90 }, Measured { tokens: 2, bytes: 20 });
    Compacted { from: 1, keep_from: 3, media_from: 2, summary, before, after }
}

/// The limits that everything had before there were those against going in circles.
fn first_limits() -> Limits {
    Limits { failures: None, identical_calls: None, ..Limits::default() }
}

fn inputs() -> Vec<Input> {
    let tool_use_id = id(7);
    let bodies = [
        InputBody::Message { content: text("x") },
        InputBody::System { content: text("x") },
        InputBody::Interrupt,
        InputBody::Confirmation { tool_use_id, decision: Decision::Deny { message: None } },
        InputBody::CustomResult { tool_use_id, content: text("x"), is_error: false },
        InputBody::Callback { callback: CallbackId::from_bits(4), body: "b".into() },
        InputBody::Pause,
        InputBody::Resume,
        InputBody::Cancel,
        InputBody::Archive,
        InputBody::Limits(Limits::NONE),
        InputBody::Title("t".into()),
        InputBody::Models(chosen_models()),
        InputBody::Snapshot,
        InputBody::Metadata([("k".to_owned(), "v".to_owned())].into()),
    ];
    bodies.into_iter().map(|body| Input { id: id(5), at: Timestamp(11), body }).collect()
}

fn sessions() -> Vec<Session> {
    let agent = AgentRef { id: AgentId::from_bits(2), version: 3 };
    let mut fresh =
        Session::new(SessionId::from_bits(1), TenantId("t".into()), agent, EnvironmentId::from_bits(4), Timestamp(5));
    fresh.budget.limits = first_limits();
    let callback = Some(CallbackId::from_bits(4));
    let states = [
        CallState::Ready,
        CallState::NeedsAnswer { deadline: None },
        CallState::NeedsAnswer { deadline: Some(Timestamp(3)) },
        CallState::Started,
        CallState::Waiting { until: Some(Timestamp(3)), callback },
    ];
    let call = |state| Call {
        id: id(7),
        seq: 4,
        step: 2,
        name: "bash".into(),
        kind: CallKind::Sandbox,
        effect: Effect::Once,
        state,
        was_started: false,
    };
    let busy = Session {
        title: "A title".into(),
        last_seq: 9,
        context_from_seq: 2,
        last_step: 4,
        position: Position::Tools,
        status: Status::Running,
        calls: states.map(call).to_vec(),
        wait: Some(waits().remove(0)),
        is_paused: true,
        budget: Budget {
            limits: Limits::NONE,
            steps: 4,
            usage: Usage { input: 9, ..Usage::default() },
            cost_usd_micros: 7,
            has_unpriced: true,
            ..Budget::default()
        },
        retry: Retry { failures: 2, empty: 1, is_repaired: false },
        repeats: Repeats { digest: u64::MAX, calls: 2, failures: 1 },
        callbacks: vec![Callback { id: CallbackId::from_bits(4), expires_at: Timestamp(8), received_seq: Some(6) }],
        ..fresh.clone()
    };
    let mut sessions = vec![fresh.clone(), busy];
    let positions = [Position::Model, Position::Calling { span: id(8), attempt: 2 }];
    sessions.extend(positions.map(|position| Session { position, status: Status::Rescheduling, ..fresh.clone() }));
    sessions.extend(ends().map(|end| Session {
        position: Position::Ended(end),
        status: Status::Terminated,
        ..fresh.clone()
    }));
    sessions.push(Session {
        budget: Budget {
            limits: Limits { failures: Some(5), identical_calls: Some(6), ..Limits::NONE },
            estimated_tokens: 11,
            estimated_cost_usd_micros: 12,
            failures: 3,
            ..Budget::default()
        },
        retry: Retry { failures: 2, empty: 1, is_repaired: true },
        sent: Some(sent()),
        learnt: Learnt {
            model: "a/m".into(),
            usage: Usage { input: 9, ..Usage::default() },
            size: sent().size,
            max_tokens: Some(100),
            refused_bytes: Some(200),
        },
        compaction: Compaction { due: Some(TooLarge::Bytes), tries: 1, futile_tokens: 77 },
        ..fresh.clone()
    });
    sessions.push(Session { budget: Budget { told_tokens: 5, ..fresh.budget }, ..fresh.clone() });
    sessions.push(Session { queue: Some("reviews".into()), ..fresh.clone() });
    sessions.push(Session { models: chosen_models(), ..fresh.clone() });
    let files = Files { snapshot: Some(SnapshotId::from_bits(8)), snapshot_seq: 5, epoch: 3, is_dirty: true };
    sessions.push(Session { files, ..fresh.clone() });
    let asked = Call { was_started: true, ..call(CallState::NeedsAnswer { deadline: None }) };
    sessions.push(Session { calls: vec![asked], position: Position::Tools, ..fresh.clone() });
    sessions.push(Session { forked: Some(ForkedFrom { session: SessionId::from_bits(2), seq: 7 }), ..fresh });
    sessions
}

fn agents() -> Vec<Agent> {
    let config = ToolConfig { enabled: false, permission: Permission::Ask, effect: Some(Effect::Idempotent) };
    let configs = BTreeMap::from([("bash".to_owned(), config)]);
    let plain = Agent {
        id: AgentId::from_bits(2),
        version: 1,
        tenant: TenantId("t".into()),
        name: "a".into(),
        description: None,
        model: "a/m".into(),
        fallback_models: Vec::new(),
        system: None,
        tools: Vec::new(),
        limits: first_limits(),
        policies: Policies::default(),
        run_loop: Loop::BuiltIn,
        metadata: BTreeMap::new(),
        created_at: Timestamp(1),
        updated_at: Timestamp(2),
        archived_at: None,
    };
    let full = Agent {
        description: Some("d".into()),
        fallback_models: vec!["b/m".into()],
        system: Some("s".into()),
        tools: vec![
            Tool::Sandbox { default: ToolConfig::default(), configs: configs.clone() },
            Tool::Waits { default: config, configs },
            Tool::Custom(CustomTool {
                name: "form".into(),
                description: "d".into(),
                input_schema: json(r#"{"type":"object"}"#),
            }),
        ],
        policies: Policies {
            approval_timeout: Some(5),
            unknown_outcome: UnknownOutcome::AskPerson,
            max_output_tokens: Some(9),
            ..Policies::default()
        },
        metadata: BTreeMap::from([("k".to_owned(), "v".to_owned())]),
        archived_at: Some(Timestamp(3)),
        ..plain.clone()
    };
    let compaction = CompactionPolicy {
        mode: CompactionMode::Off,
        trigger_tokens: Some(10),
        keep_tokens: Some(2),
        model: Some("b/m".into()),
    };
    let terse = Agent { policies: Policies { compaction, ..Policies::default() }, ..plain.clone() };
    let external = Agent { run_loop: Loop::External { queue: "reviews".into() }, ..plain.clone() };
    let policies = [SnapshotPolicy::Manual, SnapshotPolicy::Turn, SnapshotPolicy::Lease, SnapshotPolicy::Step];
    let careful = policies.map(|snapshot| {
        let policies = Policies { snapshot, ..Policies::default() };
        Agent { policies, ..plain.clone() }
    });
    [plain, full, terse, external].into_iter().chain(careful).collect()
}

fn environments() -> Vec<Environment> {
    let plain = Environment {
        id: EnvironmentId::from_bits(4),
        tenant: TenantId("t".into()),
        name: "e".into(),
        description: None,
        driver: DriverName::Namespace,
        network: Network::Off,
        limits: SandboxLimits::default(),
        metadata: BTreeMap::new(),
        created_at: Timestamp(1),
        updated_at: Timestamp(2),
        archived_at: None,
    };
    let limits = SandboxLimits { memory_bytes: Some(1), processes: Some(2), cpu_millis: Some(3), disk_bytes: Some(4) };
    let full = Environment {
        driver: DriverName::Process,
        network: Network::Host,
        limits,
        archived_at: Some(Timestamp(3)),
        ..plain.clone()
    };
    vec![plain.clone(), full, Environment { driver: DriverName::Landlock, ..plain }]
}

fn conditions() -> Vec<Condition> {
    let key = ConditionKey { credential: "a".into(), model: None };
    let plain = Condition {
        id: ConditionId::from_bits(12),
        key: key.clone(),
        class: Class::Credential,
        message: "invalid x-api-key".into(),
        stage: Stage::Open,
        stage_since: Timestamp(5),
        opened_at: Timestamp(5),
        generation: 1,
        refusals: 1,
        probe_at: Timestamp(300_005),
        probe: None,
        probes: 0,
        flow: Flow::new(Timestamp(5)),
        turn: None,
    };
    let full = Condition {
        key: ConditionKey { model: Some("a/m".into()), ..key },
        stage: Stage::Releasing,
        probe: Some(Probe { session: SessionId::from_bits(3), number: 4, expires_at: Timestamp(9) }),
        probes: 4,
        flow: Flow { ceiling: Some(50_000), cut_at: Some(Timestamp(4)), ..plain.flow },
        turn: Some(TenantId("t".into())),
        ..plain.clone()
    };
    vec![plain.clone(), full, Condition { stage: Stage::Over, ..plain }]
}

/// What a release does with a record that was read.
fn use_condition(condition: &Condition) {
    for now in [Timestamp(i64::MIN), Timestamp(0), Timestamp(1 << 41), Timestamp(i64::MAX)] {
        let mut condition = condition.clone();
        condition.look(7, now);
        condition.admit(SessionId::from_bits(3), Some(1), false, false, now);
        condition.settle(condition.probes, Settlement::Mended, now);
        condition.look(7, now.after(1_000));
        condition.released(7, now);
    }
}

/// Every sample as a line of the fixture.
fn lines() -> Vec<String> {
    let events = bodies().into_iter().map(|body| format!("event\t{}", encode_event(&event(body))));
    let inputs = inputs().into_iter().map(|input| format!("input\t{}", encode_input(&input)));
    let sessions = sessions().into_iter().map(|session| format!("session\t{}", encode_session(&session)));
    let agents = agents().into_iter().map(|agent| format!("agent\t{}", encode_agent(&agent)));
    let environments =
        environments().into_iter().map(|environment| format!("environment\t{}", encode_environment(&environment)));
    let conditions = conditions().into_iter().map(|condition| format!("condition\t{}", encode_condition(&condition)));
    events.chain(inputs).chain(sessions).chain(agents).chain(environments).chain(conditions).collect()
}

fn decoded_event(text: &str) -> Result<Event, Corrupt> {
    decode_event(id(5), 9, Timestamp(11), 3, text)
}

fn decoded_input(text: &str) -> Result<Input, Corrupt> {
    decode_input(id(5), Timestamp(11), text)
}

/// Whether a record of this kind can be read.
fn read(kind: &str, text: &str) -> Result<(), Corrupt> {
    match kind {
        "event" => decoded_event(text).map(drop),
        "input" => decoded_input(text).map(drop),
        "session" => decode_session(text).map(drop),
        "agent" => decode_agent(text).map(drop),
        "environment" => decode_environment(text).map(drop),
        "condition" => decode_condition(text).map(drop),
        other => panic!("no such kind of record: {other}"),
    }
}

fn fixture() -> impl Iterator<Item = (&'static str, &'static str)> {
    V1.lines().map(|line| line.split_once('\t').unwrap())
}

#[test]
fn p21_records_of_version_1_load_for_ever() {
    let texts = |kind: &'static str| fixture().filter(move |(of, _)| *of == kind).map(|(_, text)| text);
    let events: Vec<Event> = texts("event").map(|text| decoded_event(text).unwrap()).collect();
    assert_eq!(events, bodies().into_iter().map(event).collect::<Vec<_>>());
    assert_eq!(texts("input").map(|text| decoded_input(text).unwrap()).collect::<Vec<_>>(), inputs());
    assert_eq!(texts("session").map(|text| decode_session(text).unwrap()).collect::<Vec<_>>(), sessions());
    assert_eq!(texts("agent").map(|text| decode_agent(text).unwrap()).collect::<Vec<_>>(), agents());
    assert_eq!(texts("environment").map(|text| decode_environment(text).unwrap()).collect::<Vec<_>>(), environments());
    assert_eq!(texts("condition").map(|text| decode_condition(text).unwrap()).collect::<Vec<_>>(), conditions());
}

#[test]
fn this_release_writes_version_1_as_the_fixture_has_it() {
    assert_eq!(lines(), V1.lines().collect::<Vec<_>>());
}

#[test]
fn a_newer_or_damaged_record_says_so() {
    for (kind, text) in fixture() {
        let newer = text.replacen("\"v\":1", "\"v\":2", 1);
        assert!(read(kind, &newer).unwrap_err().reason.contains("version 2"), "{newer}");
        for end in (0..text.len()).filter(|end| text.is_char_boundary(*end)) {
            assert!(read(kind, &text[..end]).is_err(), "{}", &text[..end]);
        }
    }
    assert!(decoded_event("{\"v\":1,\"t\":\"no_such_event\"}").is_err());
    assert!(decoded_event("null").is_err());
}

#[test]
fn a_fresh_head_is_small() {
    let size = encode_session(&sessions()[0]).len();
    assert!(size < 400, "{size} bytes");
}

/// JSON with any strings and numbers in it.
fn any_json() -> impl Strategy<Value = Json> {
    (any::<String>(), any::<i64>(), any::<String>()).prop_map(|(name, number, text)| {
        Json::from_value(&serde_json::json!({ name: [number, text, null, {"x": true}] }))
    })
}

/// Values that a damaged record may hold in the place of another one.
fn strange_values() -> Vec<serde_json::Value> {
    use serde_json::json;
    vec![
        json!(null),
        json!(true),
        json!(0),
        json!(-1),
        json!(1.5),
        json!(1e300),
        json!(i64::MIN),
        json!(i64::MAX),
        json!(u32::MAX),
        json!(u64::MAX),
        json!(""),
        json!("a\u{0}b"),
        json!("sevt_00000000000000000000000007"),
        json!([]),
        json!([null]),
        json!({}),
        json!({"k": "timer"}),
        json!({"k": "calling", "s": "sevt_00000000000000000000000007", "a": u32::MAX}),
    ]
}

/// The record with each of its values replaced by `with`, one at a time, and removed.
fn damaged(value: &serde_json::Value, with: &serde_json::Value) -> Vec<serde_json::Value> {
    let mut all = vec![with.clone()];
    match value {
        serde_json::Value::Array(items) => {
            for (place, item) in items.iter().enumerate() {
                all.extend(damaged(item, with).into_iter().map(|inner| {
                    let mut items = items.clone();
                    items[place] = inner;
                    serde_json::Value::Array(items)
                }));
            }
        }
        serde_json::Value::Object(fields) => {
            for (name, field) in fields {
                let mut without = fields.clone();
                without.remove(name);
                all.push(serde_json::Value::Object(without.clone()));
                all.extend(damaged(field, with).into_iter().map(|inner| {
                    let mut fields = without.clone();
                    fields.insert(name.clone(), inner);
                    serde_json::Value::Object(fields)
                }));
            }
        }
        serde_json::Value::Null
        | serde_json::Value::Bool(_)
        | serde_json::Value::Number(_)
        | serde_json::Value::String(_) => {}
    }
    all
}

/// Everything that is done with a head before anything of its log is read.
fn use_head(session: &Session) {
    let policies = Policies::default();
    let (now, text) = (Timestamp(1_000), Block::Text("hi".into()));
    let _ = (explain(session), session.phase(), session.wakes_at());
    let _ = next(session, &policies, now);
    let _ = recover(session, UnknownOutcome::TellModel, now);
    let inputs = [
        InputBody::Message { content: vec![text.clone()] },
        InputBody::Interrupt,
        InputBody::Confirmation { tool_use_id: id(7), decision: Decision::Allow },
        InputBody::CustomResult { tool_use_id: id(7), content: vec![text], is_error: false },
        InputBody::Callback { callback: CallbackId::from_bits(4), body: "b".into() },
        InputBody::Resume,
    ];
    for body in inputs {
        let _ = accept(session, &[], &body, now);
        let _ = intake(session, &[Input { id: id(9), at: now, body }], now);
    }
    let _ = cancelled(session, "killed");
}

#[test]
fn no_damage_inside_a_record_makes_reading_or_using_it_panic() {
    for (kind, text) in fixture() {
        let whole: serde_json::Value = serde_json::from_str(text).unwrap();
        for damaged in strange_values().iter().flat_map(|with| damaged(&whole, with)) {
            let damaged = damaged.to_string();
            match read(kind, &damaged) {
                Err(corrupt) => assert!(!corrupt.to_string().is_empty()),
                Ok(()) if kind == "session" => use_head(&decode_session(&damaged).unwrap()),
                Ok(()) if kind == "condition" => use_condition(&decode_condition(&damaged).unwrap()),
                Ok(()) if kind == "event" => {
                    let event = decoded_event(&damaged).unwrap();
                    for mut session in sessions() {
                        session.last_seq = event.seq - 1;
                        let before = session.clone();
                        let is_taken = apply(&mut session, &event).is_ok();
                        assert!(is_taken || session == before, "a refused event changes nothing: {damaged}");
                    }
                }
                Ok(()) => {}
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn o_030_any_text_and_json_come_back_as_they_were(words in any::<[String; 4]>(), input in any_json(), numbers in any::<(u64, i64, u32)>()) {
        let [a, b, c, d] = words;
        let origin = Origin { dialect: a.clone(), model: b.clone(), blocks: vec![input.clone()] };
        let content = vec![Block::Text(c.clone()), Block::Media { kind: MediaKind::Document, json: input.clone() }];
        let usage = Usage { input: numbers.0, output: numbers.0, cache_read: 0, cache_write: numbers.0 };
        for body in [
            Body::UserMessage { content: content.clone() },
            Body::AgentMessage { text: c.clone(), origin: origin.clone() },
            Body::AgentToolUse {
                name: d.clone(), input: input.clone(), kind: CallKind::Sandbox, effect: Effect::Once,
                permission: Permission::Allow, malformed: Some(a.clone()), origin: origin.clone(),
            },
            Body::AgentToolResult { tool_use_id: id(u128::from(numbers.0)), content, outcome: Outcome::Unknown },
            Body::Error { class: Class::Request, message: c.clone(), retrying: false, request_id: Some(d.clone()), limit: Some(numbers.0) },
            Body::SpanEnd { span: id(1), model: a.clone(), is_error: true, usage, cost_usd_micros: Some(numbers.0), assumed: Estimate::default() },
            Body::CallbackCreated { callback: CallbackId::from_bits(1), label: b.clone(), expires_at: Timestamp(numbers.1) },
            Body::EnvironmentStarted { driver: a.clone(), missing: vec![b.clone(), c.clone()], epoch: 1 },
        ] {
            let event = event(body);
            prop_assert_eq!(decoded_event(&encode_event(&event)), Ok(event));
        }
        let session = Session {
            title: a.clone(),
            created_at: Timestamp(numbers.1),
            last_seq: (numbers.0 >> 16).max(9),
            repeats: Repeats { digest: numbers.0, calls: numbers.2, failures: numbers.2 },
            ..sessions().remove(1)
        };
        prop_assert_eq!(decode_session(&encode_session(&session)), Ok(session));
        let agent = Agent { name: a, system: Some(b.clone()), metadata: BTreeMap::from([(c.clone(), d.clone())]), ..agents().remove(1) };
        prop_assert_eq!(decode_agent(&encode_agent(&agent)), Ok(agent));
        let environment = Environment { name: b, description: Some(c.clone()), ..environments().remove(1) };
        prop_assert_eq!(decode_environment(&encode_environment(&environment)), Ok(environment));
        let input = Input { id: id(5), at: Timestamp(11), body: InputBody::Callback { callback: CallbackId::from_bits(4), body: d } };
        prop_assert_eq!(decoded_input(&encode_input(&input)), Ok(input));
    }

    #[test]
    fn no_damage_makes_reading_panic(place in any::<prop::sample::Index>(), line in any::<prop::sample::Index>(), byte in any::<char>()) {
        let lines: Vec<_> = fixture().collect();
        let (kind, text) = lines[line.index(lines.len())];
        let mut chars: Vec<char> = text.chars().collect();
        let place = place.index(chars.len());
        chars[place] = byte;
        let _ = read(kind, &chars.into_iter().collect::<String>());
    }

    #[test]
    fn bytes_that_are_no_record_are_refused_with_a_reason(text in any::<String>()) {
        for kind in ["event", "input", "session", "agent", "environment"] {
            let corrupt = read(kind, &text).unwrap_err();
            prop_assert!(!corrupt.to_string().is_empty());
        }
    }

    #[test]
    fn p4_every_prefix_of_every_log_is_a_valid_conversation(script in proptest::collection::vec(any::<(u8, u8)>(), 0..60)) {
        let events = log(&script);
        for end in 0..=events.len() {
            let messages = transcript(&events[..end]);
            prop_assert_eq!(validate::validate(&messages), Ok(()));
            // A range that begins anywhere is valid too: that is what compaction leaves.
            prop_assert_eq!(validate::validate(&transcript(&events[end..])), Ok(()));
        }
    }

    #[test]
    fn a_log_reads_back_from_its_stored_form(script in proptest::collection::vec(any::<(u8, u8)>(), 0..40)) {
        for event in log(&script) {
            let stored = encode_event(&event);
            prop_assert_eq!(decode_event(event.id, event.seq, event.at, event.step, &stored), Ok(event));
        }
    }
}
