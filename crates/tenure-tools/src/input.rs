//! Inputs of calls, with messages that name the field and the fix (case O-012).

use serde_json::{Map, Value};

/// The fields of a call.
pub(crate) struct Fields(Map<String, Value>);

impl Fields {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        match serde_json::from_str(text) {
            Ok(Value::Object(fields)) => Ok(Self(fields)),
            Ok(_) => Err("The input must be a JSON object.".to_owned()),
            Err(error) => Err(format!("The input is not valid JSON: {error}.")),
        }
    }

    pub(crate) fn text(&self, name: &str) -> Result<String, String> {
        self.maybe_text(name)?.ok_or_else(|| format!("{name}: is missing; give it as a string."))
    }

    pub(crate) fn maybe_text(&self, name: &str) -> Result<Option<String>, String> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(_) => Err(format!("{name}: must be a string.")),
        }
    }

    pub(crate) fn flag(&self, name: &str) -> Result<bool, String> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(_) => Err(format!("{name}: must be true or false.")),
        }
    }

    pub(crate) fn number(&self, name: &str) -> Result<Option<f64>, String> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Number(number)) => Ok(number.as_f64().filter(|number| number.is_finite())),
            Some(_) => Err(format!("{name}: must be a number.")),
        }
    }

    /// Two whole numbers.
    pub(crate) fn range(&self, name: &str) -> Result<Option<(i64, i64)>, String> {
        let wrong = || format!("{name}: must be two whole numbers, [first, last].");
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Array(items)) => match items.as_slice() {
                [first, last] => Ok(Some((first.as_i64().ok_or_else(wrong)?, last.as_i64().ok_or_else(wrong)?))),
                _ => Err(wrong()),
            },
            Some(_) => Err(wrong()),
        }
    }
}
