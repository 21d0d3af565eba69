//! Cursors of streams: `<seq>`, or `<seq>.<epoch>-<attempt>.<n>` inside an open message (hazard Z-26).

use std::fmt;
use std::str::FromStr;

/// Longest text that can be a cursor: four numbers of 20 digits and what is between them.
const MAX_LEN: usize = 84;

/// Where a reader is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cursor {
    /// The newest row that it has.
    pub(crate) seq: u64,
    /// How much of an open message it has.
    pub(crate) preview: Option<PreviewPlace>,
}

/// How much of an open message a reader has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PreviewPlace {
    /// Of the lease.
    pub(crate) epoch: u64,
    /// Of the model call.
    pub(crate) attempt: u32,
    /// Position in the attempt.
    pub(crate) n: u64,
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.seq)?;
        match self.preview {
            Some(PreviewPlace { epoch, attempt, n }) => write!(f, ".{epoch}-{attempt}.{n}"),
            None => Ok(()),
        }
    }
}

/// A text that is no cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoCursor;

impl FromStr for Cursor {
    type Err = NoCursor;

    fn from_str(text: &str) -> Result<Self, NoCursor> {
        fn number<T: FromStr>(text: &str) -> Result<T, NoCursor> {
            // `parse` would also take a plus sign.
            let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            if is_plain { text.parse().map_err(|_| NoCursor) } else { Err(NoCursor) }
        }
        if text.len() > MAX_LEN {
            return Err(NoCursor);
        }
        let Some((seq, place)) = text.split_once('.') else {
            return Ok(Self { seq: number(text)?, preview: None });
        };
        let (attempt, n) = place.split_once('.').ok_or(NoCursor)?;
        let (epoch, attempt) = attempt.split_once('-').ok_or(NoCursor)?;
        let preview = PreviewPlace { epoch: number(epoch)?, attempt: number(attempt)?, n: number(n)? };
        Ok(Self { seq: number(seq)?, preview: Some(preview) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_survives_its_text() {
        let preview = Some(PreviewPlace { epoch: u64::MAX, attempt: u32::MAX, n: u64::MAX });
        for cursor in [Cursor { seq: 0, preview: None }, Cursor { seq: u64::MAX, preview }] {
            assert_eq!(cursor.to_string().parse(), Ok(cursor));
        }
    }

    #[test]
    fn o_057_strange_texts_are_no_cursors() {
        let long = "1".repeat(1_000_000);
        for text in [
            "",
            "abc",
            "-1",
            "+1",
            "1.",
            "1.2",
            "1.2.3",
            "1.2-3",
            "1.2-3.",
            "1.2-3.4.5",
            " 1",
            "1\n",
            "99999999999999999999",
            &long,
        ] {
            assert_eq!(text.parse::<Cursor>(), Err(NoCursor), "{}", &text[..text.len().min(30)]);
        }
    }
}
