//! Says on stderr that something takes longer than a second.

use std::io::{IsTerminal, Write};
use std::time::Duration;

/// Silence before the first word.
const PATIENCE: Duration = Duration::from_secs(1);

/// Waits for the work; after a second it says what is waited for, with a clock on a terminal.
pub(crate) async fn watch<T>(what: &str, work: impl Future<Output = T>) -> T {
    watch_changing(|| what.to_owned(), work).await
}

/// As [`watch`], for work that knows how far it is.
pub(crate) async fn watch_changing<T>(what: impl Fn() -> String, work: impl Future<Output = T>) -> T {
    let mut work = std::pin::pin!(work);
    let is_terminal = std::io::stderr().is_terminal();
    let mut seconds = 0_u64;
    loop {
        match tokio::time::timeout(PATIENCE, &mut work).await {
            Ok(done) => {
                if seconds > 0 && is_terminal {
                    show("\r\x1b[K");
                }
                return done;
            }
            Err(_) => {
                seconds += 1;
                if is_terminal {
                    show(&format!("\r\x1b[K{} … {seconds} s", what()));
                } else if seconds == 1 {
                    show(&format!("{} …\n", what()));
                }
            }
        }
    }
}

fn show(text: &str) {
    let mut err = std::io::stderr().lock();
    // A closed stderr is no reason to fail.
    let _ = err.write_all(text.as_bytes()).and_then(|()| err.flush());
}
