//! Turns from the message to the idle session, and everything that can come between.

use crate::script::{Driven, text, tool};
use tenure_core::failure::Class;
use tenure_core::*;

#[test]
fn a_turn_has_the_order_that_clients_rely_on() {
    let mut run = Driven::new();
    run.say("hi");
    run.answer(AnswerStop::ToolUse, vec![text("let me look"), tool("bash", r#"{"command":"ls"}"#)]);
    run.run("a.txt");
    run.answer(AnswerStop::EndTurn, vec![text("done")]);
    assert_eq!(
        run.news(),
        [
            "user.message",
            "running",
            "span start",
            "agent.message",
            "span end",
            "agent.tool_use",
            "tool_started",
            "agent.tool_result",
            "span start",
            "agent.message",
            "span end",
            "idle end_turn",
        ]
    );
    assert_eq!(run.settle(), Action::Park);
    assert_eq!(run.session.phase(), Phase::Idle);
    assert_eq!(run.session.budget.steps, 3);
}

#[test]
fn o_025_a_crash_between_calls_runs_the_second_once_and_the_first_not_again() {
    let mut run = Driven::new();
    run.say("go");
    run.answer(AnswerStop::ToolUse, vec![tool("bash", r#"{"command":"one"}"#), tool("bash", r#"{"command":"two"}"#)]);
    run.run("1");
    // A new holder takes over here: nothing was on the way.
    assert_eq!(recover(&run.session, UnknownOutcome::TellModel, run.now), []);
    let second = run.session.calls[0].id;
    assert_eq!(run.settle(), Action::RunCalls(vec![second]));
    run.run("2");
    assert!(matches!(run.settle(), Action::CallModel { .. }));
}

#[test]
fn o_025_a_cancelled_turn_gives_every_open_call_a_result() {
    let mut run = Driven::new();
    run.say("go");
    run.answer(AnswerStop::ToolUse, vec![tool("bash", "{}"), tool("read", "{}")]);
    run.input(InputBody::Interrupt);
    run.say("and now this");
    assert_eq!(run.session.calls, []);
    let messages = transcript(&run.log);
    let Message::User(parts) = messages.last().unwrap() else { panic!("{messages:?}") };
    assert!(matches!(
        parts[..],
        [UserPart::Result { is_error: true, .. }, UserPart::Result { is_error: true, .. }, UserPart::Block(_)]
    ));
}

#[test]
fn o_027_a_call_that_was_started_is_unknown_after_a_crash_and_is_not_run_again() {
    let mut run = Driven::new();
    run.say("refund");
    run.answer(AnswerStop::ToolUse, vec![tool("bash", r#"{"command":"refund"}"#)]);
    let call = run.open("bash");
    run.record(vec![Draft::of_step(2, Body::ToolStarted { tool_use_id: call })]);
    let drafts = recover(&run.session, UnknownOutcome::TellModel, run.now);
    run.record(drafts);
    assert!(matches!(run.log.last().unwrap().body, Body::AgentToolResult { outcome: Outcome::Unknown, .. }));
    assert!(matches!(run.settle(), Action::CallModel { .. }));
}

#[test]
fn o_027_a_person_is_asked_about_an_unknown_outcome_where_the_policy_says_so() {
    let mut run = Driven::new();
    run.say("refund");
    run.answer(AnswerStop::ToolUse, vec![tool("bash", r#"{"command":"refund"}"#)]);
    let call = run.open("bash");
    run.record(vec![Draft::of_step(2, Body::ToolStarted { tool_use_id: call })]);
    let drafts = recover(&run.session, UnknownOutcome::AskPerson, run.now);
    run.record(drafts);
    assert_eq!(run.settle(), Action::Park);
    assert_eq!(run.session.phase(), Phase::NeedsYou);
    run.input(InputBody::Confirmation { tool_use_id: call, decision: Decision::Allow });
    assert_eq!(run.settle(), Action::RunCalls(vec![call]));
}

#[test]
fn p3_a_call_with_an_unknown_outcome_is_never_called_not_run_whatever_becomes_of_the_question() {
    let deny = |call| InputBody::Confirmation { tool_use_id: call, decision: Decision::Deny { message: None } };
    let ends: [&dyn Fn(EventId) -> InputBody; 2] = [&|_| InputBody::Interrupt, &deny];
    for end in ends {
        let mut run = Driven::new();
        run.say("refund");
        run.answer(AnswerStop::ToolUse, vec![tool("bash", r#"{"command":"refund"}"#)]);
        let call = run.open("bash");
        run.record(vec![Draft::of_step(2, Body::ToolStarted { tool_use_id: call })]);
        let drafts = recover(&run.session, UnknownOutcome::AskPerson, run.now);
        run.record(drafts);
        assert!(run.session.call(call).unwrap().was_started);
        run.input(end(call));
        run.settle();
        let outcome = run.log.iter().find_map(|event| match &event.body {
            Body::AgentToolResult { tool_use_id, outcome, .. } if *tool_use_id == call => Some(*outcome),
            _ => None,
        });
        assert_eq!(outcome, Some(Outcome::Unknown));
    }
}

#[test]
fn calls_that_may_be_repeated_run_again_after_a_crash() {
    let mut run = Driven::new();
    run.say("look");
    run.answer(AnswerStop::ToolUse, vec![tool("read", r#"{"file_path":"a"}"#), tool("read", r#"{"file_path":"b"}"#)]);
    assert_eq!(recover(&run.session, UnknownOutcome::TellModel, run.now), []);
    let Action::RunCalls(ids) = run.settle() else { panic!() };
    assert_eq!(ids.len(), 2, "pure calls run together");
}

#[test]
fn a_model_call_of_a_lost_holder_is_closed_and_made_again_without_counting_as_a_failure() {
    let mut run = Driven::new();
    run.say("hi");
    run.begin();
    run.news();
    let drafts = recover(&run.session, UnknownOutcome::TellModel, run.now);
    run.record(drafts);
    assert_eq!(run.news(), ["span failed"]);
    assert!(matches!(run.settle(), Action::CallModel { attempt: 1, .. }));
}

#[test]
fn approvals_are_asked_together_and_part_answers_ask_for_the_rest() {
    let mut run = Driven::new();
    run.say("ship it");
    run.answer(AnswerStop::ToolUse, vec![tool("push", "{}"), tool("form", "{}")]);
    assert_eq!(run.settle(), Action::Park);
    let (push, form) = (run.open("push"), run.open("form"));
    assert_eq!(run.session.status, Status::Idle(Stop::RequiresAction(vec![push, form])));
    run.news();
    run.input(InputBody::Confirmation { tool_use_id: push, decision: Decision::Allow });
    assert_eq!(run.settle(), Action::Park);
    assert_eq!(run.session.status, Status::Idle(Stop::RequiresAction(vec![form])));
    assert_eq!(run.news(), ["user.tool_confirmation", "wait_started", "idle requires_action"]);
    run.input(InputBody::CustomResult { tool_use_id: form, content: vec![Block::Text("ok".into())], is_error: false });
    assert_eq!(run.settle(), Action::RunCalls(vec![push]));
    assert_eq!(run.news(), ["user.custom_tool_result", "wait_resolved", "running"]);
}

#[test]
fn a_denied_call_gets_a_result_and_never_runs() {
    let mut run = Driven::new();
    run.say("ship it");
    run.answer(AnswerStop::ToolUse, vec![tool("push", "{}")]);
    run.settle();
    let push = run.open("push");
    run.input(InputBody::Confirmation {
        tool_use_id: push,
        decision: Decision::Deny { message: Some("not today".into()) },
    });
    assert!(matches!(run.settle(), Action::CallModel { .. }));
    let denied = |event: &Event| matches!(&event.body, Body::AgentToolResult { outcome: Outcome::Denied, content, .. } if *content == [Block::Text("not today".into())]);
    assert!(run.log.iter().any(denied));
}

#[test]
fn an_approval_that_nobody_gives_in_time_is_denied() {
    let mut run = Driven::new();
    run.policies.approval_timeout = Some(60_000);
    run.say("ship it");
    run.answer(AnswerStop::ToolUse, vec![tool("push", "{}")]);
    assert_eq!(run.settle(), Action::Park);
    run.now = run.session.wakes_at().unwrap();
    assert!(matches!(run.settle(), Action::CallModel { .. }));
}

#[test]
fn o_011_no_tool_of_a_cut_answer_runs() {
    let mut run = Driven::new();
    run.say("write");
    run.answer(AnswerStop::MaxTokens, vec![tool("bash", r#"{"command":"rm"}"#), tool("bash", r#"{"comm"#)]);
    assert_eq!(run.session.calls, []);
    assert!(matches!(run.settle(), Action::CallModel { .. }));
    assert!(!run.log.iter().any(|event| matches!(event.body, Body::ToolStarted { .. })));
}

#[test]
fn o_012_the_same_malformed_call_three_times_stops_visibly() {
    let mut run = Driven::new();
    run.say("list");
    for _ in 0..3 {
        run.answer(AnswerStop::ToolUse, vec![tool("bash", r#"{"op": listt_files"}"#)]);
    }
    assert_eq!(run.settle(), Action::Park);
    assert_eq!(run.session.wait.as_ref().map(|wait| &wait.kind), Some(&WaitKind::Stuck));
    run.say("try differently");
    assert!(matches!(run.settle(), Action::CallModel { .. }));
}

#[test]
fn o_012_a_question_that_is_not_there_is_told_to_the_model_and_asks_nobody() {
    for (input, expected) in [
        ("{}", "question: is missing; give it as a string."),
        (r#"{"question":null}"#, "question: is missing; give it as a string."),
        (r#"{"question":" "}"#, "question: is empty."),
        (r#"{"question":["a"]}"#, "question: must be a string."),
    ] {
        let mut run = Driven::new();
        run.say("ask");
        run.answer(AnswerStop::ToolUse, vec![tool("ask_user", input)]);
        let result = run.log.iter().find_map(|event| match &event.body {
            Body::AgentToolResult { content, .. } => Some(content.clone()),
            _ => None,
        });
        assert_eq!(result, Some(vec![Block::Text(expected.to_owned())]), "{input}");
        assert!(matches!(run.settle(), Action::CallModel { .. }), "{input}");
    }
}

#[test]
fn o_013_equal_provider_ids_are_different_calls() {
    let mut run = Driven::new();
    run.say("go");
    run.answer(AnswerStop::ToolUse, vec![tool("bash", r#"{"command":"a"}"#), tool("bash", r#"{"command":"b"}"#)]);
    assert_ne!(run.session.calls[0].id, run.session.calls[1].id);
    run.run("a");
    run.run("b");
    run.answer(AnswerStop::ToolUse, vec![tool("bash", r#"{"command":"c"}"#)]);
    assert!(matches!(run.settle(), Action::RunCalls(_)));
}

#[test]
fn o_014_an_unknown_tool_gets_an_error_that_names_the_tools() {
    let mut run = Driven::new();
    run.say("go");
    run.answer(AnswerStop::ToolUse, vec![tool("multi_tool_use.parallel", "{}")]);
    let result = run.log.iter().find_map(|event| match &event.body {
        Body::AgentToolResult { content, .. } => Some(content.clone()),
        _ => None,
    });
    let Some([Block::Text(text)]) = result.as_deref() else { panic!() };
    assert!(text.contains("bash, read"), "{text}");
    assert!(matches!(run.settle(), Action::CallModel { .. }));
}

#[test]
fn the_same_call_five_times_in_a_row_asks_a_person() {
    let mut run = Driven::new();
    run.say("poll");
    for _ in 0..4 {
        run.answer(AnswerStop::ToolUse, vec![tool("bash", r#"{"command":"poll"}"#)]);
        run.run("nothing yet");
    }
    run.answer(AnswerStop::ToolUse, vec![tool("bash", r#"{"command":"poll"}"#)]);
    assert_eq!(run.settle(), Action::Park);
    assert_eq!(run.session.phase(), Phase::NeedsYou);
}

#[test]
fn a_failing_upstream_backs_off_goes_on_and_at_last_asks_a_person() {
    let mut run = Driven::new();
    run.policies.retry.max_attempts = 3;
    run.say("hi");
    run.news();
    run.fail(Class::Transient);
    assert_eq!(run.news(), ["span start", "span failed", "error", "wait_started", "rescheduled"]);
    assert_eq!((run.settle(), run.session.phase()), (Action::Park, Phase::BackingOff));
    run.now = run.session.wakes_at().unwrap();
    run.fail(Class::Transient);
    assert_eq!(run.news()[..2], ["wait_resolved", "running"]);
    run.now = run.session.wakes_at().unwrap();
    run.fail(Class::Transient);
    assert_eq!((run.settle(), run.session.phase()), (Action::Park, Phase::NeedsYou));
    assert_eq!(run.session.status, Status::Idle(Stop::RetriesExhausted));
    run.input(InputBody::Resume);
    assert!(matches!(run.settle(), Action::CallModel { attempt: 1, .. }));
}

#[test]
fn o_005_an_empty_account_is_not_retried_and_goes_on_when_it_is_mended() {
    let mut run = Driven::new();
    run.say("hi");
    run.fail(Class::Quota);
    assert_eq!((run.settle(), run.session.phase()), (Action::Park, Phase::BackingOff));
    assert!(run.session.wakes_at().unwrap().since(run.now) >= 10 * 60 * 1_000);
    run.input(InputBody::Resume);
    run.answer(AnswerStop::EndTurn, vec![text("hello")]);
    assert_eq!(run.session.phase(), Phase::Idle);
}

#[test]
fn o_016_empty_answers_are_bounded() {
    let mut run = Driven::new();
    run.say("hi");
    for _ in 0..3 {
        run.fail(Class::Empty);
        if let Some(until) = run.session.wakes_at() {
            run.now = until;
        }
    }
    assert_eq!((run.settle(), run.session.phase()), (Action::Park, Phase::NeedsYou));
}

#[test]
fn an_overflowing_context_parks_with_a_reason_and_never_loops() {
    let mut run = Driven::new();
    run.policies.compaction.mode = CompactionMode::Off;
    run.say("hi");
    run.fail(Class::Overflow);
    assert_eq!(run.settle(), Action::Park);
    assert!(explain(&run.session).text.contains("longer than the model's context"));
    assert_eq!(run.session.wakes_at(), None);
}

#[test]
fn a_reached_budget_is_a_wait_that_a_higher_limit_ends() {
    let mut run = Driven::new();
    run.session.budget.limits = Limits { steps: Some(1), ..Limits::NONE };
    run.say("go");
    run.answer(AnswerStop::ToolUse, vec![tool("read", "{}"), tool("read", "{}")]);
    assert_eq!(run.settle(), Action::Park);
    assert_eq!(run.session.status, Status::Idle(Stop::BudgetReached));
    run.say("hello?");
    assert_eq!(run.settle(), Action::Park, "a message is kept, but raises no limit");
    run.input(InputBody::Limits(Limits { steps: Some(2), ..Limits::NONE }));
    let first = run.session.calls[0].id;
    assert_eq!(run.settle(), Action::RunCalls(vec![first]), "as many calls as there is room for");
    run.run("x");
    assert_eq!(run.settle(), Action::Park);
    run.input(InputBody::Limits(Limits { steps: Some(10), ..Limits::NONE }));
    run.run("y");
    run.answer(AnswerStop::EndTurn, vec![text("done")]);
    assert_eq!(run.session.phase(), Phase::Idle);
}

#[test]
fn o_042_a_timer_of_400_days_fires_once_and_not_early() {
    let mut run = Driven::new();
    run.say("later");
    run.answer(AnswerStop::ToolUse, vec![tool("sleep", r#"{"seconds":34560000}"#)]);
    let Action::RunCalls(ids) = run.settle() else { panic!() };
    let days_400 = 400 * 24 * 3_600 * 1_000;
    let draft = wait_tool(&run.session, ids[0], None, Some(days_400), run.now);
    run.record(vec![draft]);
    assert_eq!(run.settle(), Action::Park);
    assert_eq!(run.session.phase(), Phase::Waiting);
    let until = run.session.wakes_at().unwrap();
    run.now = Timestamp(until.0 - 1);
    assert_eq!(run.settle(), Action::Park);
    run.now = until;
    assert!(matches!(run.settle(), Action::CallModel { .. }));
}

#[test]
fn a_message_wakes_a_sleeping_agent() {
    let mut run = Driven::new();
    run.say("later");
    run.answer(AnswerStop::ToolUse, vec![tool("sleep", "{}")]);
    let Action::RunCalls(ids) = run.settle() else { panic!() };
    let draft = wait_tool(&run.session, ids[0], None, Some(1_000_000), run.now);
    run.record(vec![draft]);
    run.say("wake up");
    assert!(matches!(run.settle(), Action::CallModel { .. }));
}

#[test]
fn o_051_a_callback_answers_a_waiting_call_once() {
    let mut run = Driven::new();
    let id = CallbackId::from_bits(7);
    run.record(vec![Draft::new(Body::CallbackCreated {
        callback: id,
        label: "ci".into(),
        expires_at: Timestamp(i64::MAX),
    })]);
    run.say("wait");
    run.answer(AnswerStop::ToolUse, vec![tool("wait_for_callback", "{}")]);
    let Action::RunCalls(ids) = run.settle() else { panic!() };
    let draft = wait_tool(&run.session, ids[0], Some(id), None, run.now);
    run.record(vec![draft]);
    assert_eq!(run.settle(), Action::Park);
    let answer = InputBody::Callback { callback: id, body: "green".into() };
    assert_eq!(accept(&run.session, &[], &answer, run.now), Ok(Accepted::Append));
    run.input(answer.clone());
    assert!(matches!(run.settle(), Action::CallModel { .. }));
    assert_eq!(accept(&run.session, &[], &answer, run.now), Ok(Accepted::Nothing));
}

#[test]
fn a_message_answers_an_open_question() {
    let mut run = Driven::new();
    run.say("deploy");
    run.answer(AnswerStop::ToolUse, vec![tool("ask_user", r#"{"question":"where?"}"#)]);
    assert_eq!(run.settle(), Action::Park);
    run.say("to staging");
    assert!(matches!(run.settle(), Action::CallModel { .. }));
    assert_eq!(run.session.status, Status::Running);
}

#[test]
fn a_paused_session_keeps_inputs_and_goes_on_where_it_was() {
    let mut run = Driven::new();
    run.say("go");
    run.input(InputBody::Pause);
    assert_eq!((run.settle(), run.session.phase()), (Action::Park, Phase::Paused));
    run.say("more");
    assert_eq!(run.settle(), Action::Park);
    run.input(InputBody::Resume);
    assert!(matches!(run.settle(), Action::CallModel { .. }));
}

#[test]
fn a_cancelled_session_takes_nothing_more() {
    let mut run = Driven::new();
    run.say("go");
    run.answer(AnswerStop::ToolUse, vec![tool("bash", "{}")]);
    let drafts = cancelled(&run.session, "killed");
    run.record(drafts);
    assert_eq!(run.session.phase(), Phase::Cancelled);
    assert_eq!(accept(&run.session, &[], &InputBody::Message { content: vec![] }, run.now), Err(Refused::Ended));
    assert_eq!(accept(&run.session, &[], &InputBody::Cancel, run.now), Ok(Accepted::Nothing));
}

#[test]
fn z_54_a_full_inbox_refuses_messages_and_keeps_room_for_answers() {
    let mut run = Driven::new();
    run.say("ship");
    run.answer(AnswerStop::ToolUse, vec![tool("push", "{}")]);
    run.settle();
    let message = InputBody::Message { content: vec![] };
    let queued: Vec<Input> =
        (0..MAX_INBOX).map(|_| Input { id: run.id(), at: run.now, body: message.clone() }).collect();
    assert_eq!(accept(&run.session, &queued, &message, run.now), Err(Refused::Full));
    let answer = InputBody::Confirmation { tool_use_id: run.open("push"), decision: Decision::Allow };
    assert_eq!(accept(&run.session, &queued, &answer, run.now), Ok(Accepted::Append));
    assert_eq!(accept(&run.session, &queued, &InputBody::Cancel, run.now), Ok(Accepted::Append));
}

#[test]
fn o_053_the_first_answer_wins() {
    let mut run = Driven::new();
    run.say("ship");
    run.answer(AnswerStop::ToolUse, vec![tool("push", "{}")]);
    run.settle();
    let tool_use_id = run.open("push");
    let first =
        Input { id: run.id(), at: run.now, body: InputBody::Confirmation { tool_use_id, decision: Decision::Allow } };
    let second = InputBody::Confirmation { tool_use_id, decision: Decision::Deny { message: None } };
    assert_eq!(accept(&run.session, std::slice::from_ref(&first), &second, run.now), Ok(Accepted::Repeats(first.id)));
    run.input(first.body);
    assert_eq!(accept(&run.session, &[], &second, run.now), Ok(Accepted::Answered));
}

#[test]
fn an_event_that_cannot_follow_leaves_the_session_unchanged() {
    let mut run = Driven::new();
    run.say("hi");
    let before = run.session.clone();
    let bodies = [
        Body::AgentToolResult { tool_use_id: EventId::from_bits(9), content: vec![], outcome: Outcome::Done },
        Body::ToolStarted { tool_use_id: EventId::from_bits(9) },
    ];
    for body in bodies {
        let event = Event { id: EventId::from_bits(1), seq: before.last_seq + 1, at: run.now, step: 0, body };
        assert!(apply(&mut run.session, &event).is_err());
        assert_eq!(run.session, before);
    }
    let gap =
        Event { id: EventId::from_bits(1), seq: before.last_seq + 2, at: run.now, step: 0, body: Body::StatusRunning };
    assert!(apply(&mut run.session, &gap).is_err());
}

#[test]
fn p_03_a_call_that_must_not_happen_twice_is_never_started_twice_wherever_the_holder_dies() {
    let mut run = Driven::new();
    run.say("go");
    run.answer(AnswerStop::ToolUse, vec![tool("bash", r#"{"command":"pay"}"#), tool("read", "{}")]);
    run.run("paid");
    run.run("x");
    run.answer(AnswerStop::EndTurn, vec![text("done")]);
    // Crash after each row: fold the prefix, recover, and look at what would be run.
    for cut in 1..=run.log.len() {
        let mut other = Driven::new();
        other.now = run.now;
        for event in &run.log[..cut] {
            apply(&mut other.session, event).unwrap();
        }
        let was_started = run.log[..cut].iter().any(|event| matches!(event.body, Body::ToolStarted { .. }));
        let drafts = recover(&other.session, UnknownOutcome::TellModel, other.now);
        other.record(drafts);
        if let Action::RunCalls(ids) = other.settle() {
            let runs_bash = ids.iter().any(|id| other.session.call(*id).unwrap().name == "bash");
            assert!(!(was_started && runs_bash), "after row {cut}");
        }
    }
}

#[test]
fn p_13_a_session_that_was_set_aside_says_why_and_goes_on_when_somebody_says_so() {
    for go_on in [InputBody::Resume, InputBody::Message { content: vec![Block::Text("again".into())] }] {
        let mut run = Driven::new();
        run.say("go");
        run.begin();
        let drafts = recover(&run.session, UnknownOutcome::TellModel, run.now);
        assert!(!drafts.iter().any(|draft| draft.body.is_progress()), "a lost holder moves nothing: {drafts:?}");
        run.record(drafts);
        let drafts = set_aside(&run.session, "its worker was lost 3 times in a row during this step", run.now);
        run.record(drafts);
        assert_eq!(run.settle(), Action::Park);
        assert_eq!((run.session.phase(), run.session.wakes_at()), (Phase::NeedsYou, None));
        let why = explain(&run.session);
        assert!(why.text.contains("lost 3 times in a row") && !why.unblock.is_empty(), "{why:?}");
        assert_eq!(set_aside(&run.session, "again", run.now), [], "once is enough");
        run.input(go_on);
        assert!(matches!(run.settle(), Action::CallModel { attempt: 1, .. }), "nothing counts as a failure");
    }
}
