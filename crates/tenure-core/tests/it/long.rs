//! Conversations that become too long: what is sent instead, how often, and when it is given up.

use crate::random_log::log;
use crate::script::{Driven, failure, text, tool};
use proptest::prelude::*;
use tenure_core::failure::{Class, Failure};
use tenure_core::*;

/// What the provider of a test does with a request.
enum Reply {
    Says(String),
    Refuses(Failure),
}

/// A model that takes this many tokens, at four bytes each.
struct Provider<'a> {
    facts: ModelFacts,
    price: Option<Price>,
    /// Every request that reached it, with what it was for.
    seen: Vec<(Prompt, Purpose)>,
    reply: &'a mut dyn FnMut(&Prompt, Purpose) -> Reply,
}

const FACTS: ModelFacts = ModelFacts { context_window: None, max_request_bytes: 1_000_000, cuts_silently: false };

impl<'a> Provider<'a> {
    fn new(facts: ModelFacts, reply: &'a mut dyn FnMut(&Prompt, Purpose) -> Reply) -> Self {
        Self { facts, price: None, seen: Vec::new(), reply }
    }

    /// Does what a worker does until no model call is due any more.
    fn drive(&mut self, run: &mut Driven) {
        for _ in 0..50 {
            let Action::CallModel { step, attempt } = run.settle() else { return };
            let prompt = Prompt { messages: transcript(&run.log), ..base() };
            let rows: Vec<Event> =
                run.log.iter().filter(|row| row.seq >= run.session.context_from_seq).cloned().collect();
            let rows: Vec<&Event> = rows.iter().collect();
            let request = Request { prompt: &prompt, counted: None, facts: self.facts, price: self.price.as_ref() };
            match plan(&run.session, &run.policies, &request, &rows, run.now) {
                Plan::Record(drafts) => run.record(drafts),
                Plan::Send(sent) => self.exchange(run, step, attempt, prompt.clone(), sent),
                Plan::Summarise { keep_from, room, before } => {
                    let purpose = Purpose::Summary { keep_from, room, before };
                    let ask = summary_prompt(&run.session, &prompt, &rows, keep_from, room);
                    assert_eq!(validate::validate(&ask.messages), Ok(()));
                    let request = Request { prompt: &ask, ..request };
                    match reserve_summary(&run.session, &request, purpose, run.now) {
                        Err(drafts) => run.record(drafts),
                        Ok(sent) => self.exchange(run, step, attempt, ask, sent),
                    }
                }
            }
        }
        panic!("it never comes to rest: {:?}", run.session);
    }

    fn exchange(&mut self, run: &mut Driven, step: u64, attempt: u32, prompt: Prompt, sent: Sent) {
        let start = Body::SpanStart { model: base().model, attempt, instead_of: None, sent };
        run.record(vec![Draft::of_step(step, start)]);
        let reply = (self.reply)(&prompt, sent.purpose);
        self.seen.push((prompt, sent.purpose));
        let said = match reply {
            Reply::Says(said) => said,
            Reply::Refuses(failure) => {
                let attempt = Attempt { model: &base().model, ..Attempt::default() };
                let drafts = failed(&run.session, &failure, &attempt, &run.policies, 0, run.now);
                return run.record(drafts);
            }
        };
        let usage = Usage { input: sent.input_tokens, output: 5, ..Usage::default() };
        let block = AnswerBlock { id: Some(run.id()), kind: text(&said), raw: Vec::new() };
        let answer = Answer {
            dialect: "script".into(),
            model: base().model,
            blocks: vec![block],
            stop: AnswerStop::EndTurn,
            usage,
            request_id: None,
        };
        match sent.purpose {
            Purpose::Answer => {
                let drafts = answered(&run.session, answer, None, &|_| None, "");
                run.record(drafts);
            }
            Purpose::Summary { keep_from, before, .. } => self.compact(run, &answer, keep_from, before),
        }
    }

    fn compact(&mut self, run: &mut Driven, answer: &Answer, keep_from: u64, before: u64) {
        let Position::Calling { span, .. } = run.session.position else { panic!("no call is open") };
        let from = run.session.context_from_seq;
        let rows: Vec<Event> = run.log.iter().filter(|row| row.seq >= from).cloned().collect();
        let rows: Vec<&Event> = rows.iter().collect();
        let prompt = Prompt { messages: transcript(&run.log), ..base() };
        let summary = summary_of(&rows, keep_from, answer).unwrap();
        let end = Body::SpanEnd {
            span,
            model: base().model,
            is_error: false,
            usage: answer.usage,
            cost_usd_micros: None,
            assumed: Estimate::default(),
        };
        run.record(vec![Draft::of_step(run.session.last_step, end)]);
        match compaction(&run.session, &prompt, &rows, keep_from, summary, before) {
            Ok(draft) => run.record(vec![draft]),
            Err(after) => {
                let drafts = futile(&run.session, before, after, run.now);
                run.record(drafts);
            }
        }
    }

    fn purposes(&self) -> Vec<&'static str> {
        let name = |purpose: &Purpose| match purpose {
            Purpose::Answer => "answer",
            Purpose::Summary { .. } => "summary",
        };
        self.seen.iter().map(|(_, purpose)| name(purpose)).collect()
    }
}

fn base() -> Prompt {
    Prompt {
        model: "p/m".into(),
        model_name: "m".into(),
        system: Some("be good".into()),
        messages: Vec::new(),
        tools: Vec::new(),
        max_output_tokens: 100,
        cache_key: String::new(),
    }
}

fn refused(class: Class, message: &str) -> Reply {
    Reply::Refuses(Failure { message: message.into(), ..failure(class) })
}

/// A session with so many finished turns of some size; the last message is not answered yet.
fn long_session(turns: usize, bytes: usize) -> Driven {
    let mut run = Driven::new();
    run.session.budget.limits = Limits::NONE;
    for turn in 0..turns {
        run.say(&format!("question {turn}"));
        let input = format!(r#"{{"file_path":"{turn}"}}"#);
        run.answer(AnswerStop::ToolUse, vec![text("looking"), tool("read", &input)]);
        run.run(&"x".repeat(bytes));
        run.answer(AnswerStop::EndTurn, vec![text(&format!("answer {turn}"))]);
    }
    // What those answers taught was about another model.
    run.say("and now?");
    run
}

fn tokens(prompt: &Prompt) -> u64 {
    Size::of_prompt(prompt).text_bytes / 4
}

#[test]
fn o_019_an_overflow_is_answered_by_one_summary_and_the_smaller_request_goes_through() {
    let mut run = long_session(10, 1_000);
    let limit = 2_000;
    let mut reply = |prompt: &Prompt, purpose: Purpose| match purpose {
        _ if tokens(prompt) > limit => {
            let message = format!("prompt is too long: {} tokens > {limit} maximum", tokens(prompt));
            refused(Class::Overflow, &message)
        }
        Purpose::Summary { .. } => Reply::Says("the story so far".into()),
        Purpose::Answer => Reply::Says("here you are".into()),
    };
    let mut provider = Provider::new(FACTS, &mut reply);
    provider.drive(&mut run);
    assert_eq!(provider.purposes(), ["answer", "summary", "answer"]);
    assert_eq!(run.session.phase(), Phase::Idle);
    assert_eq!(run.session.learnt.max_tokens, Some(limit), "the limit is learnt from the words");
    let last = &provider.seen[2].0;
    let all = format!("{:?}", last.messages);
    assert!(all.contains("the story so far") && all.contains("and now?") && all.contains("answer 9"), "{all}");
    assert!(!all.contains("question 0"));
    assert!(
        run.log.iter().any(
            |row| matches!(&row.body, Body::UserMessage { content } if content == &[Block::Text("question 0".into())])
        ),
        "the log keeps everything"
    );
}

#[test]
fn o_019_a_summary_that_does_not_help_parks_and_nothing_is_sent_again_unchanged() {
    let mut run = long_session(10, 1_000);
    let mut reply = |_: &Prompt, purpose: Purpose| match purpose {
        Purpose::Answer => refused(Class::Overflow, "prompt is too long: 210000 tokens > 200000 maximum"),
        Purpose::Summary { .. } => Reply::Says("y".repeat(60_000)),
    };
    let mut provider = Provider::new(FACTS, &mut reply);
    provider.drive(&mut run);
    assert_eq!(provider.purposes(), ["answer", "summary"]);
    assert_eq!(run.session.phase(), Phase::NeedsYou);
    assert!(matches!(run.session.wait.as_ref().unwrap().kind, WaitKind::Upstream { class: Class::Overflow }));
    let told = run.log.iter().rev().find_map(|row| match &row.body {
        Body::Error { message, .. } => Some(message.clone()),
        _ => None,
    });
    assert!(told.unwrap().contains("a summary did not help"));
    assert_eq!(run.session.context_from_seq, 1, "the whole history stays what it was");
}

#[test]
fn o_019_a_provider_that_refuses_everything_is_asked_three_times_in_all() {
    let mut run = long_session(10, 1_000);
    let mut reply = |_: &Prompt, _: Purpose| refused(Class::Overflow, "context_length_exceeded");
    let mut provider = Provider::new(FACTS, &mut reply);
    provider.drive(&mut run);
    assert_eq!(provider.purposes(), ["answer", "summary", "summary"]);
    let sizes: Vec<u64> = provider.seen.iter().map(|(prompt, _)| tokens(prompt)).collect();
    assert!(sizes[1] < sizes[0] && sizes[2] < sizes[1], "each one smaller: {sizes:?}");
    assert_eq!(run.session.phase(), Phase::NeedsYou);
}

#[test]
fn o_019_instructions_that_fill_the_window_alone_park_without_a_summary() {
    let mut run = long_session(3, 1_000);
    let facts = ModelFacts { context_window: Some(150), ..FACTS };
    let mut reply = |_: &Prompt, _: Purpose| panic!("nothing may be sent");
    let mut provider = Provider::new(facts, &mut reply);
    let base = Prompt { system: Some("z".repeat(5_000)), ..base() };
    let Action::CallModel { .. } = run.settle() else { panic!() };
    let prompt = Prompt { messages: transcript(&run.log), ..base };
    let rows: Vec<&Event> = run.log.iter().collect();
    let request = Request { prompt: &prompt, counted: None, facts, price: None };
    let Plan::Record(drafts) = plan(&run.session, &run.policies, &request, &rows, run.now) else { panic!() };
    run.record(drafts);
    provider.drive(&mut run);
    assert_eq!(run.session.phase(), Phase::NeedsYou);
    assert!(provider.seen.is_empty());
}

#[test]
fn a_conversation_is_summarised_before_the_provider_refuses_it() {
    let mut run = long_session(10, 1_000);
    let facts = ModelFacts { context_window: Some(2_000), ..FACTS };
    let mut reply = |prompt: &Prompt, purpose: Purpose| {
        assert!(tokens(prompt) <= 2_000, "nothing is sent that cannot fit");
        match purpose {
            Purpose::Summary { .. } => Reply::Says("the story so far".into()),
            Purpose::Answer => Reply::Says("here you are".into()),
        }
    };
    let mut provider = Provider::new(facts, &mut reply);
    provider.drive(&mut run);
    assert_eq!(provider.purposes(), ["summary", "answer"]);
    for turn in 0..40 {
        run.say(&format!("more {turn} {}", "w".repeat(400)));
        provider.drive(&mut run);
        assert_eq!(run.session.phase(), Phase::Idle);
    }
    let summaries = provider.purposes().iter().filter(|purpose| **purpose == "summary").count();
    assert!((3..15).contains(&summaries), "{summaries} for 40 turns");
}

#[test]
fn without_the_policy_nothing_is_summarised_and_a_refusal_parks_at_once() {
    let mut run = long_session(10, 1_000);
    run.policies.compaction.mode = CompactionMode::Off;
    let mut reply = |_: &Prompt, _: Purpose| refused(Class::Overflow, "prompt is too long");
    let mut provider = Provider::new(FACTS, &mut reply);
    provider.drive(&mut run);
    assert_eq!(provider.purposes(), ["answer"]);
    assert_eq!(run.session.phase(), Phase::NeedsYou);
}

fn image(bytes: usize) -> Block {
    let json = format!(r#"{{"type":"image","source":{{"type":"base64","data":"{}"}}}}"#, "A".repeat(bytes));
    Block::Media { kind: MediaKind::Image, json: Json::parse(&json).unwrap() }
}

fn session_with_images(count: usize, bytes: usize) -> Driven {
    let mut run = Driven::new();
    run.session.budget.limits = Limits::NONE;
    for turn in 0..count {
        run.input(InputBody::Message { content: vec![Block::Text(format!("look at {turn}")), image(bytes)] });
        run.answer(AnswerStop::EndTurn, vec![text("nice")]);
    }
    run.say("and now?");
    run
}

#[test]
fn o_020_too_many_bytes_leave_out_the_oldest_images_and_the_step_is_tried_again() {
    let mut run = session_with_images(12, 10_000);
    let limit = 60_000;
    let mut reply = |prompt: &Prompt, _: Purpose| match Size::of_prompt(prompt).bytes() {
        bytes if bytes > limit => refused(Class::TooBig, "the provider answered with status 413"),
        _ => Reply::Says("fine".into()),
    };
    let mut provider = Provider::new(FACTS, &mut reply);
    provider.drive(&mut run);
    assert_eq!(run.session.phase(), Phase::Idle);
    let sizes: Vec<u64> = provider.seen.iter().map(|(prompt, _)| Size::of_prompt(prompt).bytes()).collect();
    assert!(sizes.windows(2).all(|pair| pair[1] < pair[0]), "no request is sent again unchanged: {sizes:?}");
    assert!(provider.purposes().iter().all(|purpose| *purpose == "answer"), "no summary is needed");
    let all = format!("{:?}", provider.seen.last().unwrap().0.messages);
    assert!(all.contains("image of 10 KiB left out") && all.contains("kept as event"), "named, not forgotten");
    let shown =
        provider.seen.last().unwrap().0.messages.iter().map(|message| Size::of_message(message).media).sum::<u64>();
    assert!(shown > 0, "the newest images stay");
}

#[test]
fn o_020_bytes_are_counted_before_anything_is_sent() {
    let mut run = session_with_images(12, 10_000);
    let facts = ModelFacts { max_request_bytes: 60_000, ..FACTS };
    let mut reply = |prompt: &Prompt, _: Purpose| {
        assert!(Size::of_prompt(prompt).bytes() <= 60_000);
        Reply::Says("fine".into())
    };
    let mut provider = Provider::new(facts, &mut reply);
    provider.drive(&mut run);
    assert_eq!(provider.purposes(), ["answer"]);
    assert_eq!(run.session.phase(), Phase::Idle);
}

#[test]
fn o_020_a_proxy_that_takes_nothing_is_not_asked_for_ever() {
    let mut run = session_with_images(12, 10_000);
    let mut reply = |_: &Prompt, _: Purpose| refused(Class::TooBig, "413");
    let mut provider = Provider::new(FACTS, &mut reply);
    provider.drive(&mut run);
    assert_eq!(run.session.phase(), Phase::NeedsYou);
    assert!(provider.seen.len() < 12, "{} requests", provider.seen.len());
}

#[test]
fn o_026_a_summary_never_parts_a_call_from_its_result_and_two_in_a_row_are_valid() {
    let mut run = long_session(20, 300);
    let facts = ModelFacts { context_window: Some(1_200), ..FACTS };
    let mut reply = |prompt: &Prompt, purpose: Purpose| {
        assert_eq!(validate::validate(&prompt.messages), Ok(()));
        for message in &prompt.messages {
            let Message::User(parts) = message else { continue };
            let lost = |part: &UserPart| format!("{part:?}").contains("has no result");
            assert!(!parts.iter().any(lost), "a call lost its result: {parts:?}");
        }
        match purpose {
            Purpose::Summary { .. } => Reply::Says("short".into()),
            Purpose::Answer => Reply::Says("fine".into()),
        }
    };
    let mut provider = Provider::new(facts, &mut reply);
    provider.drive(&mut run);
    for _ in 0..30 {
        run.say(&"more ".repeat(60));
        provider.drive(&mut run);
    }
    assert!(provider.purposes().iter().filter(|purpose| **purpose == "summary").count() >= 2);
    for end in 0..=run.log.len() {
        assert_eq!(validate::validate(&transcript(&run.log[..end])), Ok(()), "prefix of {end} rows");
    }
}

#[test]
fn what_the_operator_and_the_user_said_survives_summaries_word_for_word() {
    let mut run = Driven::new();
    run.session.budget.limits = Limits::NONE;
    run.input(InputBody::System { content: vec![Block::Text("never touch prod".into())] });
    run.say("migrate the tables, but keep the views");
    for file in 0..20 {
        run.answer(AnswerStop::ToolUse, vec![tool("read", &format!(r#"{{"file_path":"{file}"}}"#))]);
        run.run(&"x".repeat(300));
    }
    let facts = ModelFacts { context_window: Some(1_200), ..FACTS };
    let mut reply = |_: &Prompt, purpose: Purpose| match purpose {
        Purpose::Summary { .. } => Reply::Says("short".into()),
        Purpose::Answer => Reply::Says("done".into()),
    };
    let mut provider = Provider::new(facts, &mut reply);
    provider.drive(&mut run);
    let last = format!("{:?}", provider.seen.last().unwrap().0.messages);
    assert_eq!(provider.purposes(), ["summary", "answer"]);
    assert!(last.contains("never touch prod") && last.contains("keep the views"), "{last}");
}

#[test]
fn z_46_a_lost_call_is_charged_what_was_reserved_for_it() {
    let mut run = long_session(2, 400);
    let price = Price { input: 1_000_000, output: 1_000_000, cache_read: 0, cache_write: 0 };
    let Action::CallModel { step, attempt } = run.settle() else { panic!() };
    let prompt = Prompt { messages: transcript(&run.log), ..base() };
    let rows: Vec<&Event> = run.log.iter().collect();
    let request = Request { prompt: &prompt, counted: None, facts: FACTS, price: Some(&price) };
    let Plan::Send(sent) = plan(&run.session, &run.policies, &request, &rows, run.now) else { panic!() };
    assert!(sent.reserved.tokens > 0 && sent.reserved.cost_usd_micros.unwrap() > 0);
    run.record(vec![Draft::of_step(step, Body::SpanStart { model: "p/m".into(), attempt, instead_of: None, sent })]);
    let drafts = recover(&run.session, UnknownOutcome::TellModel, run.now);
    run.record(drafts);
    assert_eq!(run.session.budget.estimated_tokens, sent.reserved.tokens);
    assert_eq!(run.session.budget.estimated_cost_usd_micros, sent.reserved.cost_usd_micros.unwrap());
    assert_eq!(run.session.sent, None);
}

#[test]
fn p_11_a_cut_stream_is_charged_and_a_refused_request_is_not() {
    for (has_begun, expected) in [(true, true), (false, false)] {
        let mut run = long_session(2, 400);
        run.session.budget.has_unpriced = false;
        let Action::CallModel { step, attempt } = run.settle() else { panic!() };
        let sent = Sent { input_tokens: 300, ..Sent::default() };
        let start = Body::SpanStart { model: "p/m".into(), attempt, instead_of: None, sent };
        run.record(vec![Draft::of_step(step, start)]);
        let attempt = Attempt { model: "p/m", has_begun, received_bytes: 40, ..Attempt::default() };
        let failure = failure(if has_begun { Class::Incomplete } else { Class::Transient });
        let drafts = failed(&run.session, &failure, &attempt, &run.policies, 0, run.now);
        run.record(drafts);
        assert_eq!(run.session.budget.estimated_tokens, if expected { 310 } else { 0 });
        assert_eq!(run.session.budget.has_unpriced, expected, "an unknown price is said");
    }
}

#[test]
fn p_11_a_step_that_cannot_fit_is_not_sent_and_a_higher_limit_goes_on() {
    let mut run = long_session(2, 400);
    let used = run.session.budget.tokens();
    run.session.budget.limits = Limits { tokens: Some(used + 10), ..Limits::NONE };
    let mut reply = |_: &Prompt, _: Purpose| Reply::Says("fine".into());
    let mut provider = Provider::new(FACTS, &mut reply);
    provider.drive(&mut run);
    assert_eq!(provider.seen.len(), 0);
    assert_eq!(run.session.status, Status::Idle(Stop::BudgetReached));
    assert!(explain(&run.session).text.contains("leaves no room for the next step"));
    run.input(InputBody::Limits(Limits { tokens: Some(used + 100_000), ..Limits::NONE }));
    provider.drive(&mut run);
    assert_eq!(run.session.phase(), Phase::Idle);
}

#[test]
fn p_11_a_limit_of_money_and_no_price_waits_and_says_so() {
    let mut run = long_session(1, 100);
    run.session.budget.limits = Limits { cost_usd_micros: Some(1_000_000), ..Limits::NONE };
    let mut reply = |_: &Prompt, _: Purpose| Reply::Says("fine".into());
    let mut provider = Provider::new(FACTS, &mut reply);
    provider.drive(&mut run);
    assert_eq!(provider.seen.len(), 0);
    assert!(explain(&run.session).text.contains("the price of its model is not known"));
    provider.price = Some(Price { input: 0, output: 0, cache_read: 0, cache_write: 0 });
    run.input(InputBody::Resume);
    provider.drive(&mut run);
    assert_eq!(run.session.phase(), Phase::Idle, "once there is a price, it goes on");
}

#[test]
fn p_11_failed_calls_in_a_row_wait_and_a_message_goes_on() {
    let mut run = Driven::new();
    run.session.budget.limits = Limits { failures: Some(3), ..Limits::NONE };
    run.say("try");
    for input in ["1", "2", "3"] {
        let input = format!(r#"{{"command":"{input}"}}"#);
        run.answer(AnswerStop::ToolUse, vec![tool("bash", &input)]);
        let call = run.session.calls[0].clone();
        run.record(vec![finished(&call, Done::text(Outcome::Failed, "exit 1"))]);
    }
    assert_eq!(run.settle(), Action::Park);
    assert!(matches!(run.session.wait.as_ref().unwrap().kind, WaitKind::Budget { which: Which::Failures }));
    run.say("use the other tool");
    assert!(matches!(run.settle(), Action::CallModel { .. }));
}

#[test]
fn p_11_the_same_call_of_a_client_again_and_again_waits() {
    let mut run = Driven::new();
    run.session.budget.limits = Limits { identical_calls: Some(4), ..Limits::NONE };
    run.say("ask");
    for _ in 0..4 {
        run.answer(AnswerStop::ToolUse, vec![tool("form", r#"{"a":1}"#)]);
        run.settle();
        let tool_use_id = run.open("form");
        let content = vec![Block::Text("same".into())];
        run.input(InputBody::CustomResult { tool_use_id, content, is_error: false });
    }
    assert_eq!(run.settle(), Action::Park);
    assert!(matches!(run.session.wait.as_ref().unwrap().kind, WaitKind::Budget { which: Which::IdenticalCalls }));
}

#[test]
fn o_017_a_call_that_the_provider_cannot_read_is_told_to_the_model_and_bounded() {
    let mut run = Driven::new();
    run.say("go");
    for _ in 0..2 {
        run.fail(Class::Malformed);
        run.now = run.session.wakes_at().unwrap();
    }
    let told = format!("{:?}", transcript(&run.log));
    assert!(told.contains("your last answer was dropped"), "{told}");
    run.fail(Class::Malformed);
    assert_eq!(run.settle(), Action::Park);
    assert_eq!(run.session.phase(), Phase::NeedsYou);
}

#[test]
fn a_history_that_the_provider_refuses_is_sent_once_in_our_own_words() {
    let mut run = Driven::new();
    run.say("go");
    let origin = Origin { dialect: "anthropic".into(), model: "p/m".into(), blocks: vec![Json::object()] };
    run.begin();
    run.record(vec![
        Draft::of_step(1, Body::AgentThinking { text: "hm".into(), origin: origin.clone() }),
        Draft::of_step(1, Body::AgentMessage { text: "so".into(), origin }),
    ]);
    run.session.position = Position::Model;
    run.fail(Class::BadHistory);
    assert!(matches!(run.settle(), Action::CallModel { .. }), "one repaired request");
    let sent = format!("{:?}", transcript(&run.log));
    assert!(!sent.contains("anthropic") && !sent.contains("Thinking") && sent.contains("so"), "{sent}");
    run.fail(Class::BadHistory);
    assert_eq!(run.settle(), Action::Park);
    assert_eq!(run.session.phase(), Phase::NeedsYou);
}

#[test]
fn o_011_cut_calls_are_not_repeated_for_ever() {
    let mut run = Driven::new();
    run.say("write it");
    for _ in 0..3 {
        run.answer(AnswerStop::MaxTokens, vec![tool("bash", r#"{"command":"cat > a"}"#)]);
    }
    assert_eq!(run.settle(), Action::Park);
    assert!(matches!(run.session.wait.as_ref().unwrap().kind, WaitKind::Stuck));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn o_026_p4_every_prefix_is_valid_after_compactions_anywhere(
        script in proptest::collection::vec(any::<(u8, u8)>(), 1..50),
        cuts in proptest::collection::vec(any::<(prop::sample::Index, prop::sample::Index, bool)>(), 1..4),
    ) {
        let mut events = log(&script);
        if events.is_empty() {
            return Ok(());
        }
        for (at, keep, has_summary) in cuts {
            let at = at.index(events.len()) + 1;
            let keep_from = keep.index(at) as u64 + 1;
            let summary = has_summary.then(|| Summary { text: " ".into(), ..Summary::default() });
            let compacted = Compacted { from: 1, keep_from, media_from: keep_from, summary, ..Compacted::default() };
            let body = Body::ContextCompacted { compacted };
            events.insert(at, Event { id: EventId::from_bits(3), seq: 0, at: Timestamp(0), step: 0, body });
            for (place, event) in events.iter_mut().enumerate() {
                event.seq = place as u64 + 1;
            }
        }
        for end in 0..=events.len() {
            prop_assert_eq!(validate::validate(&transcript(&events[..end])), Ok(()));
            prop_assert_eq!(validate::validate(&transcript(&events[end..])), Ok(()));
        }
    }
}
