//! Text for the model out of raw output: control sequences gone, progress lines collapsed (case O-081).

use std::iter::Peekable;
use std::str::Chars;

/// Cleans output: escape sequences and control characters are dropped, of lines that were drawn over
/// each other by carriage returns the last stays, text that flips direction or is invisible by design is
/// made visible.
pub fn clean(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut out = String::with_capacity(text.len());
    for (index, line) in strip(&text).split('\n').enumerate() {
        if index > 0 {
            out.push('\n');
        }
        let line = line.strip_suffix('\r').unwrap_or(line);
        out.push_str(line.rsplit('\r').find(|part| !part.is_empty()).unwrap_or(""));
    }
    out
}

fn strip(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' => skip_escape(&mut chars),
            '\u{9b}' => skip_parameters(&mut chars),
            '\u{90}' | '\u{98}' | '\u{9d}' | '\u{9e}' | '\u{9f}' => skip_text(&mut chars),
            '\n' | '\r' | '\t' => out.push(c),
            // Overstruck text, as in manual pages.
            '\u{8}' if !out.ends_with(['\n', '\r']) => drop(out.pop()),
            '\0' => out.push('\u{2400}'),
            // Direction overrides, and tags, which spell hidden text.
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{e0000}'..='\u{e007f}' => out.push('\u{fffd}'),
            c if c.is_control() => {}
            c => out.push(c),
        }
    }
    out
}

fn skip_escape(chars: &mut Peekable<Chars<'_>>) {
    match chars.peek() {
        Some('[') => {
            chars.next();
            skip_parameters(chars);
        }
        Some(']' | 'P' | 'X' | '^' | '_') => {
            chars.next();
            skip_text(chars);
        }
        // ESC, intermediate characters, a final one.
        Some(' '..='~') => {
            while chars.next_if(|c| matches!(c, ' '..='/')).is_some() {}
            chars.next_if(|c| matches!(c, '0'..='~'));
        }
        Some(_) | None => {}
    }
}

/// The rest of a control sequence. What does not belong to one stays: a broken sequence hides nothing.
fn skip_parameters(chars: &mut Peekable<Chars<'_>>) {
    while chars.next_if(|c| matches!(c, ' '..='?')).is_some() {}
    chars.next_if(|c| matches!(c, '@'..='~'));
}

/// A text for the terminal, such as a title, up to BEL, ESC \ or ST. It ends with its line too, so that
/// one without an end does not hide what follows.
fn skip_text(chars: &mut Peekable<Chars<'_>>) {
    while let Some(c) = chars.next_if(|c| !matches!(c, '\n' | '\u{1b}')) {
        if matches!(c, '\u{7}' | '\u{9c}') {
            return;
        }
    }
    if chars.next_if_eq(&'\u{1b}').is_some() && chars.next_if_eq(&'\\').is_none() {
        skip_escape(chars);
    }
}

/// Bytes without a character that a cut took the end of.
pub(crate) fn whole_end(bytes: &[u8]) -> &[u8] {
    let is_half = |start: &usize| {
        let end = bytes.get(*start..).unwrap_or_default();
        std::str::from_utf8(end).is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
    };
    let starts = (1..=3).filter_map(|back| bytes.len().checked_sub(back));
    starts.into_iter().find(is_half).and_then(|start| bytes.get(..start)).unwrap_or(bytes)
}

/// Bytes without a character that a cut took the beginning of.
pub(crate) fn whole_start(bytes: &[u8]) -> &[u8] {
    let cut = bytes.iter().take(3).take_while(|byte| **byte & 0xc0 == 0x80).count();
    bytes.get(cut..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn o_081_control_sequences_are_gone_and_progress_is_collapsed() {
        for (given, expected) in [
            (&b"a\x1b[2Jb\x1b[31mc\x1b[0m"[..], "abc"),
            (b"\x1b]52;c;aGk=\x07x", "x"),
            (b"\x1b]0;title\x1b\\x", "x"),
            (b"\x1b(B\x1b=x\x1b7", "x"),
            ("\u{9b}2Jx\u{9d}0;title\u{9c}y".as_bytes(), "xy"),
            (b"1%\r2%\r100%\ndone\r\n", "100%\ndone\n"),
            ("a\u{202e}b".as_bytes(), "a\u{fffd}b"),
            ("a\u{e0041}b".as_bytes(), "a\u{fffd}b"),
            (b"N\x08NA\x08A\n\x08x", "NA\nx"),
            (b"a\0b", "a\u{2400}b"),
            (b"bad \xff byte", "bad \u{fffd} byte"),
            (b"\x1b[", ""),
            (b"\x1b", ""),
        ] {
            assert_eq!(clean(given), expected, "{given:?}");
        }
    }

    #[test]
    fn o_081_a_sequence_without_an_end_hides_nothing_of_the_next_lines() {
        assert_eq!(clean(b"\x1b]0;title\nerror: it failed"), "\nerror: it failed");
        assert_eq!(clean(b"\x1bPstring\nerror"), "\nerror");
        assert_eq!(clean(b"\x1b[31\nerror"), "\nerror");
        assert_eq!(clean(b"\x1b]0;a\x1b[31mred"), "red");
    }

    #[test]
    fn cuts_leave_no_half_characters() {
        let text = "ab\u{e9}\u{20ac}\u{1f600}";
        for end in 0..=text.len() {
            let kept = std::str::from_utf8(whole_end(&text.as_bytes()[..end])).unwrap_or("half a character");
            assert!(text.starts_with(kept) && end - kept.len() < 4, "{end}: {kept}");
            let kept = std::str::from_utf8(whole_start(&text.as_bytes()[end..])).unwrap_or("half a character");
            assert!(text.ends_with(kept) && text.len() - end - kept.len() < 4, "{end}: {kept}");
        }
        assert_eq!(whole_end(b"\xff"), b"\xff", "what is no text is not cut");
    }
}
