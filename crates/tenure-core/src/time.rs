//! Points in time and spans of time, as whole milliseconds.
//!
//! All arithmetic saturates: hints of providers and sleeps of models reach us with any value.

/// A span of time in milliseconds; never negative.
pub type Millis = u64;

/// A point in time: milliseconds since 1970-01-01 UTC, by the store's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// The point `span` later, capped at the largest representable one.
    pub fn after(self, span: Millis) -> Self {
        Self(self.0.saturating_add(i64::try_from(span).unwrap_or(i64::MAX)))
    }

    /// How long after `earlier` this is; zero if it is not.
    pub fn since(self, earlier: Self) -> Millis {
        u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0)
    }
}
