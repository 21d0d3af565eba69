//! Masks known secret values in whatever is stored or shown (promise P18, case O-088).
//!
//! Verbatim, as base64 in its three alignments, percent-encoded and as a JSON string. What a command
//! does to a secret beyond that is out of reach: this is best effort, and called that.

use alloc::borrow::Cow;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

/// Shorter values are not masked: they would hit innocent text.
pub const MIN_SECRET_LEN: usize = 8;

/// What stands for a secret.
pub const MASK: &str = "[redacted]";

/// Finds known secrets in text.
#[derive(Clone, Default)]
pub struct Masker {
    forms: Vec<String>,
}

impl Masker {
    /// Knows these values; those below [`MIN_SECRET_LEN`] are left out.
    pub fn new<'a>(secrets: impl Iterator<Item = &'a str>) -> Self {
        let mut forms: Vec<String> = secrets.filter(|secret| secret.len() >= MIN_SECRET_LEN).flat_map(forms).collect();
        // Longer forms first, so that a part does not hide the whole.
        forms.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        forms.dedup();
        Self { forms }
    }

    /// The text without known secrets.
    pub fn mask<'a>(&self, text: &'a str) -> Cow<'a, str> {
        if !self.forms.iter().any(|form| text.contains(form.as_str())) {
            return Cow::Borrowed(text);
        }
        let mut stream = StreamMasker::new(self.clone());
        let mut masked = stream.push(text.as_bytes());
        masked.append(&mut stream.finish());
        Cow::Owned(String::from_utf8(masked).expect("whole forms in UTF-8 are replaced by ASCII"))
    }
}

impl fmt::Debug for Masker {
    /// Says how many forms are known, and none of them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Masker({} forms)", self.forms.len())
    }
}

/// Masks a stream, so that a secret cut by the borders of chunks is found too.
///
/// Gives the same text as masking the whole, whatever the chunks. What could be the beginning of a
/// secret is held back: less than the longest form of one.
#[derive(Clone, Debug)]
pub struct StreamMasker {
    masker: Masker,
    held: Vec<u8>,
}

impl StreamMasker {
    /// Masks what `masker` knows.
    pub fn new(masker: Masker) -> Self {
        Self { masker, held: Vec::new() }
    }

    /// Takes the next bytes and gives what is safe to show. Valid UTF-8 stays valid as a whole.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.held.extend_from_slice(bytes);
        self.give(false)
    }

    /// Ends the stream and gives the rest.
    pub fn finish(&mut self) -> Vec<u8> {
        self.give(true)
    }

    fn give(&mut self, is_end: bool) -> Vec<u8> {
        let (mut out, mut at) = (Vec::new(), 0);
        while let Some(rest) = self.held.get(at..).filter(|rest| !rest.is_empty()) {
            // Forms are tried from the longest on, so a longer one that may still come goes first.
            let mut found = None;
            for form in self.masker.forms.iter().map(|form| form.as_bytes()).filter(|form| form.first() == rest.first())
            {
                if rest.starts_with(form) {
                    found = Some(form.len());
                    break;
                }
                if !is_end && form.starts_with(rest) {
                    self.held.drain(..at);
                    return out;
                }
            }
            match found {
                Some(len) => {
                    out.extend_from_slice(MASK.as_bytes());
                    at += len;
                }
                None => {
                    out.push(rest[0]);
                    at += 1;
                }
            }
        }
        self.held.clear();
        out
    }
}

fn forms(secret: &str) -> Vec<String> {
    let mut forms = alloc::vec![secret.to_string(), percent(secret)];
    let json = serde_json::to_string(secret).unwrap_or_default();
    forms.push(json.get(1..json.len().saturating_sub(1)).unwrap_or_default().to_string());
    forms.push(percent(secret).replace("%20", "+"));
    forms.retain(|form| form.len() >= MIN_SECRET_LEN);
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
    fn o_088_a_secret_split_over_chunks_is_masked_wherever_it_is_cut() {
        let secrets = ["sk-ant/0123+456789abc", "sk-ant/0123+456789abcdef", "pass\"word ü"];
        let masker = Masker::new(secrets.into_iter());
        let text = alloc::format!(
            "a={} b={} c={} sk-ant/0123 d={}",
            secrets[0],
            secrets[1],
            secrets[2],
            base64(alloc::format!("x{}", secrets[0]).as_bytes())
        );
        let whole = masker.mask(&text).into_owned();
        assert_eq!(whole.matches(MASK).count(), 4, "{whole}");
        for size in 1..text.len() {
            let mut stream = StreamMasker::new(masker.clone());
            let mut out: Vec<u8> = text.as_bytes().chunks(size).flat_map(|chunk| stream.push(chunk)).collect();
            out.extend(stream.finish());
            assert_eq!(String::from_utf8(out).as_deref(), Ok(whole.as_str()), "{size}");
        }
    }

    #[test]
    fn the_debug_form_shows_no_secret() {
        let masker = Masker::new(["supersecret"].into_iter());
        assert!(!alloc::format!("{masker:?}").contains("supersecret"));
    }

    #[test]
    fn short_values_are_not_masked() {
        assert_eq!(Masker::new(["abc"].into_iter()).mask("abcabc"), "abcabc");
    }
}
