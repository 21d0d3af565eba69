//! Puts the layers on top of each other and remembers where each setting came from.

use super::file::{self, FileConfig};
use super::places;
use super::{
    AuthConfig, BlobsConfig, Config, DEFAULT_LISTEN, ModelsConfig, NodeConfig, StoreConfig, StorePlace, WorkerConfig,
};
use crate::failure::{Exit, Failure};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tenure_telemetry::{Content, Settings};

/// Settings that a variable may set: the variable, and the key of the files.
const VARIABLES: [(&str, &str); 16] = [
    ("TENURE_LISTEN", "listen"),
    ("TENURE_PUBLIC_URL", "public_url"),
    ("TENURE_DATA", "data"),
    ("TENURE_STORE_URL", "store.url"),
    ("TENURE_BLOBS_URL", "blobs.url"),
    ("TENURE_AUTH_KEYS_FILE", "auth.keys_file"),
    ("TENURE_WORKER_SLOTS", "worker.slots"),
    ("TENURE_WORKER_LEASE_SECONDS", "worker.lease_seconds"),
    ("TENURE_WORKER_GRACE_SECONDS", "worker.grace_seconds"),
    ("TENURE_NODE_HEARTBEAT_SECONDS", "node.heartbeat_seconds"),
    ("TENURE_NODE_DEAD_AFTER_SECONDS", "node.dead_after_seconds"),
    ("TENURE_MODELS_DEFAULT", "models.default"),
    // The names that the specification of OpenTelemetry gives.
    ("OTEL_EXPORTER_OTLP_ENDPOINT", "telemetry.otlp_endpoint"),
    ("OTEL_EXPORTER_OTLP_HEADERS", HEADERS),
    ("OTEL_SERVICE_NAME", "telemetry.service_name"),
    ("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", CAPTURE),
];

/// Holds secrets, as `NAME=VALUE,NAME=VALUE`.
const HEADERS: &str = "telemetry.otlp_headers";

/// Whether what people and models say stands in spans.
const CAPTURE: &str = "telemetry.capture_message_content";

/// Variables that others of this program read.
const OTHER_VARIABLES: [&str; 5] =
    ["TENURE_CONFIG", "TENURE_SERVER", "TENURE_API_KEY", "TENURE_LOG", "TENURE_DEMO_LOGS"];

/// Most sessions that one worker advances at the same time.
const MOST_SLOTS: u32 = 4096;

/// What the command line sets.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flags {
    /// `--config`.
    pub(crate) config: Option<PathBuf>,
    /// `--data`.
    pub(crate) data: Option<PathBuf>,
    /// `--listen`.
    pub(crate) listen: Option<String>,
    /// `--slots`.
    pub(crate) slots: Option<u32>,
}

/// One setting in force.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Setting {
    /// Its key, such as `worker.slots`.
    pub(crate) key: String,
    /// Its value; secrets are hidden already.
    pub(crate) value: toml::Value,
    /// Which layer said so.
    pub(crate) origin: String,
}

/// Values by key, each with its origin.
type Merged = BTreeMap<String, (toml::Value, String)>;

/// Reads all layers.
pub(crate) fn load(flags: &Flags) -> Result<Config, Failure> {
    let here = std::env::current_dir()
        .map_err(|error| Failure::new(Exit::Failed, "the current folder is gone").why(error.to_string()))?;
    let mut merged = Merged::new();
    let mut files = Vec::new();
    let (paths, is_named) = weakest_first(flags, &here);
    for path in paths {
        let table = file::read(&path)?;
        if table.is_none() && is_named {
            // A file that somebody names is meant: without it, the defaults would be a surprise.
            return Err(Failure::new(Exit::Usage, format!("there is no configuration file {}", path.display()))
                .why("named by --config or TENURE_CONFIG")
                .code("config_unreadable"));
        }
        if let Some(table) = table {
            let folder = path.parent().unwrap_or(&here).to_path_buf();
            flatten("", &table, &mut |key, value| {
                merged.insert(key.clone(), (from_folder(&key, value.clone(), &folder), path.display().to_string()));
            });
            files.insert(0, path);
        }
    }
    for (name, key) in VARIABLES {
        if let Some(text) = variable(name)? {
            merged.insert(key.to_owned(), (from_folder(key, number_or_text(key, text, name)?, &here), name.to_owned()));
        }
    }
    let mut flag = |key: &str, value: Option<toml::Value>, name: &str| {
        if let Some(value) = value {
            merged.insert(key.to_owned(), (from_folder(key, value, &here), name.to_owned()));
        }
    };
    flag("data", flags.data.as_ref().map(|path| path.display().to_string().into()), "--data");
    flag("listen", flags.listen.clone().map(Into::into), "--listen");
    flag("worker.slots", flags.slots.map(|slots| i64::from(slots).into()), "--slots");
    finish(merged, files)
}

/// The files, so that later ones win; and whether somebody named them.
fn weakest_first(flags: &Flags, here: &Path) -> (Vec<PathBuf>, bool) {
    let named = flags
        .config
        .clone()
        .or_else(|| std::env::var_os("TENURE_CONFIG").filter(|path| !path.is_empty()).map(PathBuf::from));
    match named {
        Some(path) => (vec![here.join(path)], true),
        None => {
            let files =
                [Some(PathBuf::from(places::MACHINE_FILE)), places::user_file(), Some(here.join(places::PROJECT_FILE))];
            (files.into_iter().flatten().collect(), false)
        }
    }
}

fn flatten(prefix: &str, table: &toml::Table, take: &mut impl FnMut(String, &toml::Value)) {
    for (key, value) in table {
        let quoted = if key.contains('.') { format!("{key:?}") } else { key.clone() };
        let path = if prefix.is_empty() { quoted } else { format!("{prefix}.{quoted}") };
        match value {
            // A provider is one setting: half of one file and half of another would be neither.
            toml::Value::Table(inner) if prefix != "providers" => flatten(&path, inner, take),
            other => take(path, other),
        }
    }
}

/// Makes paths independent of the folder that they were written for.
fn from_folder(key: &str, value: toml::Value, folder: &Path) -> toml::Value {
    let resolve = |path: &str| toml::Value::from(places::resolve(path, folder).display().to_string());
    match (key, value) {
        ("data" | "auth.keys_file", toml::Value::String(path)) => resolve(&path),
        ("store.url" | "blobs.url", toml::Value::String(url)) => match url.split_once(':') {
            Some((scheme @ ("sqlite" | "file"), path)) if !path.starts_with("//") => {
                toml::Value::from(format!("{scheme}:{}", places::resolve(path, folder).display()))
            }
            _ => toml::Value::String(url),
        },
        (key, toml::Value::Table(mut provider)) if key.starts_with("providers.") => {
            for name in ["api_key_file", "scenarios"] {
                if let Some(toml::Value::String(path)) = provider.get(name) {
                    let path = resolve(path);
                    provider.insert(name.to_owned(), path);
                }
            }
            toml::Value::Table(provider)
        }
        (_, value) => value,
    }
}

fn variable(name: &str) -> Result<Option<String>, Failure> {
    match std::env::var(name) {
        Ok(text) if text.is_empty() => Ok(None),
        Ok(text) => Ok(Some(text)),
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(std::env::VarError::NotUnicode(_)) => {
            Err(Failure::new(Exit::Usage, format!("the variable {name} is not valid UTF-8")).code("config_invalid"))
        }
    }
}

fn number_or_text(key: &str, text: String, variable: &str) -> Result<toml::Value, Failure> {
    if key == CAPTURE {
        // The words of the conventions; there are no events, so that only the span's part counts.
        return match text.to_ascii_lowercase().as_str() {
            "true" | "span_only" | "span_and_event" => Ok(true.into()),
            "false" | "no_content" | "event_only" => Ok(false.into()),
            _ => Err(Failure::new(Exit::Usage, format!("the variable {variable} must be true or false, not {text:?}"))
                .code("config_invalid")),
        };
    }
    let is_number = key == "worker.slots" || key.ends_with("_seconds");
    if !is_number {
        return Ok(text.into());
    }
    let number = text.parse::<u32>().map_err(|_| {
        Failure::new(Exit::Usage, format!("the variable {variable} must be a whole number, not {text:?}"))
            .code("config_invalid")
    })?;
    Ok(i64::from(number).into())
}

/// Reads the merged settings into types, adds defaults, checks what belongs together.
fn finish(merged: Merged, files: Vec<PathBuf>) -> Result<Config, Failure> {
    let origin = |key: &str| merged.get(key).map_or_else(|| "default".to_owned(), |(_, origin)| origin.clone());
    let invalid = |key: &str, what: String| {
        Failure::new(Exit::Usage, format!("{key} {what}")).why(format!("set by {}", origin(key))).code("config_invalid")
    };
    let found: FileConfig = toml::Value::Table(unflatten(&merged)).try_into().map_err(|error: toml::de::Error| {
        Failure::new(Exit::Usage, format!("the configuration is wrong: {}", error.message())).code("config_invalid")
    })?;
    let listen_text = found.listen.clone().unwrap_or_else(|| DEFAULT_LISTEN.to_owned());
    let listen = listen_text.replacen("localhost:", "127.0.0.1:", 1).parse().map_err(|_| {
        invalid("listen", format!("is not an address with a port such as {DEFAULT_LISTEN:?}: {listen_text:?}"))
    })?;
    let data = match &found.data {
        Some(data) => PathBuf::from(data),
        None => places::data_folder()?,
    };
    let public_url = found.public_url.map(|url| url.trim_end_matches('/').to_owned());
    if let Some(url) = public_url.as_ref().filter(|url| !url.starts_with("http://") && !url.starts_with("https://")) {
        return Err(invalid("public_url", format!("must start with http:// or https://: {url:?}")));
    }
    let place = store_place(found.store.url.as_deref(), &data).map_err(|what| invalid("store.url", what))?;
    let store = StoreConfig { place };
    let blobs = BlobsConfig {
        folder: path_of(found.blobs.url.as_deref(), "file", &data.join("blobs"))
            .map_err(|what| invalid("blobs.url", what))?,
    };
    let seconds = |key: &str, value: Option<u32>, default: u32| match value.unwrap_or(default) {
        0 => Err(invalid(key, "must be at least 1".to_owned())),
        some => Ok(Duration::from_secs(u64::from(some))),
    };
    let slots = found.worker.slots.unwrap_or(64);
    if !(1..=MOST_SLOTS).contains(&slots) {
        return Err(invalid("worker.slots", format!("must be from 1 to {MOST_SLOTS}, not {slots}")));
    }
    let worker = WorkerConfig {
        slots: slots as usize,
        lease: seconds("worker.lease_seconds", found.worker.lease_seconds, 45)?,
        grace: seconds("worker.grace_seconds", found.worker.grace_seconds, 30)?,
    };
    let node = NodeConfig {
        heartbeat: seconds("node.heartbeat_seconds", found.node.heartbeat_seconds, 5)?,
        dead_after: seconds("node.dead_after_seconds", found.node.dead_after_seconds, 15)?,
    };
    if node.dead_after < node.heartbeat * 2 {
        return Err(invalid(
            "node.dead_after_seconds",
            "must be at least twice node.heartbeat_seconds, else one late heartbeat kills a node".to_owned(),
        ));
    }
    let telemetry = Settings {
        endpoint: found.telemetry.otlp_endpoint,
        headers: found.telemetry.otlp_headers,
        service_name: found.telemetry.service_name,
        content: match found.telemetry.capture_message_content {
            Some(true) => Content::Captured,
            Some(false) | None => Content::LeftOut,
        },
    };
    telemetry.check(&|name| std::env::var(name).ok()).map_err(|error| invalid(error.setting, error.problem))?;
    let defaults: [(&str, toml::Value); 9] = [
        ("listen", listen_text.into()),
        ("data", data.display().to_string().into()),
        ("store.url", store.place.shown().into()),
        ("blobs.url", format!("file:{}", blobs.folder.display()).into()),
        ("worker.slots", i64::from(slots).into()),
        ("worker.lease_seconds", seconds_value(worker.lease)),
        ("worker.grace_seconds", seconds_value(worker.grace)),
        ("node.heartbeat_seconds", seconds_value(node.heartbeat)),
        ("node.dead_after_seconds", seconds_value(node.dead_after)),
    ];
    let mut shown = merged.clone();
    for (key, value) in defaults {
        shown.entry(key.to_owned()).or_insert((value, "default".to_owned()));
    }
    let hidden = |key: &str, value| match (key, &store.place) {
        (HEADERS, _) => HIDDEN.into(),
        ("store.url", StorePlace::Database(_)) => store.place.shown().into(),
        _ => hide_secrets(value),
    };
    let settings =
        shown.into_iter().map(|(key, (value, origin))| Setting { value: hidden(&key, value), key, origin }).collect();
    Ok(Config {
        listen,
        public_url,
        data,
        store,
        blobs,
        auth: AuthConfig { keys_file: found.auth.keys_file.map(PathBuf::from) },
        worker,
        node,
        providers: found.providers,
        models: ModelsConfig { default: found.models.default },
        telemetry,
        settings,
        files,
        unknown_variables: unknown_variables(),
    })
}

fn seconds_value(duration: Duration) -> toml::Value {
    i64::try_from(duration.as_secs()).expect("it was read from a u32").into()
}

/// The path of a `sqlite:` or `file:` address; other schemes are for other releases.
fn path_of(url: Option<&str>, scheme: &str, default: &Path) -> Result<PathBuf, String> {
    let Some(url) = url else { return Ok(default.to_path_buf()) };
    match url.split_once(':') {
        Some((found, path)) if found == scheme => {
            let path = path.strip_prefix("//").unwrap_or(path);
            if path.is_empty() { Err("names no path".to_owned()) } else { Ok(PathBuf::from(path)) }
        }
        Some((found, _)) => Err(format!("starts with {found}:, and this version knows {scheme}: only")),
        None => Err(format!("must look like {scheme}:PATH, not {url:?}")),
    }
}

/// The embedded store, or a database.
fn store_place(url: Option<&str>, data: &Path) -> Result<StorePlace, String> {
    match url {
        Some(url) if url.starts_with("postgres://") || url.starts_with("postgresql://") => {
            tenure_store_postgres::Options::parse(url).map_err(|error| error.message)?;
            Ok(StorePlace::Database(url.to_owned()))
        }
        Some(url) if !url.starts_with("sqlite:") => {
            // Never the address itself: it may hold a password.
            let scheme = url.split(':').next().unwrap_or_default();
            Err(format!("starts with {scheme}:, and must be sqlite:PATH or postgres://USER@HOST/NAME"))
        }
        url => path_of(url, "sqlite", &data.join("tenure.db")).map(StorePlace::File),
    }
}

fn unflatten(merged: &Merged) -> toml::Table {
    let mut root = toml::Table::new();
    for (key, (value, _)) in merged {
        match key.split_once('.') {
            Some((table, name)) => {
                let entry = root.entry(table.to_owned()).or_insert_with(|| toml::Value::Table(toml::Table::new()));
                if let toml::Value::Table(table) = entry {
                    table.insert(name.trim_matches('"').to_owned(), value.clone());
                }
            }
            None => {
                root.insert(key.clone(), value.clone());
            }
        }
    }
    root
}

/// What stands for a value that is not shown.
const HIDDEN: &str = "(hidden)";

/// Header values and the user part of addresses may be keys: they are never shown.
fn hide_secrets(value: toml::Value) -> toml::Value {
    match value {
        toml::Value::Table(mut table) => {
            for (key, inner) in &mut table {
                match inner {
                    toml::Value::Table(headers) if key == "headers" => {
                        headers.iter_mut().for_each(|(_, value)| *value = HIDDEN.into())
                    }
                    other => *other = hide_secrets(other.clone()),
                }
            }
            toml::Value::Table(table)
        }
        toml::Value::String(text) => match text.split_once("://").and_then(|(scheme, rest)| {
            let (user, place) = rest.split_once('@')?;
            (!user.contains('/')).then(|| format!("{scheme}://{HIDDEN}@{place}"))
        }) {
            Some(hidden) => hidden.into(),
            None => text.into(),
        },
        other => other,
    }
}

fn unknown_variables() -> Vec<String> {
    let known = |name: &str| VARIABLES.iter().any(|(known, _)| *known == name) || OTHER_VARIABLES.contains(&name);
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let mut unknown: Vec<String> = names.filter(|name| name.starts_with("TENURE_") && !known(name)).collect();
    unknown.sort();
    unknown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_values_and_users_of_addresses_are_hidden() {
        let value: toml::Table =
            "base_url = \"http://me:pw@host/v1\"\n[headers]\nx-key = \"s3cret\"\n".parse().unwrap();
        let shown = hide_secrets(value.into()).to_string();
        assert!(!shown.contains("s3cret") && !shown.contains("pw"), "{shown}");
    }

    #[test]
    fn a_store_is_a_file_or_a_database_and_nothing_else() {
        let place = |url| store_place(url, Path::new("d"));
        assert_eq!(place(None).unwrap().shown(), "sqlite:d/tenure.db");
        let database = place(Some("postgres://me:s3cret@db.example/x?password=s3cret")).unwrap();
        assert_eq!(
            (database.shown().as_str(), format!("{database:?}").as_str()),
            ("postgres://db.example/x", "postgres://db.example/x")
        );
        for (url, expected) in
            [("mysql://me:s3cret@db/x", "mysql:"), ("postgres://me:s3cret@db/x?sslmode=prefer", "sslmode")]
        {
            let refused = place(Some(url)).unwrap_err();
            assert!(refused.contains(expected) && !refused.contains("s3cret"), "{refused}");
        }
    }

    #[test]
    fn a_file_says_line_and_nearest_key_of_a_wrong_one() {
        let failure = file::check("listen = \"127.0.0.1:1\"\n[worker]\nslotz = 3\n", "tenure.toml").unwrap_err();
        let text = failure.to_string();
        assert!(text.contains("tenure.toml, line 3") && text.contains("did you mean `slots`?"), "{text}");
    }

    #[test]
    fn a_wrong_type_is_named_in_words_of_the_file() {
        let told = |text: &str| file::check(text, "tenure.toml").unwrap_err().to_string();
        for (given, expected) in [
            ("listen = 5", "tenure.toml, line 1: expected a text in quotation marks, found the whole number 5"),
            (
                "[worker]\nslots = \"many\"",
                "tenure.toml, line 2: expected a whole number that is not negative, found the text \"many\"",
            ),
            (
                "[worker]\nslots = -3",
                "tenure.toml, line 2: expected a whole number that is not negative, found the whole number -3",
            ),
            (
                "[worker]\nslots = 1.5",
                "tenure.toml, line 2: expected a whole number that is not negative, found the number 1.5",
            ),
            ("providers = []", "expected a table such as { name = \"value\" }, found a list"),
        ] {
            assert!(told(given).contains(expected), "{}", told(given));
        }
    }

    #[test]
    fn a_key_that_was_written_into_the_file_is_not_shown() {
        let told = file::check("[providers.x]\ndialect = \"openai\"\napi_key = \"sk-123\"", "tenure.toml").unwrap_err();
        let told = told.to_string();
        assert!(told.contains("line 3") && told.contains("did you mean `api_key_env`?"), "{told}");
        assert!(!told.contains("sk-123"), "{told}");
    }
}
