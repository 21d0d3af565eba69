//! Payloads that are too large for a row.

use super::Harness;
use super::fixture::{create, deliver, hold, log, message, node};
use crate::{Kind, MAX_EVENT_BYTES, MAX_INLINE_BYTES, Receipt, Then};
use tenure_core::{Block, Body, InputBody, Origin};

/// Inputs and events, below and above the size at which they leave the row, over a restart.
pub async fn z_15_large_payloads_come_back_whole(harness: &dyn Harness) {
    let store = harness.store();
    let node = node(&*store).await;
    let sizes = [MAX_INLINE_BYTES - 200, MAX_INLINE_BYTES, MAX_INLINE_BYTES * 2, 5_000_000];
    let text = |size: usize| "0123456789abcdef".repeat(size / 16);
    let id = create(&*store, sizes.iter().map(|size| message(&text(*size))).collect()).await;
    let mut holder = hold(&*store, node).await;
    let bodies: Vec<InputBody> = holder.take_all().into_iter().map(|input| input.body).collect();
    assert!(bodies == sizes.map(|size| message(&text(size))), "inputs come back");
    for size in sizes {
        holder.push(Body::AgentMessage { text: text(size), origin: Origin::default() });
        // Twice the same content is one payload.
        holder.push(Body::AgentMessage { text: text(size), origin: Origin::default() });
    }
    let checkpoint = holder.checkpoint(Then::Park);
    store.commit(checkpoint.clone()).await.expect("the lease is held");
    harness.reopen().await;
    assert!(log(&*harness.store(), id).await == checkpoint.events, "events come back");
}

/// A large result of the client's tool is found again like a small one.
pub async fn a_large_answer_counts_once(harness: &dyn Harness) {
    let store = harness.store();
    let node = node(&*store).await;
    let id = create(&*store, vec![message("go")]).await;
    let mut holder = hold(&*store, node).await;
    let call = holder.ask_client();
    holder.park(&*store).await;
    let content = vec![Block::Text("x".repeat(MAX_INLINE_BYTES * 3))];
    let answer = || InputBody::CustomResult { tool_use_id: call, content: content.clone(), is_error: false };
    let first = deliver(&*store, id, answer()).await.expect("it is asked for");
    let other = InputBody::CustomResult { tool_use_id: call, content: Vec::new(), is_error: true };
    let second = deliver(&*store, id, other).await.expect("it is asked for");
    assert!(first.receipts == second.receipts, "the first counts");
    let mut holder = hold(&*store, node).await;
    let inputs = holder.take_all();
    assert_eq!(inputs.len(), 1);
    holder.push_as(
        inputs[0].id,
        Body::UserCustomToolResult { tool_use_id: call, content: content.clone(), is_error: false },
    );
    holder.park(&*store).await;
    let third = deliver(&*store, id, answer()).await.expect("it was a call");
    assert!(matches!(third.receipts.as_slice(), [Receipt::Logged(event)] if event.id == inputs[0].id));
}

/// Nothing is cut: it is refused.
pub async fn an_event_beyond_the_limit_is_refused(harness: &dyn Harness) {
    let store = harness.store();
    let node = node(&*store).await;
    let id = create(&*store, vec![message("go")]).await;
    let mut holder = hold(&*store, node).await;
    let before = holder.clone();
    holder.say(&"x".repeat(MAX_EVENT_BYTES));
    assert_eq!(holder.commit(&*store, Then::Keep).await.expect_err("it is too large").kind, Kind::Invalid);
    assert_eq!(
        deliver(&*store, id, message(&"x".repeat(MAX_EVENT_BYTES))).await.expect_err("it is too large").kind,
        Kind::Invalid
    );
    let mut holder = before;
    holder.say("smaller");
    holder.commit(&*store, Then::Keep).await.expect("the lease is still held");
}
