//! Moments, spans, money and sizes as people read them.

use crate::failure::{Exit, Failure};
use jiff::{SignedDuration, Timestamp, Zoned, tz::TimeZone};

/// A moment of the API, if it is one.
pub(crate) fn parse(text: &str) -> Option<Timestamp> {
    text.parse().ok()
}

/// The time of day in the zone of this machine; with the date if it is not today.
pub(crate) fn clock(at: Timestamp) -> String {
    let zone = TimeZone::system();
    let zoned = at.to_zoned(zone.clone());
    let now = Timestamp::now().to_zoned(zone);
    let form = if zoned.date() == now.date() { "%H:%M:%S" } else { "%Y-%m-%d %H:%M:%S" };
    zoned.strftime(form).to_string()
}

/// A span such as `2m 14s`; the two largest units.
pub(crate) fn span(span: SignedDuration) -> String {
    let seconds = span.as_secs().max(0);
    let (days, hours, minutes, rest) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60);
    match (days, hours, minutes) {
        (0, 0, 0) if rest < 10 => format!("{:.1}s", span.as_secs_f64().max(0.0)),
        (0, 0, 0) => format!("{rest}s"),
        (0, 0, _) => format!("{minutes}m {rest:02}s"),
        (0, _, _) => format!("{hours}h {minutes:02}m"),
        (_, _, _) => format!("{days}d {hours:02}h"),
    }
}

/// How long ago.
pub(crate) fn age(at: Timestamp) -> SignedDuration {
    Timestamp::now().duration_since(at)
}

/// Money: two decimals, four below one cent.
pub(crate) fn money(usd: f64) -> String {
    if usd > 0.0 && usd < 0.01 { format!("${usd:.4}") } else { format!("${usd:.2}") }
}

/// A size in units of 1000.
pub(crate) fn size(bytes: u64) -> String {
    let mut value = bytes as f64;
    for unit in ["B", "kB", "MB", "GB"] {
        if value < 1000.0 {
            return if unit == "B" { format!("{bytes} B") } else { format!("{value:.1} {unit}") };
        }
        value /= 1000.0;
    }
    format!("{value:.1} TB")
}

/// A moment for `--since`: a span back (`10m`), a time of today (`02:13`), or RFC 3339.
pub(crate) fn since(text: &str) -> Result<Timestamp, Failure> {
    if let Ok(back) = duration(text) {
        return Ok(Timestamp::now() - back);
    }
    if let Ok(time) = text.parse::<jiff::civil::Time>() {
        let now: Zoned = Timestamp::now().to_zoned(TimeZone::system());
        let today = now.date().to_datetime(time).to_zoned(now.time_zone().clone());
        let moment = today
            .map_err(|error| {
                Failure::new(Exit::Usage, format!("{text:?} is not a time of today")).why(error.to_string())
            })?
            .timestamp();
        // A time of day that is still to come means yesterday's.
        return Ok(if moment > Timestamp::now() { moment - SignedDuration::from_hours(24) } else { moment });
    }
    text.parse().map_err(|_| {
        Failure::new(Exit::Usage, format!("{text:?} is not a time"))
            .fix("10m (back from now), 02:13 (today), or 2026-01-31T02:13:00Z")
    })
}

/// A span such as `500ms`, `90s`, `10m`, `2h`, `3d`.
pub(crate) fn duration(text: &str) -> Result<std::time::Duration, String> {
    let wrong = || format!("{text:?} is not a span such as 30s, 10m, 2h or 3d");
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(wrong)?;
    let (number, unit) = text.split_at(split);
    let factor = match unit {
        "ms" => 0.001,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3_600.0,
        "d" => 86_400.0,
        _ => return Err(wrong()),
    };
    /// Longest span that is taken: ten years.
    const LONGEST_SECONDS: f64 = 315_360_000.0;
    let seconds = number.parse::<f64>().map_err(|_| wrong())? * factor;
    if seconds > LONGEST_SECONDS {
        return Err(wrong());
    }
    std::time::Duration::try_from_secs_f64(seconds).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_show_their_two_largest_units() {
        let shown = |seconds| span(SignedDuration::from_secs(seconds));
        assert_eq!([shown(3), shown(72), shown(11_520), shown(200_000)], ["3.0s", "1m 12s", "3h 12m", "2d 07h"]);
    }

    #[test]
    fn small_money_keeps_its_digits() {
        assert_eq!([money(1.636), money(0.0042), money(0.0)], ["$1.64", "$0.0042", "$0.00"]);
    }

    #[test]
    fn sizes_count_in_thousands() {
        assert_eq!([size(999), size(1000), size(12_345_678)], ["999 B", "1.0 kB", "12.3 MB"]);
    }

    #[test]
    fn spans_are_read_with_their_unit_only() {
        assert_eq!(duration("1.5m"), Ok(std::time::Duration::from_secs(90)));
        assert!(
            duration("10").is_err()
                && duration("10 parsecs").is_err()
                && duration("").is_err()
                && duration("99999999d").is_err()
        );
    }
}
