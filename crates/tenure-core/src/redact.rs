//! Masks known secret values in whatever is stored or shown (promise P18, case O-088).
//!
//! Verbatim, as base64 in its three alignments, percent-encoded and as a JSON string. What a command
//! does to a secret beyond that is out of reach: this is best effort, and called that.

use alloc::borrow::Cow;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// Shorter values are not masked: they would hit innocent text.
pub const MIN_SECRET_LEN: usize = 8;

/// What stands for a secret.
pub const MASK: &str = "[redacted]";

/// Finds known secrets in text.
#[derive(Clone, Debug, Default)]
pub struct Masker {
    forms: Vec<String>,
}

impl Masker {
    /// Knows these values; those below [`MIN_SECRET_LEN`] are left out.
    pub fn new<'a>(secrets: impl Iterator<Item = &'a str>) -> Self {
        let mut forms: Vec<String> = secrets.filter(|secret| secret.len() >= MIN_SECRET_LEN).flat_map(forms).collect();
        // Longer forms first, so that a part does not hide the whole.
        forms.sort_by_key(|form| core::cmp::Reverse(form.len()));
        forms.dedup();
        Self { forms }
    }

    /// The text without known secrets.
    pub fn mask<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut masked = Cow::Borrowed(text);
        for form in &self.forms {
            if masked.contains(form.as_str()) {
                masked = Cow::Owned(masked.replace(form.as_str(), MASK));
            }
        }
        masked
    }
}

fn forms(secret: &str) -> Vec<String> {
    let mut forms = alloc::vec![secret.to_string(), percent(secret)];
    let json = serde_json::to_string(secret).unwrap_or_default();
    forms.push(json.trim_matches('"').to_string());
    // Inside a longer text the secret begins at one of three places of a base64 group; the characters
    // at both ends depend on their neighbours and are left out.
    for shift in 0..3 {
        let mut bytes = alloc::vec![0u8; shift];
        bytes.extend(secret.as_bytes());
        let encoded = base64(&bytes);
        let start = (shift * 8).div_ceil(6);
        let whole = bytes.len() * 8 / 6;
        if let Some(part) = encoded.get(start..whole)
            && part.len() >= MIN_SECRET_LEN
        {
            forms.push(part.to_string());
            forms.push(part.replace('+', "-").replace('/', "_"));
        }
    }
    forms
}

fn percent(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&alloc::format!("%{byte:02X}"));
        }
    }
    out
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for group in bytes.chunks(3) {
        let word = group.iter().fold(0u32, |word, byte| word << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
        for place in 0..=group.len() {
            let digit = usize::try_from(word >> (18 - 6 * place) & 63).unwrap_or(0);
            out.push(char::from(DIGITS[digit]));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn o_088_a_secret_is_masked_in_its_known_forms() {
        let secret = "sk-ant/0123+456789abc";
        let masker = Masker::new([secret].into_iter());
        for text in [
            alloc::format!("KEY={secret}"),
            base64(alloc::format!("x{secret}").as_bytes()),
            base64(alloc::format!("xy{secret} and more").as_bytes()),
            base64(alloc::format!("{secret}:").as_bytes()),
            percent(secret),
        ] {
            assert!(masker.mask(&text).contains(MASK), "{text}");
        }
        assert_eq!(masker.mask("nothing here"), "nothing here");
    }

    #[test]
    fn short_values_are_not_masked() {
        assert_eq!(Masker::new(["abc"].into_iter()).mask("abcabc"), "abcabc");
    }
}
