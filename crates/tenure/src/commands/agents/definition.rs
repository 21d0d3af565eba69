//! Definitions in files: read, compared by name, sent.

use crate::cli::Common;
use crate::commands::approvals::text;
use crate::connection::{ask, id_of};
use crate::failure::{Exit, Failure};
use crate::output::{self, Format, inert, table::Table};
use serde_json::Value;
use std::path::{Path, PathBuf};
use tenure_api::client::Client;

/// Most objects that are looked through for a name.
const MOST: usize = 1000;
/// Largest definition.
const MAX_BYTES: u64 = 32 * 1024 * 1024;

/// What is defined.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// Agents.
    Agent,
    /// Environments.
    Environment,
}

impl Kind {
    fn path(self) -> &'static str {
        match self {
            Self::Agent => "agents",
            Self::Environment => "environments",
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Environment => "environment",
        }
    }
}

/// Creates or changes one object per file. All files are read before the first one is sent.
pub(crate) async fn apply(common: &Common, kind: Kind, files: &[PathBuf]) -> Result<Exit, Failure> {
    let definitions = files.iter().map(|file| read(kind, file)).collect::<Result<Vec<Value>, Failure>>()?;
    let client = common.target().connect()?;
    let known = ask(client.list(&["v1", kind.path()], &[], MOST)).await?.data;
    for (file, definition) in files.iter().zip(definitions) {
        let sent = send(&client, kind, &known, &definition).await;
        let (done, object) = sent.map_err(|failure| failure.doing(&format!("apply {}", file.display())))?;
        match common.format() {
            Format::Json => output::json(&object)?,
            Format::Human => {
                let version = object.get("version").map(|version| format!(", version {version}")).unwrap_or_default();
                output::line(&format!(
                    "{done} {} {}   {}{version}",
                    kind.word(),
                    id_of(&object),
                    inert::line(text(&object, "name"))
                ))?;
            }
        }
        for warning in object.get("warnings").and_then(Value::as_array).into_iter().flatten() {
            output::say(&format!("warning: {}", inert::line(warning.as_str().unwrap_or_default())));
        }
    }
    Ok(Exit::Ok)
}

async fn send(
    client: &Client,
    kind: Kind,
    known: &[Value],
    definition: &Value,
) -> Result<(&'static str, Value), Failure> {
    let mut same_name = known.iter().filter(|object| text(object, "name") == text(definition, "name"));
    match (same_name.next(), same_name.next()) {
        (None, _) => Ok(("created", client.post(&["v1", kind.path()], definition).await?)),
        (Some(found), None) => {
            let mut change = definition.clone();
            if let (Kind::Agent, Some(version)) = (kind, found.get("version")) {
                // Somebody else's change since our look is a conflict, not overwritten.
                change["version"] = version.clone();
            }
            Ok(("updated", client.post(&["v1", kind.path(), id_of(found)], &change).await?))
        }
        (Some(_), Some(_)) => Err(Failure::new(
            Exit::Conflict,
            format!("several {}s are called {:?}", kind.word(), text(definition, "name")),
        )
        .fix("archive all but one, or give the definition another name")),
    }
}

/// Lists objects.
pub(crate) async fn list(
    common: &Common,
    kind: Kind,
    heading: &[&str],
    row: impl Fn(&mut Table, &Value),
) -> Result<Exit, Failure> {
    let client = common.target().connect()?;
    let objects = ask(client.list(&["v1", kind.path()], &[], MOST)).await?.data;
    if common.format() == Format::Json {
        for object in &objects {
            output::json(object)?;
        }
        return Ok(Exit::Ok);
    }
    if objects.is_empty() {
        output::say(&format!("No {}s.", kind.word()));
        output::hint(&format!("tenure {} apply FILE makes one", kind.path()));
        return Ok(Exit::Ok);
    }
    let mut table = Table::new(heading);
    objects.iter().for_each(|object| row(&mut table, object));
    for line in table.lines() {
        output::line(&line)?;
    }
    Ok(Exit::Ok)
}

fn read(kind: Kind, file: &Path) -> Result<Value, Failure> {
    let wrong = |why: String| {
        Failure::new(Exit::Usage, format!("{} is no definition of an {}", file.display(), kind.word()))
            .why(why)
            .code("definition_invalid")
    };
    let size = std::fs::metadata(file).map_err(|error| wrong(error.to_string()))?.len();
    if size > MAX_BYTES {
        return Err(wrong(format!("it is larger than {MAX_BYTES} bytes")));
    }
    let text = std::fs::read_to_string(file).map_err(|error| wrong(error.to_string()))?;
    let is_json = file.extension().is_some_and(|extension| extension == "json");
    let value: Value = if is_json {
        serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?
    } else {
        // The parser's message shows the line.
        toml::from_str(&text).map_err(|error: toml::de::Error| wrong(error.to_string().replace('\n', "  ")))?
    };
    if value.get("name").and_then(Value::as_str).is_none_or(str::is_empty) {
        return Err(wrong("it has no name".to_owned()).fix("name = \"…\" at the top: apply finds the object by it"));
    }
    Ok(value)
}
