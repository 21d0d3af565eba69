//! Reads the fields of a request and says exactly where one is wrong.
//!
//! Fields that nobody asks for are ignored: clients may be newer than this server.

use crate::error::Code;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Most pairs of metadata.
pub const MAX_METADATA: usize = 64;

/// Longest key of metadata, in characters.
pub const MAX_METADATA_KEY: usize = 64;

/// Longest value of metadata, in characters.
pub const MAX_METADATA_VALUE: usize = 4_096;

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Problem {
    /// What kind of mistake.
    pub code: Code,
    /// Where and what.
    pub message: String,
}

impl Problem {
    /// A refusal with its words.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// A field with a wrong value.
    pub fn invalid(path: &str, what: impl std::fmt::Display) -> Self {
        Self::new(Code::InvalidField, format!("{path}: {what}"))
    }
}

/// A JSON object and where it stands in the request.
#[derive(Clone, Debug)]
pub struct Fields<'a> {
    map: &'a Map<String, Value>,
    path: String,
}

impl<'a> Fields<'a> {
    /// The whole request.
    ///
    /// # Errors
    /// When it is not an object.
    pub fn root(value: &'a Value) -> Result<Self, Problem> {
        Self::at(value, "")
    }

    /// A part of the request.
    ///
    /// # Errors
    /// When it is not an object.
    pub fn at(value: &'a Value, path: &str) -> Result<Self, Problem> {
        match value {
            Value::Object(map) => Ok(Self { map, path: path.to_owned() }),
            other => Err(Problem::invalid(
                if path.is_empty() { "the body" } else { path },
                format_args!("expected an object, found {}", kind(other)),
            )),
        }
    }

    /// The path of a field.
    pub fn path(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    /// A field; `None` if it is left out, `Some(None)` if it is null.
    pub fn change(&self, name: &str) -> Option<Option<&'a Value>> {
        self.map.get(name).map(|value| if value.is_null() { None } else { Some(value) })
    }

    /// A field that is there and not null.
    pub fn get(&self, name: &str) -> Option<&'a Value> {
        self.change(name).flatten()
    }

    /// A field that must be there.
    ///
    /// # Errors
    /// When it is not.
    pub fn required(&self, name: &str) -> Result<&'a Value, Problem> {
        self.get(name)
            .ok_or_else(|| Problem::new(Code::MissingField, format!("{}: this field is required", self.path(name))))
    }

    /// A text of at most `max` characters.
    ///
    /// # Errors
    /// When it is something else.
    pub fn text(&self, name: &str, max: usize) -> Result<Option<String>, Problem> {
        self.get(name).map(|value| text(value, &self.path(name), max)).transpose()
    }

    /// A text that must be there and say something.
    ///
    /// # Errors
    /// When it does not.
    pub fn required_text(&self, name: &str, max: usize) -> Result<String, Problem> {
        let given = text(self.required(name)?, &self.path(name), max)?;
        if given.trim().is_empty() {
            return Err(Problem::invalid(&self.path(name), "must not be empty"));
        }
        Ok(given)
    }

    /// The word in `type`.
    ///
    /// # Errors
    /// When there is none.
    pub fn kind(&self) -> Result<&'a str, Problem> {
        self.required("type")?.as_str().ok_or_else(|| Problem::invalid(&self.path("type"), "expected a text"))
    }

    /// A truth value.
    ///
    /// # Errors
    /// When it is something else.
    pub fn flag(&self, name: &str) -> Result<Option<bool>, Problem> {
        let read = |value: &Value| {
            value.as_bool().ok_or_else(|| {
                Problem::invalid(&self.path(name), format_args!("expected true or false, found {}", kind(value)))
            })
        };
        self.get(name).map(read).transpose()
    }

    /// A whole number that is not negative.
    ///
    /// # Errors
    /// When it is something else.
    pub fn number(&self, name: &str) -> Result<Option<u64>, Problem> {
        let read = |value: &Value| {
            let what = format_args!("expected a whole number that is not negative, found {}", kind(value)).to_string();
            value.as_u64().ok_or_else(|| Problem::invalid(&self.path(name), what))
        };
        self.get(name).map(read).transpose()
    }

    /// A list of at most `max` entries, each with its path.
    ///
    /// # Errors
    /// When it is something else.
    pub fn list(&self, name: &str, max: usize) -> Result<Option<Vec<(String, &'a Value)>>, Problem> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        let path = self.path(name);
        let list = value
            .as_array()
            .ok_or_else(|| Problem::invalid(&path, format_args!("expected a list, found {}", kind(value))))?;
        if list.len() > max {
            return Err(Problem::invalid(&path, format_args!("{} entries, at most {max} are taken", list.len())));
        }
        Ok(Some(list.iter().enumerate().map(|(place, value)| (format!("{path}[{place}]"), value)).collect()))
    }

    /// An object inside.
    ///
    /// # Errors
    /// When it is something else.
    pub fn inner(&self, name: &str) -> Result<Option<Fields<'a>>, Problem> {
        self.get(name).map(|value| Fields::at(value, &self.path(name))).transpose()
    }

    /// Refuses a field that says something, because it is not served.
    ///
    /// # Errors
    /// When it is there, and neither null nor empty.
    pub fn refuse(&self, name: &str, why: &str) -> Result<(), Problem> {
        let says_nothing = match self.get(name) {
            None => true,
            Some(Value::Array(list)) => list.is_empty(),
            Some(Value::Object(map)) => map.is_empty(),
            Some(_) => false,
        };
        if says_nothing {
            Ok(())
        } else {
            Err(Problem::new(Code::UnsupportedFeature, format!("{}: {why}", self.path(name))))
        }
    }

    /// Changes of metadata; a null removes its key.
    ///
    /// # Errors
    /// When it is no object of texts within the bounds.
    pub fn metadata(&self) -> Result<BTreeMap<String, Option<String>>, Problem> {
        let Some(fields) = self.inner("metadata")? else {
            return Ok(BTreeMap::new());
        };
        let mut changes = BTreeMap::new();
        for (key, value) in fields.map {
            let path = fields.path(key);
            if key.is_empty() || key.chars().count() > MAX_METADATA_KEY {
                return Err(Problem::invalid(&path, format_args!("a key has 1 to {MAX_METADATA_KEY} characters")));
            }
            let value = if value.is_null() { None } else { Some(text(value, &path, MAX_METADATA_VALUE)?) };
            changes.insert(key.clone(), value);
        }
        if changes.len() > MAX_METADATA {
            return Err(Problem::invalid(
                &self.path("metadata"),
                format_args!("{} pairs, at most {MAX_METADATA} are taken", changes.len()),
            ));
        }
        Ok(changes)
    }
}

/// Applies changes of metadata.
///
/// # Errors
/// When there would be too many pairs.
pub fn change_metadata(
    metadata: &mut BTreeMap<String, String>,
    changes: BTreeMap<String, Option<String>>,
) -> Result<(), Problem> {
    for (key, value) in changes {
        match value {
            Some(value) => metadata.insert(key, value),
            None => metadata.remove(&key),
        };
    }
    if metadata.len() > MAX_METADATA {
        return Err(Problem::invalid(
            "metadata",
            format_args!("{} pairs, at most {MAX_METADATA} are kept", metadata.len()),
        ));
    }
    Ok(())
}

/// A text of at most `max` characters.
///
/// # Errors
/// When it is something else.
pub fn text(value: &Value, path: &str, max: usize) -> Result<String, Problem> {
    let text =
        value.as_str().ok_or_else(|| Problem::invalid(path, format_args!("expected a text, found {}", kind(value))))?;
    if text.len() > max && text.chars().count() > max {
        return Err(Problem::invalid(path, format_args!("longer than {max} characters")));
    }
    Ok(text.to_owned())
}

/// What a value is, in words.
pub fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a truth value",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
