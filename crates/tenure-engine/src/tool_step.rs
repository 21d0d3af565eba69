//! Tool calls: the intent is committed before the effect, the result after it (promise P3).

use crate::advance::Advance;
use crate::error::Stopped;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use std::time::Duration;
use tenure_core::{
    Body, Call, CallKind, CallbackId, Done, Draft, EventId, Json, MAX_WAIT, Outcome, SnapshotReason, callback_result,
    finished, set_aside, wait_tool,
};
use tenure_store::Then;
use tenure_tools::WaitCall;
use tokio_util::sync::CancellationToken;

/// How long a callback can be answered, in milliseconds, if the model does not say.
const CALLBACK_LIFE: u64 = 7 * 24 * 3_600 * 1_000;

/// How long killed processes may take to be gone.
const KILL_TIME: Duration = Duration::from_secs(5);

impl Advance {
    /// Runs one call, or several that change nothing.
    pub(crate) async fn run_calls(&mut self, ids: &[EventId]) -> Result<(), Stopped> {
        let session = self.journal.session();
        let calls: Vec<Call> = ids.iter().filter_map(|id| session.call(*id).cloned()).collect();
        match calls.as_slice() {
            [call] if call.kind != CallKind::Sandbox => self.wait_call(call).await,
            _ => self.sandbox_calls(&calls).await,
        }
    }

    async fn sandbox_calls(&mut self, calls: &[Call]) -> Result<(), Stopped> {
        if let [call] = calls
            && !call.effect.may_repeat()
        {
            self.journal.push(Draft::of_step(call.step, Body::ToolStarted { tool_use_id: call.id }))?;
        }
        self.journal.commit(Then::Keep).await?;
        if self.journal.has_urgent() {
            return Ok(());
        }
        let cancel = CancellationToken::new();
        // Whatever way this step ends, its processes end with it.
        let _guard = cancel.clone().drop_guard();
        let mut running = FuturesUnordered::new();
        for call in calls {
            let input = self.input(call).await?;
            let runner = self.services.runner(self.journal.session(), &self.held);
            self.services.may_start_effect(&self.held)?;
            let cancel = cancel.clone();
            let observed = self.services.observer.tool(self.held.trace, self.held.lease.session, call, &input);
            running.push(async move {
                let ran = runner.run(call, input, cancel).await;
                observed.done(&ran.done);
                (call, ran)
            });
        }
        loop {
            let finished_call = tokio::select! {
                biased;
                next = running.next() => next,
                stop = self.must_stop() => {
                    stop?;
                    // The launcher is told to end the processes, and does so before it takes another
                    // command; a cancel waits for the end of the whole sandbox besides (promise P15).
                    // What the calls gave is dropped: the intake of the interrupt gives them their results.
                    cancel.cancel();
                    let _ = tokio::time::timeout(KILL_TIME, running.by_ref().for_each(|_| std::future::ready(()))).await;
                    return self.note_out_of_time();
                }
            };
            let Some((call, ran)) = finished_call else { return Ok(()) };
            self.journal.push_all(ran.notes)?;
            if let Some(reason) = ran.blocked {
                // The call stays open: it did not run, and nothing may run without the files.
                let drafts = set_aside(self.journal.session(), &reason, self.services.clock.now());
                self.journal.push_all(drafts)?;
                cancel.cancel();
                return Ok(());
            }
            self.journal.push(finished(call, ran.done))?;
            self.store_files(SnapshotReason::Step).await?;
            if !running.is_empty() {
                // A result that is here must not be lost because a neighbour is slow (case O-015).
                self.journal.commit(Then::Keep).await?;
            }
        }
    }

    /// The input of a call, from its row in the log.
    async fn input(&mut self, call: &Call) -> Result<Json, Stopped> {
        let committed = self.journal.take_committed();
        self.context.extend(committed);
        let session = self.journal.session().clone();
        let row = self.context.row(&*self.services.store, &session, call.seq).await?;
        match row.map(|row| row.body) {
            Some(Body::AgentToolUse { input, .. } | Body::AgentCustomToolUse { input, .. }) => Ok(input),
            _ => Ok(Json::object()),
        }
    }

    /// Calls that become waits, or that only the engine can carry out.
    async fn wait_call(&mut self, call: &Call) -> Result<(), Stopped> {
        self.journal.commit(Then::Keep).await?;
        let input = self.input(call).await?;
        let now = self.services.clock.now();
        match WaitCall::parse(&call.name, input.as_str()) {
            Err(message) => self.give(call, Done::text(Outcome::Failed, message)),
            Ok(WaitCall::Sleep { millis: 0 }) => self.give(call, Done::text(Outcome::Done, "The time is over.")),
            Ok(WaitCall::Sleep { millis }) if millis > MAX_WAIT => {
                self.give(call, Done::text(Outcome::Failed, "seconds: longer than ten years; ask for less."))
            }
            Ok(WaitCall::Sleep { millis }) => {
                let draft = wait_tool(self.journal.session(), call.id, None, Some(millis), now);
                self.record(vec![draft]).await
            }
            Ok(WaitCall::CreateCallback { label, expires_millis }) => {
                let id = self.services.chance.callback();
                let expires_at = now.after(expires_millis.unwrap_or(CALLBACK_LIFE).min(MAX_WAIT));
                let created = Draft::of_step(call.step, Body::CallbackCreated { callback: id, label, expires_at });
                if self.journal.push(created).is_err() {
                    let text = "Too many callbacks are open; wait for one of them first.";
                    return self.give(call, Done::text(Outcome::Failed, text));
                }
                // The log holds the id; whoever may see the link gets it rendered (design 7.9).
                let result = callback_made(&id, &self.services.options.public_url);
                self.give(call, Done::text(Outcome::Done, result))
            }
            Ok(WaitCall::WaitForCallback { callback, timeout_millis }) => {
                let Some(open) = self.journal.session().callback(callback).copied() else {
                    let text =
                        format!("callback_id: {callback} does not exist in this session; create_callback makes one.");
                    return self.give(call, Done::text(Outcome::Failed, text));
                };
                match open.received_seq {
                    Some(seq) => {
                        let done = self.received(seq).await?;
                        self.give(call, done)
                    }
                    None => {
                        let left = open.expires_at.since(now);
                        let span = timeout_millis.map_or(left, |timeout| timeout.min(left));
                        let draft = wait_tool(self.journal.session(), call.id, Some(callback), Some(span), now);
                        self.record(vec![draft]).await
                    }
                }
            }
        }
    }

    /// The answer that came before anybody waited for it (case O-051).
    async fn received(&mut self, seq: u64) -> Result<Done, Stopped> {
        let session = self.journal.session().clone();
        let row = self.context.row(&*self.services.store, &session, seq).await?;
        Ok(match row.map(|row| row.body) {
            Some(Body::CallbackReceived { body, .. }) => callback_result(&body),
            _ => Done::text(Outcome::Failed, "The answer of this callback cannot be read any more."),
        })
    }

    fn give(&mut self, call: &Call, done: Done) -> Result<(), Stopped> {
        self.journal.push(finished(call, done)).map(drop).map_err(Stopped::from)
    }
}

/// What the model is told about a new callback; the link is a placeholder until somebody who may see it reads it.
///
/// A link that only this machine reaches is said to be one, before the model gives it to a job elsewhere that
/// then never answers (hazard Z-50).
fn callback_made(id: &CallbackId, public_url: &str) -> String {
    let warning = if tenure_api::client::is_loopback_address(public_url) {
        r#","warning":"only programs on this machine reach the url: the operator set no public_url""#
    } else {
        ""
    };
    format!(r#"{{"callback_id":"{id}","url":"{{{{callback:{id}}}}}"{warning}}}"#)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn z_50_a_new_callback_says_whether_only_this_machine_reaches_it() {
        let id = CallbackId::from_bits(1);
        for (public_url, is_warned) in [("http://127.0.0.1:7373", true), ("https://tenure.example", false)] {
            let made = Json::parse(&callback_made(&id, public_url)).expect("an object").to_value();
            assert_eq!(made["callback_id"], id.to_string());
            assert_eq!(made["url"], tenure_api::callback::placeholder(id));
            assert_eq!(made.get("warning").is_some(), is_warned, "{public_url}");
        }
    }
}
