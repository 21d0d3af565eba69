//! JSON that goes out as it came in: numbers, escapes and unknown fields included.

use serde::Serialize;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};
use std::collections::BTreeMap;
use tenure_core::Json;

/// Writes a value.
pub(crate) fn raw<T: Serialize + ?Sized>(value: &T) -> Box<RawValue> {
    to_raw_value(value).expect("maps with string keys and checked JSON can be written")
}

/// The text of the log, unchanged.
pub(crate) fn verbatim(json: &Json) -> Box<RawValue> {
    RawValue::from_string(json.as_str().to_owned()).expect("checked when it was made")
}

/// Adds or replaces one field of an object, and leaves the others as they are.
pub(crate) fn with_field(object: &RawValue, name: &str, value: Box<RawValue>) -> Option<Box<RawValue>> {
    let mut fields: BTreeMap<String, Box<RawValue>> = serde_json::from_str(object.get()).ok()?;
    fields.insert(name.to_owned(), value);
    Some(raw(&fields))
}

/// The field `type` of an object.
pub(crate) fn type_of(block: &RawValue) -> String {
    let block: Value = serde_json::from_str(block.get()).unwrap_or_default();
    block["type"].as_str().unwrap_or_default().to_owned()
}

/// JSON that the event's own parser has read already; only its depth can still be too much, and then
/// nothing of it is kept.
pub(crate) fn kept(text: &str) -> Json {
    Json::parse(text).unwrap_or_else(|_| Json::object())
}

/// Whether a field says nothing.
pub(crate) fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}
