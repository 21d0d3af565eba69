//! The log of long-running commands, on stderr.

use crate::output::Format;
use tracing_subscriber::EnvFilter;

/// What is logged unless `TENURE_LOG` says otherwise.
const DEFAULT: &str = "info,hyper=warn,reqwest=warn";

/// Starts the log; a wrong `TENURE_LOG` falls back to the default, and the log says so.
pub(crate) fn start(format: Format) {
    let wanted = std::env::var("TENURE_LOG").ok().filter(|text| !text.is_empty());
    let parsed = wanted.as_deref().map(EnvFilter::try_new);
    let wrong = matches!(parsed, Some(Err(_)));
    let filter = parsed.and_then(Result::ok).unwrap_or_else(|| EnvFilter::new(DEFAULT));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false);
    // Somebody else's log, in tests, is as good.
    let _ = match format {
        Format::Json => log.json().try_init(),
        Format::Human => log.with_ansi(false).try_init(),
    };
    if wrong {
        tracing::warn!("TENURE_LOG is not a filter such as \"info\" or \"tenure_engine=debug\"; using {DEFAULT}");
    }
}
