//! Where spans go and what they may hold, from the configuration and the variables that the
//! specification of OpenTelemetry names.

use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use std::time::Duration;

/// Path of traces below the endpoint of a collector.
const TRACES_PATH: &str = "v1/traces";

/// How long a collector may take for one request, unless `OTEL_EXPORTER_OTLP_TIMEOUT` says otherwise.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Longest time that is taken; a longer one is a mistake.
const MAX_TIMEOUT: Duration = Duration::from_secs(300);

/// Whether what people and models say stands in spans.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Content {
    /// Left out.
    #[default]
    LeftOut,
    /// Prompts, answers, inputs and outputs of tools, with known secrets masked.
    Captured,
}

/// What the configuration says of traces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Base address of a collector; none exports nothing.
    pub endpoint: Option<String>,
    /// Headers of each request, as `name=value,name=value` with values in percent encoding.
    pub headers: Option<String>,
    /// The name of this service; `tenure` if left out.
    pub service_name: Option<String>,
    /// What spans may hold.
    pub content: Content,
}

/// Something that has to be changed.
#[derive(Debug, thiserror::Error)]
#[error("{setting} {problem}")]
pub struct SettingsError {
    /// Which setting or variable.
    pub setting: &'static str,
    /// What is wrong with it; never holds the value of a header.
    pub problem: String,
}

/// Where to send, ready to use.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) url: Url,
    pub(crate) headers: HeaderMap,
    pub(crate) timeout: Duration,
    pub(crate) resource: Vec<(String, String)>,
    pub(crate) content: Content,
}

impl Settings {
    /// Where to send; `None` if nowhere. `variable` reads the environment.
    pub(crate) fn target(&self, variable: &dyn Fn(&str) -> Option<String>) -> Result<Option<Target>, SettingsError> {
        let variable = |name: &str| variable(name).filter(|text| !text.trim().is_empty());
        let is_off = variable("OTEL_SDK_DISABLED").is_some_and(|text| text.trim().eq_ignore_ascii_case("true"))
            || variable("OTEL_TRACES_EXPORTER").is_some_and(|text| text.trim() == "none");
        let own = variable("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT");
        let url = match (&own, &self.endpoint) {
            _ if is_off => return Ok(None),
            (Some(whole), _) => url("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", whole)?,
            (None, Some(base)) => {
                let mut base = url("telemetry.otlp_endpoint", base)?;
                let path = format!("{}/{TRACES_PATH}", base.path().trim_end_matches('/'));
                base.set_path(&path);
                base
            }
            (None, None) => return Ok(None),
        };
        for name in ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"] {
            if let Some(other) = variable(name).filter(|text| text.trim() != "http/protobuf") {
                let problem = format!("is {other:?}, and this program sends http/protobuf only");
                return Err(SettingsError { setting: "OTEL_EXPORTER_OTLP_PROTOCOL", problem });
            }
        }
        let mut headers = HeaderMap::new();
        for text in [self.headers.clone(), variable("OTEL_EXPORTER_OTLP_TRACES_HEADERS")].into_iter().flatten() {
            add_headers(&mut headers, &text)?;
        }
        let timeout = variable("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT").or(variable("OTEL_EXPORTER_OTLP_TIMEOUT"));
        let timeout = match timeout {
            None => TIMEOUT,
            Some(text) => millis(&text)?,
        };
        let resource = resource(self.service_name.as_deref(), variable("OTEL_RESOURCE_ATTRIBUTES").as_deref());
        Ok(Some(Target { url, headers, timeout, resource, content: self.content }))
    }

    /// Whether everything can be used.
    ///
    /// # Errors
    /// What is wrong with which setting.
    pub fn check(&self, variable: &dyn Fn(&str) -> Option<String>) -> Result<(), SettingsError> {
        self.target(variable).map(drop)
    }

    /// The values of all headers, which must be masked wherever they could be shown.
    pub fn secrets(&self, variable: &dyn Fn(&str) -> Option<String>) -> Vec<String> {
        let texts = [self.headers.clone(), variable("OTEL_EXPORTER_OTLP_TRACES_HEADERS")];
        let texts: Vec<String> = texts.into_iter().flatten().collect();
        texts.iter().flat_map(|text| pairs(text)).filter_map(|(_, value)| value).collect()
    }
}

fn url(setting: &'static str, text: &str) -> Result<Url, SettingsError> {
    let wrong = |problem: String| SettingsError { setting, problem };
    let url = Url::parse(text.trim()).map_err(|error| wrong(format!("is not an address: {error}")))?;
    match url.scheme() {
        "http" | "https" => Ok(url),
        other => Err(wrong(format!("starts with {other}:, and must start with http:// or https://"))),
    }
}

fn millis(text: &str) -> Result<Duration, SettingsError> {
    let millis = text.trim().parse().ok().map(Duration::from_millis);
    millis.filter(|span| !span.is_zero() && *span <= MAX_TIMEOUT).ok_or_else(|| SettingsError {
        setting: "OTEL_EXPORTER_OTLP_TIMEOUT",
        problem: format!("is {text:?}, and must be a number of milliseconds up to {}", MAX_TIMEOUT.as_millis()),
    })
}

fn add_headers(headers: &mut HeaderMap, text: &str) -> Result<(), SettingsError> {
    for (name, value) in pairs(text) {
        let header = || {
            let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
            let mut value = HeaderValue::from_str(value.as_ref()?).ok()?;
            value.set_sensitive(true);
            Some((name, value))
        };
        let (name, value) = header().ok_or_else(|| SettingsError {
            setting: "telemetry.otlp_headers",
            problem: format!("has an entry {name:?} that is not NAME=VALUE of a header"),
        })?;
        headers.insert(name, value);
    }
    Ok(())
}

/// `a=b,c=d`, with values in percent encoding; an entry without `=` has no value.
fn pairs(text: &str) -> Vec<(String, Option<String>)> {
    let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
    let pair = |entry: &str| match entry.split_once('=') {
        Some((name, value)) => (name.trim().to_owned(), decoded(value.trim())),
        // What stands there may be a value whose name was forgotten: it is not shown.
        None => ("(hidden)".to_owned(), None),
    };
    entries.map(pair).collect()
}

/// A text without its percent encoding; `None` if that gives no UTF-8.
fn decoded(text: &str) -> Option<String> {
    let (bytes, mut decoded, mut at) = (text.as_bytes(), Vec::new(), 0);
    while let Some(byte) = bytes.get(at) {
        let pair = bytes.get(at + 1..at + 3).and_then(|digits| std::str::from_utf8(digits).ok());
        match pair.filter(|_| *byte == b'%').and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(code) => {
                decoded.push(code);
                at += 3;
            }
            None => {
                decoded.push(*byte);
                at += 1;
            }
        }
    }
    String::from_utf8(decoded).ok()
}

/// Who sends: what the variable says, with the name of the service on top.
fn resource(service_name: Option<&str>, attributes: Option<&str>) -> Vec<(String, String)> {
    let mut resource: Vec<(String, String)> =
        pairs(attributes.unwrap_or_default()).into_iter().filter_map(|(key, value)| Some((key, value?))).collect();
    let mut set =
        |key: &str, value: String, is_stronger: bool| match resource.iter_mut().find(|(known, _)| known == key) {
            Some(known) if is_stronger => known.1 = value,
            Some(_) => {}
            None => resource.push((key.to_owned(), value)),
        };
    set("service.name", service_name.unwrap_or("tenure").to_owned(), service_name.is_some());
    set("service.version", env!("CARGO_PKG_VERSION").to_owned(), false);
    set("process.pid", std::process::id().to_string(), false);
    resource
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(endpoint: Option<&str>, variables: &[(&str, &str)]) -> Result<Option<Target>, SettingsError> {
        let settings = Settings { endpoint: endpoint.map(str::to_owned), ..Settings::default() };
        let read = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, text)| (*text).to_owned());
        settings.target(&read)
    }

    #[test]
    fn a_base_gets_the_path_of_traces_and_a_whole_address_is_taken_as_it_is() {
        let url = |endpoint, variables: &[_]| target(endpoint, variables).unwrap().unwrap().url.to_string();
        assert_eq!(url(Some("http://c:4318"), &[]), "http://c:4318/v1/traces");
        assert_eq!(url(Some("https://c/base/"), &[]), "https://c/base/v1/traces");
        let whole = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://d/x");
        assert_eq!(url(Some("http://c:4318"), &[whole]), "http://d/x");
        assert_eq!(url(None, &[whole]), "http://d/x");
        assert!(target(None, &[]).unwrap().is_none());
        assert!(target(Some("http://c"), &[("OTEL_SDK_DISABLED", "true")]).unwrap().is_none());
        assert!(target(Some("http://c"), &[("OTEL_TRACES_EXPORTER", "none")]).unwrap().is_none());
    }

    #[test]
    fn headers_are_decoded_and_their_values_are_never_in_a_message() {
        let settings = Settings {
            endpoint: Some("http://c".into()),
            headers: Some("authorization=Bearer%20s3cret, x-a=1".into()),
            ..Settings::default()
        };
        let target = settings.target(&|_| None).unwrap().unwrap();
        assert_eq!(target.headers["authorization"], "Bearer s3cret");
        assert_eq!(target.headers["x-a"], "1");
        assert!(!format!("{target:?}").contains("s3cret"));
        assert_eq!(settings.secrets(&|_| None), ["Bearer s3cret", "1"]);
        for wrong in ["s3cret", "a b=s3cret", "x=s3c\u{1}ret"] {
            let settings = Settings { headers: Some(wrong.into()), ..settings.clone() };
            let message = settings.target(&|_| None).unwrap_err().to_string();
            assert!(message.starts_with("telemetry.otlp_headers") && !message.contains("s3c"), "{message}");
        }
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_its_name() {
        let wrong = |endpoint, variables: &[_]| target(endpoint, variables).unwrap_err().to_string();
        assert!(wrong(Some("c:4318"), &[]).contains("telemetry.otlp_endpoint starts with c:"));
        assert!(wrong(Some("//c"), &[]).contains("is not an address"));
        assert!(wrong(Some("http://c"), &[("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")]).contains("http/protobuf only"));
        for timeout in ["0", "-1", "soon", "99999999999999999999"] {
            assert!(wrong(Some("http://c"), &[("OTEL_EXPORTER_OTLP_TIMEOUT", timeout)]).contains("milliseconds"));
        }
    }

    #[test]
    fn the_name_of_the_service_is_stronger_than_the_attributes() {
        let name = |service: Option<&str>| {
            let resource = resource(service, Some("service.name=other,team=a%20b"));
            assert!(resource.contains(&("team".into(), "a b".into())));
            resource.iter().find(|(key, _)| key == "service.name").unwrap().1.clone()
        };
        assert_eq!((name(None), name(Some("mine"))), ("other".to_owned(), "mine".to_owned()));
    }
}
