//! Inputs of calls, with messages that say what is wrong, where, and what to do (case O-012).

use serde_json::{Map, Value};

/// Unknown fields that a message names.
const NAMED_FIELDS: usize = 5;

/// Characters of a wrong value that a message shows.
const SHOWN_VALUE: usize = 60;

/// The fields of a call.
#[derive(Debug)]
pub(crate) struct Fields {
    tool: &'static str,
    known: &'static [&'static str],
    fields: Map<String, Value>,
}

impl Fields {
    /// Reads the input of a tool that knows these fields. Nothing at all is an input without fields.
    pub(crate) fn parse(tool: &'static str, known: &'static [&'static str], text: &str) -> Result<Self, String> {
        let takes = || format!("{tool} takes a JSON object with {}", known.join(", "));
        let fields = match text.trim() {
            "" => Map::new(),
            text => match serde_json::from_str(text) {
                Ok(Value::Object(fields)) => fields,
                Ok(Value::Null) => Map::new(),
                Ok(other) => return Err(format!("The input is {}; {}.", kind(&other), takes())),
                Err(error) => return Err(format!("The input is not valid JSON: {error}; {}.", takes())),
            },
        };
        Ok(Self { tool, known, fields })
    }

    /// Says which fields the tool does not know; they do nothing.
    pub(crate) fn unknown(&self) -> Option<String> {
        let unknown: Vec<&str> =
            self.fields.keys().map(String::as_str).filter(|name| !self.known.contains(name)).collect();
        let named: Vec<String> = unknown.iter().take(NAMED_FIELDS).map(|name| format!("{:?}", shorten(name))).collect();
        let more = if unknown.len() > NAMED_FIELDS { " and others" } else { "" };
        let known = self.known.join(", ");
        (!unknown.is_empty())
            .then(|| format!("{}{more}: not known to {}, which takes {known}", named.join(", "), self.tool))
    }

    /// A text that must be there and not be empty.
    pub(crate) fn text(&self, name: &str) -> Result<String, String> {
        match self.any_text(name)? {
            text if text.is_empty() => Err(format!("{name}: is empty.")),
            text => Ok(text),
        }
    }

    /// A text that must be there.
    pub(crate) fn any_text(&self, name: &str) -> Result<String, String> {
        self.maybe_text(name)?.ok_or_else(|| {
            let unknown = self.unknown().map(|unknown| format!(" ({unknown})")).unwrap_or_default();
            format!("{name}: is missing; give it as a string{unknown}.")
        })
    }

    /// A path: a text without NUL.
    pub(crate) fn path(&self, name: &str) -> Result<String, String> {
        self.text(name).and_then(|path| without_nul(name, path))
    }

    /// A path that may be missing.
    pub(crate) fn maybe_path(&self, name: &str) -> Result<Option<String>, String> {
        // An empty one means what a missing one means.
        let path = self.maybe_text(name)?.filter(|path| !path.is_empty());
        path.map(|path| without_nul(name, path)).transpose()
    }

    pub(crate) fn maybe_text(&self, name: &str) -> Result<Option<String>, String> {
        match self.fields.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(other) => Err(format!("{name}: must be a string, not {}.", shown(other))),
        }
    }

    pub(crate) fn flag(&self, name: &str) -> Result<bool, String> {
        match self.fields.get(name) {
            None | Some(Value::Null) => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(other) => Err(format!("{name}: must be true or false, not {}.", shown(other))),
        }
    }

    pub(crate) fn number(&self, name: &str) -> Result<Option<f64>, String> {
        match self.fields.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Number(number)) => Ok(number.as_f64().filter(|number| number.is_finite())),
            Some(other) => Err(format!("{name}: must be a number, not {}.", shown(other))),
        }
    }

    /// Two whole numbers.
    pub(crate) fn range(&self, name: &str) -> Result<Option<(i64, i64)>, String> {
        let wrong = |value: &Value| {
            format!("{name}: must be two whole numbers, [first, last], as in [1, 40], not {}.", shown(value))
        };
        match self.fields.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => match value.as_array().map(Vec::as_slice) {
                Some([first, last]) => match (first.as_i64(), last.as_i64()) {
                    (Some(first), Some(last)) => Ok(Some((first, last))),
                    (Some(_) | None, Some(_) | None) => Err(wrong(value)),
                },
                Some(_) | None => Err(wrong(value)),
            },
        }
    }
}

fn without_nul(name: &str, path: String) -> Result<String, String> {
    if path.contains('\0') { Err(format!("{name}: holds a NUL character, which no path can have.")) } else { Ok(path) }
}

/// What a value is, for a message.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

fn shown(value: &Value) -> String {
    let text = value.to_string();
    let short = shorten(&text);
    let more = if short.len() < text.len() { " …" } else { "" };
    format!("{} ({short}{more})", kind(value))
}

fn shorten(text: &str) -> &str {
    text.char_indices().nth(SHOWN_VALUE).and_then(|(end, _)| text.get(..end)).unwrap_or(text)
}
