//! Providers as the configuration describes them (`[providers.NAME]`).

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;
use tenure_core::Price;

/// Which tongue a provider speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DialectName {
    /// Anthropic Messages.
    Anthropic,
    /// OpenAI Chat Completions, which most gateways and local servers speak too.
    OpenAi,
    /// Plays scenario files.
    Script,
}

impl DialectName {
    /// The word for it in the configuration and in the stored origin of blocks.
    pub fn name(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::OpenAi => "openai",
            Self::Script => "script",
        }
    }

    /// Where the dialect's own provider listens; `None` needs no network.
    pub fn default_base_url(self) -> Option<&'static str> {
        match self {
            Self::Anthropic => Some("https://api.anthropic.com"),
            Self::OpenAi => Some("https://api.openai.com/v1"),
            Self::Script => None,
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
    /// Environment variable that holds the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key_env: Option<String>,
    /// File that holds the key; read at every call, so that a new key works at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key_file: Option<PathBuf>,
    /// Headers of every request; their values are never shown.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", serialize_with = "hide_values")]
    pub headers: BTreeMap<String, String>,
    /// Time limits of a call.
    #[serde(default)]
    pub timeouts: Timeouts,
    /// Prices by model name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub prices: BTreeMap<String, PriceConfig>,
    /// Most output tokens per call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<u32>,
    /// Names that lead here without `NAME/` before them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<String>,
    /// Fields added to every request body, such as the settings of reasoning.
    #[serde(default, skip_serializing_if = "serde_json::Map::is_empty")]
    pub extra_body: serde_json::Map<String, serde_json::Value>,
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
            timeouts: Timeouts::default(),
            prices: BTreeMap::new(),
            max_output_tokens: None,
            models: Vec::new(),
            extra_body: serde_json::Map::new(),
            proxy: None,
            scenarios: None,
        }
    }

    /// Where it listens.
    pub fn base_url(&self) -> Option<&str> {
        self.base_url.as_deref().or(self.dialect.default_base_url())
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

fn hide_values<S: Serializer>(headers: &BTreeMap<String, String>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(headers.keys().map(|name| (name, "[redacted]")))
}

/// Time limits of a call, written as texts such as `"500ms"`, `"10s"`, `"30m"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Timeouts {
    /// To connect.
    #[serde(deserialize_with = "read_span", serialize_with = "write_span")]
    pub connect: Duration,
    /// Until the first byte of the reply; local servers can be silent for minutes before it.
    #[serde(deserialize_with = "read_span", serialize_with = "write_span")]
    pub first_byte: Duration,
    /// Between two pieces of the reply.
    #[serde(deserialize_with = "read_span", serialize_with = "write_span")]
    pub idle: Duration,
    /// For the whole call.
    #[serde(deserialize_with = "read_span", serialize_with = "write_span")]
    pub total: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { connect: seconds(10), first_byte: seconds(120), idle: seconds(120), total: seconds(30 * 60) }
    }
}

/// Longest time limit that is taken; a longer one is a mistake.
const MAX_SPAN: Duration = Duration::from_secs(24 * 3_600);

fn read_span<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    span(&text).ok_or_else(|| {
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

fn write_span<S: Serializer>(span: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
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
            DialectName::OpenAi | DialectName::Script => 1.0,
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
        assert_eq!(config.timeouts.idle, Duration::from_millis(500));
        let price = Price { input: 3_000_000, output: 15_000_000, cache_read: 300_000, cache_write: 3_750_000 };
        assert_eq!(config.price("m"), Some(price));
        assert_eq!(config.price("other"), None);
        assert!(!format!("{config:?}").contains("x-team"));
        let shown = toml::to_string(&config).unwrap();
        assert!(shown.contains("x-team = \"[redacted]\""), "{shown}");
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
