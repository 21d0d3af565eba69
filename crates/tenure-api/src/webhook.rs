//! Signatures of outside jobs, as Standard Webhooks has them (case O-053).

use crate::base64;
use aws_lc_rs::hmac;

/// How far a signature's time may be from ours, either way.
pub const TOLERANCE_SECONDS: i64 = 300;

/// What a secret begins with when it is written down.
const SECRET_PREFIX: &str = "whsec_";

/// Most signatures that one header may hold: old and new keys while they are changed.
const MAX_SIGNATURES: usize = 8;

/// The headers of a signed request.
#[derive(Clone, Copy, Debug)]
pub struct Signed<'a> {
    /// `webhook-id`
    pub id: &'a str,
    /// `webhook-timestamp`
    pub timestamp: &'a str,
    /// `webhook-signature`
    pub signatures: &'a str,
}

/// Why a request is not taken as signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum Unsigned {
    #[error("webhook-timestamp is not a number of seconds")]
    NoTime,
    #[error("webhook-timestamp is more than {TOLERANCE_SECONDS} seconds off")]
    TooFarOff,
    #[error("no signature fits")]
    NoFit,
}

/// The bytes of a secret as it is written down: `whsec_` and base 64.
pub fn secret(text: &str) -> Option<Vec<u8>> {
    base64::read_standard(text.strip_prefix(SECRET_PREFIX)?).filter(|bytes| !bytes.is_empty())
}

/// Verifies the raw bytes of a body, in constant time.
///
/// # Errors
/// Why it is not taken as signed.
pub fn verify(secret: &[u8], signed: Signed<'_>, body: &[u8], now_seconds: i64) -> Result<(), Unsigned> {
    let time: i64 = signed.timestamp.parse().map_err(|_| Unsigned::NoTime)?;
    if now_seconds.saturating_sub(time).saturating_abs() > TOLERANCE_SECONDS {
        return Err(Unsigned::TooFarOff);
    }
    let content = [signed.id.as_bytes(), b".", signed.timestamp.as_bytes(), b".", body].concat();
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
    let fits = |entry: &str| {
        let code = entry.strip_prefix("v1,").and_then(base64::read_standard);
        code.is_some_and(|code| hmac::verify(&key, &content, &code).is_ok())
    };
    if signed.signatures.split_ascii_whitespace().take(MAX_SIGNATURES).any(fits) {
        Ok(())
    } else {
        Err(Unsigned::NoFit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the specification.
    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const BODY: &str = r#"{"test": 2432232314}"#;
    const SIGNED: Signed<'static> = Signed {
        id: "msg_p5jXN8AQM9LWM0D4loKWxJek",
        timestamp: "1614265330",
        signatures: "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    };

    fn check(signed: Signed<'_>, body: &str, now: i64) -> Result<(), Unsigned> {
        verify(&secret(SECRET).expect("a secret"), signed, body.as_bytes(), now)
    }

    #[test]
    fn o_053_the_example_of_the_specification_is_valid_for_five_minutes() {
        let at = 1_614_265_330;
        for (now, expected) in [
            (at, Ok(())),
            (at + 300, Ok(())),
            (at - 300, Ok(())),
            (at + 301, Err(Unsigned::TooFarOff)),
            (at - 301, Err(Unsigned::TooFarOff)),
            (i64::MIN, Err(Unsigned::TooFarOff)),
        ] {
            assert_eq!(check(SIGNED, BODY, now), expected, "{now}");
        }
    }

    #[test]
    fn o_053_other_bytes_ids_times_and_signatures_do_not_fit() {
        let at = 1_614_265_330;
        assert_eq!(check(SIGNED, r#"{"test":2432232314}"#, at), Err(Unsigned::NoFit));
        assert_eq!(check(Signed { id: "msg_other", ..SIGNED }, BODY, at), Err(Unsigned::NoFit));
        assert_eq!(check(Signed { timestamp: "1614265331", ..SIGNED }, BODY, at), Err(Unsigned::NoFit));
        assert_eq!(check(Signed { timestamp: "", ..SIGNED }, BODY, at), Err(Unsigned::NoTime));
        for signatures in ["", "v1,", "v2,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=", "v1,xxxx"] {
            assert_eq!(check(Signed { signatures, ..SIGNED }, BODY, at), Err(Unsigned::NoFit));
        }
        let two = format!("v1,xxxx {}", SIGNED.signatures);
        assert_eq!(check(Signed { signatures: &two, ..SIGNED }, BODY, at), Ok(()));
    }
}
