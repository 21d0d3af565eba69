//! One file of settings: its shape, and errors that name line and nearest key.

use crate::failure::{Exit, Failure};
use crate::suggest;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;
use tenure_model::ProviderConfig;

/// Largest configuration file.
const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// All settings that a layer may hold.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct FileConfig {
    pub(super) listen: Option<String>,
    pub(super) public_url: Option<String>,
    pub(super) data: Option<String>,
    pub(super) store: UrlTable,
    pub(super) blobs: UrlTable,
    pub(super) auth: AuthTable,
    pub(super) worker: WorkerTable,
    pub(super) node: NodeTable,
    pub(super) providers: BTreeMap<String, ProviderConfig>,
    pub(super) models: ModelsTable,
    pub(super) telemetry: TelemetryTable,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct UrlTable {
    pub(super) url: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct AuthTable {
    pub(super) keys_file: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct WorkerTable {
    pub(super) slots: Option<u32>,
    pub(super) lease_seconds: Option<u32>,
    pub(super) grace_seconds: Option<u32>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct NodeTable {
    pub(super) heartbeat_seconds: Option<u32>,
    pub(super) dead_after_seconds: Option<u32>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ModelsTable {
    pub(super) default: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct TelemetryTable {
    pub(super) otlp_endpoint: Option<String>,
    pub(super) otlp_headers: Option<String>,
    pub(super) service_name: Option<String>,
    pub(super) capture_message_content: Option<bool>,
}

/// Reads and checks one file; nothing if there is none.
pub(super) fn read(path: &Path) -> Result<Option<toml::Table>, Failure> {
    let cannot = |error: std::io::Error| {
        Failure::new(Exit::Usage, format!("cannot read the configuration {}", path.display()))
            .why(error.to_string())
            .code("config_unreadable")
    };
    match std::fs::metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(cannot(error)),
        Ok(found) if found.len() > MAX_FILE_BYTES => {
            return Err(Failure::new(
                Exit::Usage,
                format!("the configuration {} is larger than {MAX_FILE_BYTES} bytes", path.display()),
            )
            .code("config_unreadable"));
        }
        Ok(_) => {}
    }
    let text = std::fs::read_to_string(path).map_err(cannot)?;
    check(&text, &path.display().to_string())?;
    let table = text.parse::<toml::Table>().map_err(|error| explain(&error, &text, &path.display().to_string()))?;
    Ok(Some(table))
}

/// Checks names and types of a text.
pub(super) fn check(text: &str, name: &str) -> Result<FileConfig, Failure> {
    toml::from_str(text).map_err(|error| explain(&error, text, name))
}

/// Says where a text is wrong, and which key was perhaps meant.
fn explain(error: &toml::de::Error, text: &str, name: &str) -> Failure {
    let at = error.span().map_or(0, |span| span.start.min(text.len()));
    let line = text.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count() + 1;
    let source = text.lines().nth(line - 1).unwrap_or("").trim().to_owned();
    let message = error.message().lines().next().unwrap_or("").to_owned();
    let failure = Failure::new(Exit::Usage, format!("{name}, line {line}: {}", what(&message)))
        .why(without_secret(&source))
        .code("config_invalid");
    match unknown_field(&message).and_then(|(unknown, known)| suggest::nearest(unknown, known)) {
        Some(nearest) => failure.fix(format!("did you mean `{nearest}`?")),
        None => failure,
    }
}

/// The message of the parser, with an unknown field in our words.
fn what(message: &str) -> String {
    match unknown_field(message) {
        Some((unknown, known)) => {
            let known: Vec<&str> = known.collect();
            format!("unknown key `{unknown}`; known here: {}", known.join(", "))
        }
        None => wrong_type(message).unwrap_or_else(|| message.to_owned()),
    }
}

/// Takes "invalid type: string \"a\", expected u32" apart and says it in words of the file.
fn wrong_type(message: &str) -> Option<String> {
    let rest = message.strip_prefix("invalid type: ").or_else(|| message.strip_prefix("invalid value: "))?;
    let (found, expected) = rest.rsplit_once(", expected ")?;
    let expected = match expected {
        "a string" => "a text in quotation marks",
        "u32" | "u64" | "usize" => "a whole number that is not negative",
        "f64" => "a number",
        "a boolean" => "true or false",
        "a sequence" => "a list such as [\"a\", \"b\"]",
        "a map" => "a table such as { name = \"value\" }",
        other => other,
    };
    let (kind, value) = found.split_once(' ').unwrap_or((found, ""));
    let kind = match kind {
        "string" => "the text",
        "integer" => "the whole number",
        "floating" => "the number",
        "boolean" => "the word",
        "sequence" => "a list",
        "map" => "a table",
        other => other,
    };
    let value = value.trim_start_matches("point ").replace('`', "");
    Some(format!("expected {expected}, found {kind} {value}").trim_end().to_owned())
}

/// A line that is shown in a message; a value that may be a key is not.
fn without_secret(line: &str) -> String {
    match line.split_once('=') {
        Some((key, _)) if ["key", "token", "secret", "header"].iter().any(|word| key.to_lowercase().contains(word)) => {
            format!("{}= (hidden)", key)
        }
        Some(_) | None => line.to_owned(),
    }
}

/// Takes "unknown field `a`, expected one of `b`, `c`" apart.
fn unknown_field(message: &str) -> Option<(&str, impl Iterator<Item = &str>)> {
    let mut quoted = message.strip_prefix("unknown field `")?.split('`').step_by(2);
    Some((quoted.next()?, quoted.filter(|name| !name.is_empty())))
}
