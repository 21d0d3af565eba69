//! Providers as the configuration describes them (`[providers.NAME]`).

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;
use tenure_core::{ModelFacts, Price};

/// Context that Ollama is asked for where nothing is configured: its own default holds hardly more than
/// instructions and tools.
const OLLAMA_CONTEXT_WINDOW: u64 = 32_768;

/// Ollama's name for the context that a request uses.
const NUM_CTX: &str = "num_ctx";

/// Which tongue a provider speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DialectName {
    /// Anthropic Messages.
    Anthropic,
    /// OpenAI Chat Completions, which most gateways and local servers speak too.
    OpenAi,
    /// OpenAI Responses.
    Responses,
    /// Gemini.
    Gemini,
    /// Ollama's own API.
    Ollama,
    /// Plays scenario files.
    Script,
}

impl DialectName {
    /// The word for it in the configuration and in the stored origin of blocks.
    pub fn name(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::OpenAi => "openai",
            Self::Responses => "responses",
            Self::Gemini => "gemini",
            Self::Ollama => "ollama",
            Self::Script => "script",
        }
    }

    /// Where the dialect's own provider listens; `None` needs no network.
    pub fn default_base_url(self) -> Option<&'static str> {
        match self {
            Self::Anthropic => Some("https://api.anthropic.com"),
            Self::OpenAi | Self::Responses => Some("https://api.openai.com/v1"),
            Self::Gemini => Some("https://generativelanguage.googleapis.com/v1beta"),
            Self::Ollama => Some("http://127.0.0.1:11434"),
            Self::Script => None,
        }
    }

    /// The environment variable in which users of the dialect's own provider keep their key.
    pub fn default_key_env(self) -> Option<&'static str> {
        match self {
            Self::Anthropic => Some("ANTHROPIC_API_KEY"),
            Self::OpenAi | Self::Responses => Some("OPENAI_API_KEY"),
            Self::Gemini => Some("GEMINI_API_KEY"),
            Self::Ollama | Self::Script => None,
        }
    }

    /// The time limits where nothing is configured.
    pub fn default_timeouts(self) -> Timeouts {
        let minutes = |minutes: u64| Duration::from_secs(minutes * 60);
        let remote = Timeouts {
            connect: Duration::from_secs(10),
            first_byte: minutes(2),
            idle: minutes(2),
            progress: minutes(10),
            total: minutes(30),
        };
        match self {
            Self::Anthropic | Self::OpenAi | Self::Responses | Self::Gemini | Self::Script => remote,
            // A server on this machine loads its model first and may read a long prompt slowly.
            Self::Ollama => Timeouts {
                first_byte: minutes(15),
                idle: minutes(10),
                progress: minutes(15),
                total: minutes(120),
                ..remote
            },
        }
    }
}

impl DialectName {
    /// The smallest context that the dialect's own provider sells today; `None` where servers differ
    /// too much to guess.
    fn default_context_window(self) -> Option<u64> {
        match self {
            Self::Anthropic => Some(200_000),
            Self::Gemini => Some(1_000_000),
            // Not what its server would take by itself, but what it is asked to take.
            Self::Ollama => Some(OLLAMA_CONTEXT_WINDOW),
            Self::OpenAi | Self::Responses | Self::Script => None,
        }
    }
}

impl fmt::Display for DialectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One provider.
#[derive(Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ProviderConfig {
    /// Which tongue it speaks.
    pub dialect: DialectName,
    /// Where it listens; the dialect's own provider if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_url: Option<String>,
    /// Environment variable that holds the key; see [`ProviderConfig::key_env`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key_env: Option<String>,
    /// File that holds the key; read at every call, so that a new key works at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key_file: Option<PathBuf>,
    /// Headers of every request; their values are never shown.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", serialize_with = "hide_values")]
    pub headers: BTreeMap<String, String>,
    /// Time limits of a call.
    #[serde(default, skip_serializing_if = "TimeoutsConfig::is_empty")]
    pub timeouts: TimeoutsConfig,
    /// Time limits of some models, by name; what is left out is the provider's.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub model_timeouts: BTreeMap<String, TimeoutsConfig>,
    /// Prices by model name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub prices: BTreeMap<String, PriceConfig>,
    /// Most output tokens per call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<u32>,
    /// Tokens of input and output together that its models take; learnt from a refusal if left out.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "read_window")]
    pub context_window: Option<u64>,
    /// The same by model name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "read_windows")]
    pub context_windows: BTreeMap<String, u64>,
    /// Most bytes of a request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_request_bytes: Option<u64>,
    /// Names that lead here without `NAME/` before them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<String>,
    /// Fields added to every request body, such as the settings of reasoning.
    #[serde(default, skip_serializing_if = "serde_json::Map::is_empty")]
    pub extra_body: Map<String, Value>,
    /// Proxy for the calls; the one of the system is not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy: Option<String>,
    /// Folder of the scenario files (dialect `script`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scenarios: Option<PathBuf>,
}

impl fmt::Debug for ProviderConfig {
    /// Leaves out what can hold secrets, such as the values of headers.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProviderConfig")
            .field("dialect", &self.dialect)
            .field("base_url", &self.base_url)
            .finish_non_exhaustive()
    }
}

impl ProviderConfig {
    /// A provider with the defaults of its dialect.
    pub fn new(dialect: DialectName) -> Self {
        Self {
            dialect,
            base_url: None,
            api_key_env: None,
            api_key_file: None,
            headers: BTreeMap::new(),
            timeouts: TimeoutsConfig::default(),
            model_timeouts: BTreeMap::new(),
            prices: BTreeMap::new(),
            max_output_tokens: None,
            context_window: None,
            context_windows: BTreeMap::new(),
            max_request_bytes: None,
            models: Vec::new(),
            extra_body: Map::new(),
            proxy: None,
            scenarios: None,
        }
    }

    /// Where it listens.
    pub fn base_url(&self) -> Option<&str> {
        self.base_url.as_deref().or(self.dialect.default_base_url())
    }

    /// The environment variable that holds the key: the configured one, else the usual one of the
    /// dialect's own provider. An address of one's own gets no key that was not meant for it.
    pub fn key_env(&self) -> Option<&str> {
        let is_own = self.base_url.as_deref().is_none_or(|url| Some(url) == self.dialect.default_base_url());
        let is_said = self.api_key_file.is_some() || self.headers.keys().any(|name| is_key_header(name));
        let usual = if is_own && !is_said { self.dialect.default_key_env() } else { None };
        self.api_key_env.as_deref().or(usual)
    }

    /// The time limits of a model: its own, else the provider's, else the dialect's.
    pub fn timeouts(&self, model_name: &str) -> Timeouts {
        let of_provider = self.timeouts.over(self.dialect.default_timeouts());
        match self.model_timeouts.get(model_name) {
            Some(of_model) => of_model.over(of_provider),
            None => of_provider,
        }
    }

    /// How much a model takes.
    pub fn facts(&self, model_name: &str) -> ModelFacts {
        ModelFacts {
            context_window: self.context_window(model_name),
            cuts_silently: self.dialect == DialectName::Ollama,
            max_request_bytes: self.max_request_bytes.unwrap_or(DEFAULT_MAX_REQUEST_BYTES),
        }
    }

    /// Tokens of input and output together that a model takes, if anything says so.
    fn context_window(&self, model_name: &str) -> Option<u64> {
        let asked = self.extra_body.get("options").and_then(|options| options.get(NUM_CTX)).and_then(Value::as_u64);
        let asked = asked.filter(|_| self.dialect == DialectName::Ollama);
        let configured = self.context_windows.get(model_name).copied().or(self.context_window);
        asked.or(configured).or(self.dialect.default_context_window())
    }

    /// The fields that every request for a model carries besides ours.
    ///
    /// Ollama cuts what is longer than its window without a word, and its own window is small: it is
    /// always told which one to use, the same that requests are planned by.
    pub(crate) fn extra_body(&self, model_name: &str) -> Cow<'_, Map<String, Value>> {
        let window = self.context_window(model_name).filter(|_| self.dialect == DialectName::Ollama);
        let Some(window) = window else { return Cow::Borrowed(&self.extra_body) };
        let mut extra = self.extra_body.clone();
        let options = extra.entry("options").or_insert_with(|| Value::Object(Map::new()));
        if let Some(options) = options.as_object_mut() {
            options.entry(NUM_CTX).or_insert_with(|| Value::from(window));
        }
        Cow::Owned(extra)
    }

    /// The price of a model; a script costs nothing.
    pub fn price(&self, model_name: &str) -> Option<Price> {
        let free = Price { input: 0, output: 0, cache_read: 0, cache_write: 0 };
        match self.prices.get(model_name) {
            Some(config) => Some(config.price(self.dialect)),
            None => (self.dialect == DialectName::Script).then_some(free),
        }
    }
}

/// Whether a header is one that carries keys in some dialect.
fn is_key_header(name: &str) -> bool {
    ["authorization", "x-api-key", "x-goog-api-key"].iter().any(|known| name.eq_ignore_ascii_case(known))
}

fn hide_values<S: Serializer>(headers: &BTreeMap<String, String>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(headers.keys().map(|name| (name, "[redacted]")))
}

/// Time limits of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// To connect.
    pub connect: Duration,
    /// Until the first byte of the answer; local servers can be silent for minutes before it.
    pub first_byte: Duration,
    /// Between two bytes of the answer, whatever they say.
    pub idle: Duration,
    /// Between two pieces of the answer: pings are signs of life, but no progress.
    pub progress: Duration,
    /// For the whole call.
    pub total: Duration,
}

/// Time limits as they are configured, written as texts such as `"500ms"`, `"10s"`, `"30m"`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs, reason = "as in Timeouts")]
pub struct TimeoutsConfig {
    #[serde(deserialize_with = "read_span", serialize_with = "write_span", skip_serializing_if = "Option::is_none")]
    pub connect: Option<Duration>,
    #[serde(deserialize_with = "read_span", serialize_with = "write_span", skip_serializing_if = "Option::is_none")]
    pub first_byte: Option<Duration>,
    #[serde(deserialize_with = "read_span", serialize_with = "write_span", skip_serializing_if = "Option::is_none")]
    pub idle: Option<Duration>,
    #[serde(deserialize_with = "read_span", serialize_with = "write_span", skip_serializing_if = "Option::is_none")]
    pub progress: Option<Duration>,
    #[serde(deserialize_with = "read_span", serialize_with = "write_span", skip_serializing_if = "Option::is_none")]
    pub total: Option<Duration>,
}

impl TimeoutsConfig {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// These limits, and the others where nothing is said.
    fn over(&self, other: Timeouts) -> Timeouts {
        Timeouts {
            connect: self.connect.unwrap_or(other.connect),
            first_byte: self.first_byte.unwrap_or(other.first_byte),
            idle: self.idle.unwrap_or(other.idle),
            progress: self.progress.unwrap_or(other.progress),
            total: self.total.unwrap_or(other.total),
        }
    }
}

/// Longest time limit that is taken; a longer one is a mistake.
const MAX_SPAN: Duration = Duration::from_secs(24 * 3_600);

fn read_span<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    let text = String::deserialize(deserializer)?;
    span(&text).map(Some).ok_or_else(|| {
        serde::de::Error::custom(format!(
            "{text:?} is not a time limit; write for example \"500ms\", \"10s\" or \"30m\", at most \"24h\""
        ))
    })
}

fn span(text: &str) -> Option<Duration> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let number: u64 = text[..digits].parse().ok()?;
    let millis = match &text[digits..] {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return None,
    };
    let span = Duration::from_millis(number.checked_mul(millis)?);
    (!span.is_zero() && span <= MAX_SPAN).then_some(span)
}

fn write_span<S: Serializer>(span: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    let Some(span) = span else { return serializer.serialize_none() };
    let millis = span.as_millis();
    let text = if millis.is_multiple_of(1_000) { format!("{}s", millis / 1_000) } else { format!("{millis}ms") };
    serializer.serialize_str(&text)
}

/// Prices of one model, in US dollars per million tokens.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PriceConfig {
    /// Input.
    #[serde(deserialize_with = "read_price")]
    pub input: f64,
    /// Output, reasoning included.
    #[serde(deserialize_with = "read_price")]
    pub output: f64,
    /// Input read from the provider's cache; the full input price if left out.
    #[serde(default, deserialize_with = "read_some_price", skip_serializing_if = "Option::is_none")]
    pub cached_input: Option<f64>,
    /// Input written to the cache; 1.25 times the input price for Anthropic, else the input price.
    #[serde(default, deserialize_with = "read_some_price", skip_serializing_if = "Option::is_none")]
    pub cache_write: Option<f64>,
}

/// Most bytes of a request where nothing is configured: what Anthropic takes, and less than others do.
const DEFAULT_MAX_REQUEST_BYTES: u64 = 32_000_000;

/// Smallest context that is taken; a smaller one holds no conversation with tools.
const MIN_CONTEXT_WINDOW: u64 = 1_024;

/// Largest context that is taken; a larger one is a mistake.
const MAX_CONTEXT_WINDOW: u64 = 1_000_000_000;

fn window<E: serde::de::Error>(window: u64) -> Result<u64, E> {
    if (MIN_CONTEXT_WINDOW..=MAX_CONTEXT_WINDOW).contains(&window) {
        return Ok(window);
    }
    Err(E::custom(format!("{window} is not a context window in tokens; write {MIN_CONTEXT_WINDOW} or more")))
}

fn read_window<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    window(u64::deserialize(deserializer)?).map(Some)
}

fn read_windows<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, u64>, D::Error> {
    let windows = BTreeMap::<String, u64>::deserialize(deserializer)?;
    windows.into_iter().map(|(name, tokens)| Ok((name, window(tokens)?))).collect()
}

/// Highest price that is taken, in dollars per million tokens; a higher one is a mistake.
const MAX_PRICE_USD: f64 = 1_000_000.0;

/// What Anthropic charges for a token that goes into its cache, relative to a plain one.
const ANTHROPIC_CACHE_WRITE: f64 = 1.25;

fn read_price<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    let price = f64::deserialize(deserializer)?;
    if (0.0..=MAX_PRICE_USD).contains(&price) {
        return Ok(price);
    }
    Err(serde::de::Error::custom(format!("{price} is not a price in dollars per million tokens")))
}

fn read_some_price<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    read_price(deserializer).map(Some)
}

impl PriceConfig {
    fn price(&self, dialect: DialectName) -> Price {
        // Bounded above, so the cast is exact enough and in range.
        let micros = |usd: f64| (usd * 1e6).round() as u64;
        let write_factor = match dialect {
            DialectName::Anthropic => ANTHROPIC_CACHE_WRITE,
            DialectName::OpenAi
            | DialectName::Responses
            | DialectName::Gemini
            | DialectName::Ollama
            | DialectName::Script => 1.0,
        };
        Price {
            input: micros(self.input),
            output: micros(self.output),
            cache_read: micros(self.cached_input.unwrap_or(self.input)),
            cache_write: micros(self.cache_write.unwrap_or(self.input * write_factor)),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_reference_is_read() {
        let config: ProviderConfig = toml::from_str(
            r#"
            dialect = "anthropic"
            api_key_env = "ANTHROPIC_API_KEY"
            headers = { x-team = "a" }
            timeouts = { connect = "10s", first_byte = "120s", idle = "500ms", total = "30m" }
            prices = { "m" = { input = 3.0, output = 15, cached_input = 0.3 } }
            "#,
        )
        .unwrap();
        let timeouts = config.timeouts("m");
        assert_eq!((timeouts.idle, timeouts.progress), (Duration::from_millis(500), Duration::from_secs(600)));
        let price = Price { input: 3_000_000, output: 15_000_000, cache_read: 300_000, cache_write: 3_750_000 };
        assert_eq!(config.price("m"), Some(price));
        assert_eq!(config.price("other"), None);
        assert!(!format!("{config:?}").contains("x-team"));
        let shown = toml::to_string(&config).unwrap();
        assert!(shown.contains("x-team = \"[redacted]\""), "{shown}");
    }

    #[test]
    fn time_limits_are_the_models_then_the_providers_then_the_dialects() {
        let config: ProviderConfig = toml::from_str(
            r#"
            dialect = "ollama"
            timeouts = { idle = "1m" }
            model_timeouts = { "big" = { first_byte = "40m" } }
            "#,
        )
        .unwrap();
        let minutes = |minutes: u64| Duration::from_secs(minutes * 60);
        let (big, other) = (config.timeouts("big"), config.timeouts("other"));
        assert_eq!((big.first_byte, big.idle, big.total), (minutes(40), minutes(1), minutes(120)));
        assert_eq!((other.first_byte, other.idle), (minutes(15), minutes(1)));
        assert_eq!(ProviderConfig::new(DialectName::OpenAi).timeouts("m").first_byte, minutes(2));
    }

    #[test]
    fn the_usual_key_goes_to_the_dialects_own_provider_alone() {
        let mut config = ProviderConfig::new(DialectName::Gemini);
        assert_eq!(config.key_env(), Some("GEMINI_API_KEY"));
        config.base_url = Some("https://gateway.example.com".to_owned());
        assert_eq!(config.key_env(), None);
        config.api_key_env = Some("MINE".to_owned());
        assert_eq!(config.key_env(), Some("MINE"));
        assert_eq!(ProviderConfig::new(DialectName::Ollama).key_env(), None);
        let file = ProviderConfig { api_key_file: Some("k".into()), ..ProviderConfig::new(DialectName::OpenAi) };
        assert_eq!(file.key_env(), None);
    }

    #[test]
    fn unknown_fields_strange_spans_and_prices_are_errors() {
        for (line, expected) in [
            ("api_key = \"x\"", "unknown field `api_key`"),
            ("timeouts = { idle = \"10\" }", "is not a time limit"),
            ("timeouts = { idle = \"25h\" }", "is not a time limit"),
            ("prices = { m = { input = -1, output = 1 } }", "is not a price"),
        ] {
            let error = toml::from_str::<ProviderConfig>(&format!("dialect = \"openai\"\n{line}")).unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
        }
    }
}
