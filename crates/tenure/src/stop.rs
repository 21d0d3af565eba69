//! Requests to stop: SIGTERM and Ctrl-C, the second one at once.

use crate::failure::Exit;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// After the second request, what must end with this process gets so long to be killed.
const LAST_MOMENT: Duration = Duration::from_secs(1);

/// What was asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Requests {
    /// Stop in good order.
    pub(crate) stop: CancellationToken,
    /// Stop at once: the process ends whether or not somebody listens to this.
    pub(crate) at_once: CancellationToken,
}

/// Cancels the token at the first request; a second one ends the process.
pub(crate) fn on_signals() -> std::io::Result<CancellationToken> {
    Ok(requests(Duration::ZERO)?.stop)
}

/// As [`on_signals`], for a process with children that must not outlive a second request.
pub(crate) fn on_signals_with_children() -> std::io::Result<Requests> {
    requests(LAST_MOMENT)
}

fn requests(last_moment: Duration) -> std::io::Result<Requests> {
    let requests = Requests::default();
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let asked = requests.clone();
    tokio::spawn(async move {
        let mut next = async || {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        };
        next().await;
        asked.stop.cancel();
        next().await;
        asked.at_once.cancel();
        tokio::time::sleep(last_moment).await;
        std::process::exit(Exit::Failed as i32);
    });
    Ok(requests)
}

/// The parent holds the other end of our standard input and never writes: the end means that it is
/// gone, or wants us to stop.
pub(crate) async fn with_parent(stop: CancellationToken) {
    let mut byte = [0];
    let mut input = tokio::io::stdin();
    while matches!(input.read(&mut byte).await, Ok(1..)) {}
    stop.cancel();
}
