//! Base 64 in its two alphabets, strict: one value has one spelling.

const URL: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const STANDARD: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Writes with the alphabet of URLs, without padding.
pub(crate) fn write_url(bytes: &[u8]) -> String {
    write(bytes, URL)
}

/// Reads the alphabet of URLs, without padding.
pub(crate) fn read_url(text: &str) -> Option<Vec<u8>> {
    read(text, URL)
}

/// Reads the standard alphabet, with or without padding.
pub(crate) fn read_standard(text: &str) -> Option<Vec<u8>> {
    let bare = text.trim_end_matches('=');
    (text.len() == bare.len() || text.len() - bare.len() < 3 && text.len().is_multiple_of(4)).then_some(())?;
    read(bare, STANDARD)
}

fn write(bytes: &[u8], digits: &[u8; 64]) -> String {
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let word = group.iter().fold(0u32, |word, byte| word << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
        for place in 0..=group.len() {
            out.push(char::from(digits[(word >> (18 - 6 * place) & 63) as usize]));
        }
    }
    out
}

fn read(text: &str, digits: &[u8; 64]) -> Option<Vec<u8>> {
    if text.len() % 4 == 1 {
        return None;
    }
    let mut out = Vec::with_capacity(text.len() / 4 * 3);
    for group in text.as_bytes().chunks(4) {
        let mut word = 0u32;
        for byte in group {
            let digit = digits.iter().position(|digit| digit == byte)?;
            word = word << 6 | u32::try_from(digit).ok()?;
        }
        word <<= 6 * (4 - group.len());
        out.extend_from_slice(&word.to_be_bytes()[1..group.len()]);
    }
    // Unused bits must be zero.
    (write(&out, digits) == text).then_some(out)
}
