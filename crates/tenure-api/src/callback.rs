//! Callback links: an id for the log, and an unguessable token for whoever may answer (hazard Z-36).
//!
//! Events hold [`placeholder`]s and never a token. The link is rendered for the model and for nobody
//! else; the token is a function of the ids and the key of the installation, so nothing has to be
//! stored for it.

use crate::base64;
use aws_lc_rs::hmac;
use std::borrow::Cow;
use tenure_core::{CallbackId, SessionId};

/// What a placeholder starts with.
const OPEN: &str = "{{callback:";

/// What a placeholder ends with.
const CLOSE: &str = "}}";

/// Two ids of 16 bytes each, then the code.
const IDS_LEN: usize = 32;

/// Bytes of the code; all that HMAC-SHA256 gives.
const MAC_LEN: usize = 32;

/// Longer texts are no tokens of ours; the bound keeps hostile ones cheap.
const MAX_TOKEN_LEN: usize = 128;

/// Keeps codes of this purpose apart from codes of another one under the same key.
const PURPOSE: &[u8] = b"tenure callback v1";

/// What stands for the link in events.
pub fn placeholder(callback: CallbackId) -> String {
    format!("{OPEN}{callback}{CLOSE}")
}

/// The token that answers a callback.
pub fn token(key: &[u8; 32], session: SessionId, callback: CallbackId) -> String {
    let mut bytes = Vec::with_capacity(IDS_LEN + MAC_LEN);
    bytes.extend(session.bits().to_be_bytes());
    bytes.extend(callback.bits().to_be_bytes());
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), &signed(&bytes));
    bytes.extend(tag.as_ref());
    base64::write_url(&bytes)
}

/// The ids of a token that was made with `key`; compares in constant time.
pub fn parse(key: &[u8; 32], token: &str) -> Option<(SessionId, CallbackId)> {
    if token.len() > MAX_TOKEN_LEN {
        return None;
    }
    let bytes = base64::read_url(token)?;
    if bytes.len() != IDS_LEN + MAC_LEN {
        return None;
    }
    let (ids, mac) = bytes.split_at(IDS_LEN);
    hmac::verify(&hmac::Key::new(hmac::HMAC_SHA256, key), &signed(ids), mac).ok()?;
    let bits = |part: &[u8]| part.try_into().ok().map(u128::from_be_bytes);
    Some((SessionId::from_bits(bits(&ids[..16])?), CallbackId::from_bits(bits(&ids[16..])?)))
}

/// The path of a callback's link.
pub fn path(token: &str) -> String {
    format!("/v1/callbacks/{token}")
}

/// Replaces placeholders by links below `base_url`.
pub fn render<'a>(text: &'a str, session: SessionId, base_url: &str, key: &[u8; 32]) -> Cow<'a, str> {
    if !text.contains(OPEN) {
        return Cow::Borrowed(text);
    }
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(start) = rest.find(OPEN) {
        let after = &rest[start + OPEN.len()..];
        let id = after.find(CLOSE).and_then(|end| Some((end, after[..end].parse::<CallbackId>().ok()?)));
        let Some((end, callback)) = id else {
            out.push_str(&rest[..start + OPEN.len()]);
            rest = after;
            continue;
        };
        out.push_str(&rest[..start]);
        out.push_str(base_url.trim_end_matches('/'));
        out.push_str(&path(&token(key, session, callback)));
        rest = &after[end + CLOSE.len()..];
    }
    out.push_str(rest);
    Cow::Owned(out)
}

fn signed(ids: &[u8]) -> Vec<u8> {
    [PURPOSE, ids].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: [u8; 32] = [7; 32];

    #[test]
    fn a_token_gives_back_its_ids_and_only_under_its_key() {
        let (session, callback) = (SessionId::from_bits(u128::MAX - 5), CallbackId::from_bits(9));
        let token = token(&KEY, session, callback);
        assert_eq!(parse(&KEY, &token), Some((session, callback)));
        assert_eq!(parse(&[8; 32], &token), None);
    }

    #[test]
    fn any_changed_character_makes_a_token_invalid() {
        let token = token(&KEY, SessionId::from_bits(1), CallbackId::from_bits(2));
        for place in 0..token.len() {
            let mut changed = token.clone().into_bytes();
            changed[place] = if changed[place] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).expect("letters");
            assert_eq!(parse(&KEY, &changed), None, "{place}");
        }
        for text in ["", "A", "ü", &token[..token.len() - 1], &format!("{token}A"), &"A".repeat(1_000_000)] {
            assert_eq!(parse(&KEY, text), None);
        }
    }

    #[test]
    fn placeholders_become_links_and_other_text_stays() {
        let (session, callback) = (SessionId::from_bits(1), CallbackId::from_bits(2));
        let text = format!("a {} b {{{{callback:x}}}} {}", placeholder(callback), placeholder(callback));
        let link = format!("https://t.example/v1/callbacks/{}", token(&KEY, session, callback));
        assert_eq!(render(&text, session, "https://t.example/", &KEY), format!("a {link} b {{{{callback:x}}}} {link}"));
        assert!(matches!(render("plain", session, "", &KEY), Cow::Borrowed(_)));
    }
}
