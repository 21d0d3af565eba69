//! Times on the wire: RFC 3339 in UTC with milliseconds.

use tenure_core::Timestamp;

/// Writes a time; one that no calendar holds becomes the nearest that one does.
pub fn write(at: Timestamp) -> String {
    let at = jiff::Timestamp::from_millisecond(at.0).unwrap_or(if at.0 < 0 {
        jiff::Timestamp::MIN
    } else {
        jiff::Timestamp::MAX
    });
    format!("{at:.3}")
}

/// Reads a time with any offset.
pub fn read(text: &str) -> Option<Timestamp> {
    text.parse::<jiff::Timestamp>().ok().map(|at| Timestamp(at.as_millisecond()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_milliseconds_and_are_read_with_any_offset() {
        let at = Timestamp(1_796_005_870_120);
        assert_eq!(write(at), "2026-11-30T02:31:10.120Z");
        for text in ["2026-11-30T02:31:10.120Z", "2026-11-30T03:31:10.12+01:00"] {
            assert_eq!(read(text), Some(at), "{text}");
        }
        assert_eq!(read("yesterday"), None);
        assert!(write(Timestamp(i64::MAX)).starts_with("9999-12-30"));
    }
}
