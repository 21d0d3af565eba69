//! Requests to stop: SIGTERM and Ctrl-C, the second one at once.

use crate::failure::Exit;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Cancels the token at the first request; a second one ends the process.
pub(crate) fn on_signals() -> std::io::Result<CancellationToken> {
    let stop = CancellationToken::new();
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let requested = stop.clone();
    tokio::spawn(async move {
        for turn in 0.. {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            if turn > 0 {
                std::process::exit(Exit::Failed as i32);
            }
            requested.cancel();
        }
    });
    Ok(stop)
}
