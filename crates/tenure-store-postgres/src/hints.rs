//! Hints that something changed: in this process at once, to others by notification, if there is one.
//!
//! A transaction that notifies holds a lock of the whole server until it is committed, so no hot
//! transaction does: one task collects what is to be told and tells it at most every [`COALESCE`].
//! Whoever waits for hints polls too; without notifications this module makes the others look.

use crate::link::unreachable;
use crate::options::Options;
use crate::trouble::Trouble;
use futures_util::{StreamExt, stream};
use std::collections::BTreeSet;
use std::time::Duration;
use tenure_core::SessionId;
use tenure_store::Hint;
use tokio::sync::{broadcast, mpsc};
use tokio_postgres::types::Type;
use tokio_postgres::{AsyncMessage, Client};
use tokio_util::sync::CancellationToken;

/// Hints that a reader may be behind.
const BACKLOG: usize = 4_096;

/// Hints that wait to be told to others; what is beyond them is told as "anything".
const MAX_WAITING: usize = 4_096;

/// Shortest time between two notifications.
const COALESCE: Duration = Duration::from_millis(10);

/// Longest payload of a notification, in bytes; the server takes less than 8,000.
const MAX_PAYLOAD: usize = 7_000;

/// How often others are made to look while there are no notifications; drawn between half and all of it.
const POLL: Duration = Duration::from_millis(500);

/// Wait before the connection for notifications is made again.
const AGAIN: Duration = Duration::from_secs(1);

/// The channel of notifications.
const CHANNEL: &str = "tenure";

/// Tells hints.
#[derive(Debug)]
pub(crate) struct Hints {
    here: broadcast::Sender<Hint>,
    others: mpsc::Sender<Hint>,
}

impl Hints {
    /// Starts the task that listens and tells.
    pub(crate) fn start(options: Options, stop: CancellationToken) -> Self {
        let here = broadcast::channel(BACKLOG).0;
        let (others, told) = mpsc::channel(MAX_WAITING);
        let task = Exchange { options, here: here.clone(), told };
        tokio::spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = task.run() => {}
            }
        });
        Self { here, others }
    }

    /// Tells what a committed transaction changed.
    pub(crate) fn tell(&self, hints: Vec<Hint>) {
        for hint in hints {
            // Nobody may listen; and a full queue is told as "anything" by whoever empties it.
            let _ = self.here.send(hint);
            let _ = self.others.try_send(hint);
        }
    }

    pub(crate) fn subscribe(&self) -> broadcast::Receiver<Hint> {
        self.here.subscribe()
    }
}

struct Exchange {
    options: Options,
    here: broadcast::Sender<Hint>,
    told: mpsc::Receiver<Hint>,
}

impl Exchange {
    async fn run(mut self) {
        loop {
            if self.options.notifies {
                match self.listen().await {
                    Ok(()) => return,
                    Err(error) => tracing::debug!(error = %error.into_error(), "no notifications; polling"),
                }
            }
            let pause = if self.options.notifies { AGAIN } else { POLL };
            tokio::time::sleep(pause.mul_f64(rand::random_range(0.5..1.0))).await;
            while self.told.try_recv().is_ok() {}
            let _ = self.here.send(Hint::Anything);
        }
    }

    /// Listens and tells until the connection breaks.
    async fn listen(&mut self) -> Result<(), Trouble> {
        let (client, mut connection) =
            self.options.config.connect(self.options.tls.clone()).await.map_err(unreachable)?;
        let own = rand::random::<u32>();
        let here = self.here.clone();
        let mut messages = stream::poll_fn(move |context| connection.poll_message(context));
        let heard = async {
            while let Some(message) = messages.next().await {
                match message {
                    Ok(AsyncMessage::Notification(told)) => hear(&here, own, told.payload()),
                    Ok(_) => {}
                    Err(error) => return Trouble::from(error),
                }
            }
            Trouble::Lost(tenure_store::Error::new(tenure_store::Kind::Retry, "the connection for notifications ended"))
        };
        let telling = tell_others(&client, &mut self.told, own);
        tokio::select! {
            trouble = heard => Err(trouble),
            told = telling => told,
        }
    }
}

async fn tell_others(client: &Client, told: &mut mpsc::Receiver<Hint>, own: u32) -> Result<(), Trouble> {
    client.batch_execute(&format!("LISTEN {CHANNEL}")).await?;
    let mut batch = Vec::new();
    loop {
        if told.recv_many(&mut batch, MAX_WAITING).await == 0 {
            return Ok(());
        }
        let payload = write(own, &batch, batch.len() >= MAX_WAITING);
        batch.clear();
        client.execute_typed("SELECT pg_notify($1, $2)", &[(&CHANNEL, Type::TEXT), (&payload, Type::TEXT)]).await?;
        tokio::time::sleep(COALESCE).await;
    }
}

/// What is told: who tells, then one letter and id for each hint.
fn write(own: u32, hints: &[Hint], is_too_much: bool) -> String {
    let mut words = BTreeSet::new();
    for hint in hints {
        words.insert(match hint {
            Hint::Session(id) => format!("s{:x}", id.bits()),
            Hint::Control(id) => format!("c{:x}", id.bits()),
            Hint::Runnable => "r".to_owned(),
            Hint::Anything => "a".to_owned(),
        });
    }
    let text = words.into_iter().fold(format!("{own:x}"), |text, word| format!("{text} {word}"));
    if text.len() > MAX_PAYLOAD || is_too_much { format!("{own:x} a") } else { text }
}

fn hear(here: &broadcast::Sender<Hint>, own: u32, payload: &str) {
    let mut words = payload.split(' ');
    if words.next() == Some(format!("{own:x}").as_str()) {
        return;
    }
    let session = |digits: &str| u128::from_str_radix(digits, 16).ok().map(SessionId::from_bits);
    for word in words {
        let hint = match word.split_at_checked(1) {
            Some(("s", id)) => session(id).map(Hint::Session),
            Some(("c", id)) => session(id).map(Hint::Control),
            Some(("r", "")) => Some(Hint::Runnable),
            // Of another version, perhaps: look at everything.
            _ => Some(Hint::Anything),
        };
        let _ = here.send(hint.unwrap_or(Hint::Anything));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_heard_by_others_and_not_by_oneself() {
        let (here, mut heard) = broadcast::channel(16);
        let hints =
            [Hint::Session(SessionId::from_bits(7)), Hint::Control(SessionId::from_bits(u128::MAX)), Hint::Runnable];
        let payload = write(1, &hints, false);
        hear(&here, 1, &payload);
        assert!(heard.try_recv().is_err());
        hear(&here, 2, &payload);
        let mut got = BTreeSet::new();
        while let Ok(hint) = heard.try_recv() {
            got.insert(format!("{hint:?}"));
        }
        assert_eq!(got, hints.iter().map(|hint| format!("{hint:?}")).collect());
        let many: Vec<Hint> = (0..1_000).map(|number| Hint::Session(SessionId::from_bits(number << 64))).collect();
        assert_eq!(write(1, &many, false), "1 a", "a payload has an end");
    }
}
