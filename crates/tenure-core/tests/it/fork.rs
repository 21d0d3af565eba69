//! Forks: every event of every log can be the last one that is shared.

use crate::script::{Driven, text, tool};
use tenure_core::failure::Class;
use tenure_core::*;

fn base(log_of: &Session) -> Session {
    Session::new(log_of.id, log_of.tenant.clone(), log_of.agent, log_of.environment, log_of.created_at)
}

/// A fork of what `log` has told up to `seq`: its head after its first own rows, and the whole log.
fn fork_at(parent: &Session, log: &[Event], seq: u64) -> (Session, Vec<Event>) {
    let mut rows: Vec<Event> = log.iter().filter(|event| event.seq <= seq).cloned().collect();
    let mut head = base(parent);
    rows.iter().for_each(|event| apply(&mut head, event).unwrap());
    let new = NewFork {
        id: SessionId::from_bits(2),
        created_at: Timestamp(9_000),
        title: "another way".into(),
        limits: Limits { steps: Some(7), ..Limits::default() },
        snapshot: Some(SnapshotId::from_bits(3)),
        told: Some("files of before".into()),
    };
    let (mut head, drafts) = fork(head, new);
    for draft in drafts {
        let seq = head.last_seq + 1;
        let id = EventId::from_bits(1 << 64 | u128::from(seq));
        let event = Event { id, seq, at: Timestamp(9_000), step: draft.step, body: draft.body };
        apply(&mut head, &event).unwrap();
        rows.push(event);
    }
    (head, rows)
}

/// A log with everything in it that can be open when a fork leaves.
fn eventful() -> Driven {
    let mut run = Driven::new();
    run.say("go");
    run.fail(Class::Transient);
    run.now = run.now.after(600_000);
    run.record(next_due(&run));
    run.answer(
        AnswerStop::ToolUse,
        vec![text("two at once"), tool("bash", "{}"), tool("push", "{}"), tool("form", "{}")],
    );
    run.run("one");
    let (push, form) = (run.open("push"), run.open("form"));
    run.settle();
    run.input(InputBody::Pause);
    run.input(InputBody::Resume);
    run.input(InputBody::Confirmation { tool_use_id: push, decision: Decision::Allow });
    run.input(InputBody::CustomResult {
        tool_use_id: form,
        content: vec![Block::Text("filled".into())],
        is_error: false,
    });
    run.run("pushed");
    run.answer(AnswerStop::ToolUse, vec![tool("sleep", r#"{"seconds":60}"#)]);
    run.settle();
    let sleep = run.open("sleep");
    run.record(vec![wait_tool(&run.session, sleep, None, Some(60_000), run.now)]);
    run.record(vec![Draft::new(Body::CallbackCreated {
        callback: CallbackId::from_bits(5),
        label: "ci".into(),
        expires_at: Timestamp(i64::MAX),
    })]);
    run.now = run.now.after(61_000);
    run.record(next_due(&run));
    run.answer(AnswerStop::EndTurn, vec![text("done")]);
    run.settle();
    run.record(ended(&run.session, End::Done));
    run
}

fn next_due(run: &Driven) -> Vec<Draft> {
    match next(&run.session, &run.policies, run.now) {
        Action::Record(drafts) => drafts,
        action => panic!("something is due: {action:?}"),
    }
}

#[test]
fn p_17_a_fork_at_any_event_is_idle_whole_and_takes_a_message() {
    let run = eventful();
    assert!(run.session.has_ended());
    for seq in 0..=run.session.last_seq {
        let (head, rows) = fork_at(&run.session, &run.log, seq);
        assert_eq!(head.position, Position::Idle, "at {seq}");
        assert_eq!(head.status, Status::Idle(Stop::EndTurn), "at {seq}");
        assert!(head.calls.is_empty() && head.wait.is_none() && head.callbacks.is_empty() && !head.is_paused);
        assert_eq!(head.forked, Some(ForkedFrom { session: run.session.id, seq }));
        assert_eq!((head.budget.tokens(), head.budget.steps, head.budget.limits.steps), (0, 0, Some(7)), "at {seq}");
        assert_eq!(head.files.snapshot, Some(SnapshotId::from_bits(3)));
        let mut folded = Session { title: head.title.clone(), id: head.id, created_at: head.created_at, ..base(&head) };
        rows.iter().for_each(|event| apply(&mut folded, event).unwrap());
        assert_eq!(folded, head, "the head is a fold of the log, shared rows included");
        assert_eq!(validate::validate(&transcript(&rows)), Ok(()), "at {seq}");

        let input =
            Input { id: EventId::from_bits(7), at: Timestamp(9_001), body: InputBody::Message { content: vec![] } };
        let mut head = head;
        for draft in intake(&head, &[input], Timestamp(9_001)) {
            let event = Event {
                id: EventId::from_bits(8),
                seq: head.last_seq + 1,
                at: Timestamp(9_001),
                step: 0,
                body: draft.body,
            };
            apply(&mut head, &event).unwrap();
        }
        assert_eq!(head.position, Position::Model, "at {seq}");
    }
}

#[test]
fn z_10_a_call_that_was_begun_is_not_run_again_in_a_fork() {
    let mut run = Driven::new();
    run.say("go");
    run.answer(AnswerStop::ToolUse, vec![tool("bash", r#"{"command":"deploy"}"#)]);
    run.settle();
    let call = run.open("bash");
    run.record(vec![Draft::of_step(2, Body::ToolStarted { tool_use_id: call })]);
    let (head, rows) = fork_at(&run.session, &run.log, run.session.last_seq);
    let results: Vec<&Event> = rows.iter().filter(|event| event.body.answers() == Some(call)).collect();
    let [result] = results.as_slice() else { panic!("one result: {results:?}") };
    let Body::AgentToolResult { content, outcome: Outcome::NotRun, .. } = &result.body else { panic!("{result:?}") };
    assert!(matches!(&content[0], Block::Text(text) if text.contains("ot run in this fork")), "{content:?}");
    assert_eq!(next(&head, &run.policies, Timestamp(9_001)), Action::Park, "nothing runs by itself");
    assert_eq!(head.budget.failures, 0);
}

#[test]
fn a_fork_of_an_open_model_call_closes_its_span_and_charges_nothing() {
    let mut run = Driven::new();
    run.say("go");
    assert!(matches!(run.settle(), Action::CallModel { .. }));
    let reserved = Estimate { tokens: 900, cost_usd_micros: Some(5) };
    let sent = Sent { reserved, ..Sent::default() };
    let start = Body::SpanStart { model: "script/x".into(), attempt: 1, instead_of: None, sent };
    run.record(vec![Draft::of_step(1, start)]);
    let (head, rows) = fork_at(&run.session, &run.log, run.session.last_seq);
    assert!(rows.iter().any(|event| matches!(event.body, Body::SpanEnd { is_error: true, .. })));
    assert_eq!((head.budget.tokens(), head.sent), (0, None));
}

#[test]
fn what_is_left_of_limits_is_what_was_not_used() {
    let used =
        Budget { steps: 3, cost_usd_micros: 30, usage: Usage { input: 9, ..Usage::default() }, ..Budget::default() };
    let limits =
        Limits { steps: Some(10), tokens: Some(5), cost_usd_micros: None, wall: Some(60_000), ..Limits::default() };
    let left = limits.left(&used, 1_000);
    assert_eq!((left.steps, left.tokens, left.cost_usd_micros, left.wall), (Some(7), Some(0), None, Some(59_000)));
    assert_eq!((left.failures, left.identical_calls), (limits.failures, limits.identical_calls));
}

#[test]
fn a_fork_elsewhere_than_it_says_is_refused() {
    let run = eventful();
    let mut head = base(&run.session);
    let from = ForkedFrom { session: SessionId::from_bits(9), seq: 4 };
    let body = Body::Forked { from, snapshot: None, limits: Limits::default() };
    let event = Event { id: EventId::from_bits(1), seq: 1, at: Timestamp(0), step: 0, body };
    assert_eq!(apply(&mut head, &event).unwrap_err().reason, "it is a fork at another event");
}

#[test]
fn commands_whose_changes_are_not_there_are_named_and_bounded() {
    let mut run = Driven::new();
    run.say("go");
    assert_eq!(undone(&run.log), None);
    for number in 0..23 {
        let input = format!(r#"{{"command":"touch {number}\n{}"}}"#, "x".repeat(200));
        run.answer(AnswerStop::ToolUse, vec![tool("bash", &input), tool("read", "{}")]);
        run.run("ok");
        run.run("read");
    }
    let named = undone(&run.log).unwrap();
    assert!(named.contains("bash {\"command\":\"touch 0") && named.ends_with("; and 3 more"), "{named}");
    assert!(!named.contains("read") && !named.contains('\n'), "{named}");
    // Never run: nothing of it could be missing.
    run.answer(AnswerStop::ToolUse, vec![tool("push", "{}")]);
    run.settle();
    let seen = run.log.len();
    let push = run.open("push");
    run.input(InputBody::Confirmation { tool_use_id: push, decision: Decision::Deny { message: None } });
    run.settle();
    let rows: Vec<Event> = run.log[seen - 3..].to_vec();
    assert_eq!(undone(&rows), None, "{rows:?}");
}
