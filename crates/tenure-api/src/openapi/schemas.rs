//! Schemas of what the operations carry, kept as JSON beside this file.

use serde_json::Value;

/// All schemas by name.
pub(super) fn all() -> Value {
    serde_json::from_str(include_str!("schemas.json")).expect("a test reads it")
}
