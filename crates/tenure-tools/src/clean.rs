//! Text for the model out of raw output: control sequences gone, progress lines collapsed (case O-081).

/// Cleans output: escape sequences and control characters are dropped, of lines that were drawn over
/// each other by carriage returns the last stays, text that flips direction is made visible.
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
            '\n' | '\r' | '\t' => out.push(c),
            '\0' => out.push('\u{2400}'),
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => out.push('\u{fffd}'),
            c if c.is_control() => {}
            c => out.push(c),
        }
    }
    out
}

fn skip_escape(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    match chars.next() {
        Some('[') => while chars.next().is_some_and(|c| !('@'..='~').contains(&c)) {},
        // Operating system commands and other strings end with BEL or ESC \.
        Some(']' | 'P' | '^' | '_') => {
            while let Some(c) = chars.next() {
                if c == '\u{7}' || c == '\u{1b}' && chars.next_if_eq(&'\\').is_some() {
                    return;
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn o_081_control_sequences_are_gone_and_progress_is_collapsed() {
        for (given, expected) in [
            (&b"a\x1b[2Jb\x1b[31mc\x1b[0m"[..], "abc"),
            (b"\x1b]52;c;aGk=\x07x", "x"),
            (b"1%\r2%\r100%\ndone\r\n", "100%\ndone\n"),
            ("a\u{202e}b".as_bytes(), "a\u{fffd}b"),
            (b"a\0b", "a\u{2400}b"),
            (b"bad \xff byte", "bad \u{fffd} byte"),
            (b"\x1b[", ""),
        ] {
            assert_eq!(clean(given), expected);
        }
    }
}
