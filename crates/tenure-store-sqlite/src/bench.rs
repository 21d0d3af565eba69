//! A bare loop of the same SQL, for comparison in `tenure bench commits`.
