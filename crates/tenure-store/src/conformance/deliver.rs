//! Inputs reach a session.

use super::Harness;
use super::fixture::{
    Holder, all_sessions, allow, claim, create, deliver, delivery, deny, event_id, hold, message, node, view,
};
use crate::{Hint, Kind, Receipt, State, Then};
use tenure_core::{Body, CallbackId, Decision, End, InputBody, MAX_INBOX, Outcome, Timestamp, WaitKind};
use tokio::sync::broadcast::error::TryRecvError;

/// First come, first served.
pub async fn inputs_keep_their_order_and_wake_the_session(harness: &dyn Harness) {
    let store = harness.store();
    let id = create(&*store, Vec::new()).await;
    for text in ["one", "two", "three"] {
        deliver(&*store, id, message(text)).await.expect("it is taken");
    }
    let inbox = store.inbox(id).await.expect("it can be read");
    let found: Vec<_> = inbox.iter().map(|(position, input)| (*position, input.body.clone())).collect();
    assert_eq!(found, [(1, message("one")), (2, message("two")), (3, message("three"))]);
    assert_eq!(view(&*store, id).await.state, State::Queued);
}

/// One bad input refuses its batch.
pub async fn a_batch_is_taken_whole_or_not_at_all(harness: &dyn Harness) {
    let store = harness.store();
    let id = create(&*store, Vec::new()).await;
    let refused = store.deliver(delivery(id, vec![message("one"), allow(event_id()), message("two")])).await;
    assert_eq!(refused.expect_err("it answers nothing").kind, Kind::NotFound);
    let view = view(&*store, id).await;
    assert_eq!((view.state, view.inbox_len), (State::Parked, 0));
    let taken = store.deliver(delivery(id, vec![message("one"), message("two")])).await.expect("it is taken");
    assert_eq!(taken.receipts.len(), 2);
}

/// Two messages to an idle session: both are kept, and one worker gets it.
pub async fn o_028_two_messages_at_once_are_kept_and_lead_to_one_lease(harness: &dyn Harness) {
    let store = harness.store();
    let node = node(&*store).await;
    for _ in 0..100 {
        let id = create(&*store, Vec::new()).await;
        let (one, two) = (deliver(&*store, id, message("one")), deliver(&*store, id, message("two")));
        let (first, second) = (claim(&*store, node, 8), claim(&*store, node, 8));
        let (one, two, mut leased, more) = tokio::join!(one, two, first, second);
        one.expect("it is taken");
        two.expect("it is taken");
        leased.extend(more);
        leased.extend(claim(&*store, node, 8).await);
        assert_eq!(leased.len(), 1, "one lease");
        let mut holder = Holder::new(leased.remove(0));
        // A message that came after the claim is seen at the next step boundary.
        let mut texts = holder.take_all();
        holder.say("hello");
        holder.commit(&*store, Then::Keep).await.expect("the lease is held");
        texts.extend(holder.take_all());
        assert_eq!(texts.len(), 2, "nothing lost, nothing doubled");
        holder.park(&*store).await;
    }
}

/// Two approvals one after the other, with restarts between.
pub async fn o_050_each_answer_makes_the_session_runnable(harness: &dyn Harness) {
    let mut node_of_round = node(&*harness.store()).await;
    let id = create(&*harness.store(), vec![message("go")]).await;
    for _ in 0..2 {
        let store = harness.store();
        let mut holder = hold(&*store, node_of_round).await;
        for input in holder.take_all() {
            if let InputBody::Confirmation { tool_use_id, decision } = input.body {
                holder.push_as(input.id, Body::UserToolConfirmation { tool_use_id, decision });
                holder.push(Body::AgentToolResult { tool_use_id, content: Vec::new(), outcome: Outcome::Done });
            }
        }
        let call = holder.ask();
        holder.wait(WaitKind::Action, None);
        holder.park(&*store).await;
        assert_eq!(view(&*store, id).await.state, State::Parked);
        harness.reopen().await;
        let store = harness.store();
        deliver(&*store, id, allow(call)).await.expect("it is asked for");
        assert_eq!(view(&*store, id).await.state, State::Queued, "recorded and runnable at once");
        harness.reopen().await;
        node_of_round = node(&*harness.store()).await;
    }
}

/// The callback's answer comes before anybody waits for it, and twice.
pub async fn o_051_a_callback_before_its_wait_is_kept_once(harness: &dyn Harness) {
    let store = harness.store();
    let node = node(&*store).await;
    let id = create(&*store, vec![message("go")]).await;
    let mut holder = hold(&*store, node).await;
    holder.take_all();
    let callback = CallbackId::from_bits(5);
    let expires_at = store.now().await.expect("the clock can be read").after(60_000);
    holder.push(Body::CallbackCreated { callback, label: "ci".to_owned(), expires_at });
    holder.commit(&*store, Then::Keep).await.expect("the lease is held");
    let answer = || InputBody::Callback { callback, body: "green".to_owned() };
    let first = deliver(&*store, id, answer()).await.expect("it is open");
    let again = deliver(&*store, id, answer()).await.expect("it is open");
    assert_eq!(first.receipts, again.receipts, "the second is the first");
    let held = holder.commit(&*store, Then::Park).await.expect("the lease is held");
    assert!(held.is_held, "the answer waits");
    let inputs = holder.take_all();
    assert_eq!(inputs.len(), 1, "kept once");
    holder.push_as(inputs[0].id, Body::CallbackReceived { callback, body: "green".to_owned() });
    holder.park(&*store).await;
    let late = deliver(&*store, id, answer()).await.expect("it is known");
    assert_eq!(late.receipts, [Receipt::Nothing]);
    let unknown = InputBody::Callback { callback: CallbackId::from_bits(6), body: String::new() };
    assert_eq!(deliver(&*store, id, unknown).await.expect_err("there is none").kind, Kind::NotFound);
}

/// A yes after the deadline's no is told that no counts.
pub async fn z_25_an_answer_after_the_deadline_gets_what_counts(harness: &dyn Harness) {
    let store = harness.store();
    let node = node(&*store).await;
    let id = create(&*store, vec![message("go")]).await;
    let mut holder = hold(&*store, node).await;
    let call = holder.ask();
    let denied =
        holder.push(Body::AgentToolResult { tool_use_id: call, content: Vec::new(), outcome: Outcome::Denied });
    holder.park(&*store).await;
    let delivered = deliver(&*store, id, allow(call)).await.expect("it was a call");
    match delivered.receipts.as_slice() {
        [Receipt::Logged(event)] => assert_eq!(event.id, denied),
        other => panic!("the answer that counts is in the log: {other:?}"),
    }
    assert_eq!(view(&*store, id).await.state, State::Parked, "nothing to do");
}

/// Two people answer: the first one counts, before and after it is consumed.
pub async fn the_first_of_two_answers_counts(harness: &dyn Harness) {
    let store = harness.store();
    let node = node(&*store).await;
    let id = create(&*store, vec![message("go")]).await;
    let mut holder = hold(&*store, node).await;
    let call = holder.ask();
    holder.park(&*store).await;
    let first = deliver(&*store, id, deny(call)).await.expect("it is asked for");
    let second = deliver(&*store, id, allow(call)).await.expect("it is asked for");
    assert_eq!(first.receipts, second.receipts);
    assert_eq!(store.inbox(id).await.expect("it can be read").len(), 1);
    let both = store.deliver(delivery(id, vec![allow(call), deny(call)])).await.expect("it is asked for");
    assert_eq!(both.receipts, [first.receipts[0].clone(), first.receipts[0].clone()]);
    let mut holder = hold(&*store, node).await;
    let inputs = holder.take_all();
    let decision = Decision::Deny { message: None };
    holder.push_as(inputs[0].id, Body::UserToolConfirmation { tool_use_id: call, decision: decision.clone() });
    holder.push(Body::AgentToolResult { tool_use_id: call, content: Vec::new(), outcome: Outcome::Denied });
    holder.park(&*store).await;
    let third = deliver(&*store, id, allow(call)).await.expect("it was a call");
    match third.receipts.as_slice() {
        [Receipt::Logged(event)] => assert_eq!(event.body, Body::UserToolConfirmation { tool_use_id: call, decision }),
        other => panic!("the answer that counts is in the log: {other:?}"),
    }
}

/// An id that was never a call is a mistake of the caller, and the message names it.
pub async fn an_answer_to_an_unknown_call_names_it(harness: &dyn Harness) {
    let store = harness.store();
    let id = create(&*store, Vec::new()).await;
    let call = event_id();
    let error = deliver(&*store, id, allow(call)).await.expect_err("there is no such call");
    assert_eq!(error.kind, Kind::NotFound);
    assert!(error.message.contains(&call.to_string()), "{}", error.message);
}

/// An ended session says so, except to those who want it to end.
pub async fn an_ended_session_takes_nothing_new(harness: &dyn Harness) {
    let store = harness.store();
    let node = node(&*store).await;
    let id = create(&*store, vec![InputBody::Cancel]).await;
    let mut holder = hold(&*store, node).await;
    holder.take_all();
    holder.push(Body::StatusTerminated { end: End::Cancelled { processes: "nothing was running".to_owned() } });
    holder.commit(&*store, Then::Keep).await.expect("the lease is held");
    assert_eq!(deliver(&*store, id, message("hello?")).await.expect_err("it has ended").kind, Kind::Conflict);
    assert_eq!(deliver(&*store, id, InputBody::Cancel).await.expect("it is so").receipts, [Receipt::Nothing]);
    let seen = view(&*store, id).await;
    assert_eq!((seen.state, seen.archived_at, seen.inbox_len), (State::Ended, None, 0));
    assert_eq!(deliver(&*store, id, InputBody::Archive).await.expect("it is so").receipts, [Receipt::Nothing]);
    assert!(view(&*store, id).await.archived_at.is_some(), "put away");
    let listed =
        store.sessions(crate::SessionQuery { with_archived: false, ..all_sessions() }).await.expect("it can be read");
    assert!(listed.is_empty());
}

/// Nobody can fill the store through one paused session, and it can still be ended.
pub async fn z_54_a_full_inbox_refuses_messages_and_keeps_room_for_cancel(harness: &dyn Harness) {
    let store = harness.store();
    let id = create(&*store, Vec::new()).await;
    for _ in 0..MAX_INBOX / 100 {
        store.deliver(delivery(id, vec![message("more"); 100])).await.expect("there is room");
    }
    assert_eq!(deliver(&*store, id, message("too much")).await.expect_err("it is full").kind, Kind::Full);
    deliver(&*store, id, InputBody::Interrupt).await.expect("there is room for controls");
    deliver(&*store, id, InputBody::Cancel).await.expect("cancel is always taken");
    assert_eq!(view(&*store, id).await.inbox_len, MAX_INBOX as u64 + 2);
}

/// The holder's node hears of an interrupt, until the holder has taken it.
pub async fn urgent_inputs_are_reported_until_they_are_consumed(harness: &dyn Harness) {
    let store = harness.store();
    let node = node(&*store).await;
    let id = create(&*store, vec![message("go")]).await;
    let mut holder = hold(&*store, node).await;
    let controls = async || store.controls(node).await.expect("it can be read");
    assert_eq!(controls().await, []);
    deliver(&*store, id, InputBody::Interrupt).await.expect("it is taken");
    deliver(&*store, id, message("and then this")).await.expect("it is taken");
    assert_eq!(controls().await, [id]);
    holder.say("not yet");
    let committed = holder.commit(&*store, Then::Keep).await.expect("the lease is held");
    assert_eq!(committed.inbox.len(), 3);
    assert_eq!(controls().await, [id], "still waiting");
    holder.take_all();
    holder.say("stopped");
    holder.commit(&*store, Then::Keep).await.expect("the lease is held");
    assert_eq!(controls().await, []);
}

/// Whoever listens learns what to look at.
pub async fn hints_tell_what_changed(harness: &dyn Harness) {
    let store = harness.store();
    let id = create(&*store, Vec::new()).await;
    let mut hints = store.hints();
    deliver(&*store, id, InputBody::Interrupt).await.expect("it is taken");
    let mut wanted = vec![Hint::Session(id), Hint::Control(id), Hint::Runnable];
    while !wanted.is_empty() {
        match hints.recv().await.expect("hints go on") {
            Hint::Anything => {}
            hint => wanted.retain(|wanted| *wanted != hint),
        }
    }
    assert!(matches!(hints.try_recv(), Err(TryRecvError::Empty) | Ok(Hint::Anything | Hint::Session(_))));
    assert!(view(&*store, id).await.state_since > Timestamp(0));
}
