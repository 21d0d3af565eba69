//! JSON that is kept as text: provider blocks and tool inputs go out as they came in.

use alloc::borrow::Cow;
use alloc::string::{String, ToString};
use core::fmt;

/// Deepest nesting that is taken in, from anyone.
pub const MAX_JSON_DEPTH: usize = 64;

/// A text that is known to be one strict JSON value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Json(String);

/// Why a text is not JSON that we take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonError(pub String);

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for JsonError {}

impl Json {
    /// Checks `text`, replacing lone surrogate escapes by U+FFFD (case O-031).
    ///
    /// # Errors
    /// The parser's message with line and column, or that the nesting is deeper than
    /// [`MAX_JSON_DEPTH`].
    pub fn parse(text: &str) -> Result<Self, JsonError> {
        let text = clean_surrogates(text);
        check_depth(&text)?;
        // Whole values, not `IgnoredAny`: that one takes numbers such as 1e400, which no value can hold.
        serde_json::from_str::<serde_json::Value>(&text).map_err(|error| JsonError(error.to_string()))?;
        Ok(Self(text.trim().to_string()))
    }

    /// The empty object.
    pub fn object() -> Self {
        Self(String::from("{}"))
    }

    /// Writes a value as JSON.
    pub fn from_value(value: &serde_json::Value) -> Self {
        Self(value.to_string())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The parsed value; integers beyond 64 bits lose precision here, not in the text.
    pub fn to_value(&self) -> serde_json::Value {
        serde_json::from_str(&self.0).expect("checked when it was made")
    }

    /// Whether it is an object.
    pub fn is_object(&self) -> bool {
        self.0.starts_with('{')
    }
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Scans brackets outside strings, so that deep input is refused before a parser recurses (case O-090).
fn check_depth(text: &str) -> Result<(), JsonError> {
    let (mut depth, mut in_string, mut escaped) = (0usize, false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => {
                depth += 1;
                if depth > MAX_JSON_DEPTH {
                    return Err(JsonError(alloc::format!("nested deeper than {MAX_JSON_DEPTH} levels")));
                }
            }
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    Ok(())
}

/// Replaces escapes of lone surrogates inside JSON text by `\ufffd`; proper pairs stay.
pub fn clean_surrogates(text: &str) -> Cow<'_, str> {
    let bytes = text.as_bytes();
    let mut out: Option<String> = None;
    let (mut at, mut copied) = (0, 0);
    while let Some(next) = text.get(at..).and_then(|rest| rest.find('\\')) {
        at += next;
        let Some(unit) = escape(bytes, at) else {
            // Another escape, such as \\ or \n: skip both of its bytes, or the whole character.
            at += 1 + text[at + 1..].chars().next().map_or(1, char::len_utf8);
            continue;
        };
        let is_pair = (0xd800..0xdc00).contains(&unit)
            && escape(bytes, at + 6).is_some_and(|low| (0xdc00..0xe000).contains(&low));
        if is_pair {
            at += 12;
        } else if (0xd800..0xe000).contains(&unit) {
            let out = out.get_or_insert_with(String::new);
            out.push_str(&text[copied..at]);
            out.push_str("\\ufffd");
            at += 6;
            copied = at;
        } else {
            at += 6;
        }
    }
    match out {
        None => Cow::Borrowed(text),
        Some(mut out) => {
            out.push_str(&text[copied..]);
            Cow::Owned(out)
        }
    }
}

/// The code unit of a `\uXXXX` escape that starts at `at`.
fn escape(bytes: &[u8], at: usize) -> Option<u32> {
    let escape = bytes.get(at..at + 6)?;
    if !escape.starts_with(b"\\u") {
        return None;
    }
    let digits = core::str::from_utf8(&escape[2..]).ok()?;
    digits.bytes().all(|byte| byte.is_ascii_hexdigit()).then(|| u32::from_str_radix(digits, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn o_031_lone_surrogates_become_replacement_characters_and_pairs_stay() {
        for (given, expected) in [
            (r#""\ud99c""#, r#""\ufffd""#),
            (r#""\ud83d\ude00""#, r#""\ud83d\ude00""#),
            (r#""a\ude00b""#, r#""a\ufffdb""#),
            (r#""\\ud99c""#, r#""\\ud99c""#),
            (r#""\ud83d\ud83d\ude00""#, r#""\ufffd\ud83d\ude00""#),
        ] {
            assert_eq!(Json::parse(given).map(|json| json.0), Ok(expected.to_string()), "{given}");
        }
    }

    #[test]
    fn o_090_deep_json_is_refused_and_the_limit_is_taken() {
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert!(Json::parse(&nested(MAX_JSON_DEPTH)).is_ok());
        assert!(Json::parse(&nested(MAX_JSON_DEPTH + 1)).is_err());
        assert!(Json::parse(&("{\"x\":".to_string() + &"[".repeat(10_000))).is_err());
    }

    #[test]
    fn what_is_taken_can_be_read_as_a_value() {
        for text in ["1e400", "{\"x\":-1e999}", "[1e309]"] {
            assert!(Json::parse(text).is_err(), "{text}");
        }
        for text in ["1e308", "123456789012345678901234567890", "-0", "\"\\u0000\""] {
            let json = Json::parse(text).expect("plain JSON");
            assert_eq!(json.as_str(), text);
            json.to_value();
        }
    }

    #[test]
    fn brackets_inside_strings_do_not_count() {
        let text = alloc::format!("\"{}\"", "[".repeat(1_000));
        assert!(Json::parse(&text).is_ok());
    }
}
