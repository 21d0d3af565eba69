//! The wall clock of this machine, for spans.

use std::time::{SystemTime, UNIX_EPOCH};

/// Nanoseconds since 1970.
#[allow(clippy::disallowed_methods, reason = "a span says when it was to people; nothing is decided by it")]
pub(crate) fn unix_nanos() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
