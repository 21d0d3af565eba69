//! The name that was perhaps meant.

/// How alike two names must be, from 0 to 1, before one is suggested for the other.
const LIKENESS: f64 = 0.7;

/// The known name that is nearest to a wrong one.
pub(crate) fn nearest<'a>(wrong: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let likeness =
        |name: &str| strsim::jaro_winkler(wrong, name).max(strsim::normalized_damerau_levenshtein(wrong, name));
    known
        .map(|name| (likeness(name), name))
        .filter(|(likeness, _)| *likeness >= LIKENESS)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_suggested_and_a_far_one_is_not() {
        let known = || ["slots", "lease_seconds", "grace_seconds"].into_iter();
        assert_eq!(nearest("slot", known()), Some("slots"));
        assert_eq!(nearest("leese_seconds", known()), Some("lease_seconds"));
        assert_eq!(nearest("xyz", known()), None);
    }
}
