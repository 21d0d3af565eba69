//! Makes text of agents, tools and files harmless for a terminal.
//!
//! Such text may hold escape sequences that repaint the screen, set the clipboard (OSC 52) or the
//! title, carriage returns that hide what was printed, and bidirectional overrides that reorder it.
//! All of them are shown as visible marks instead.

use std::fmt::Write;

/// Several lines: line feeds and tabs stay.
pub(crate) fn text(text: &str) -> String {
    clean(text, |c| matches!(c, '\n' | '\t'))
}

/// One line: line feeds and tabs become spaces.
pub(crate) fn line(text: &str) -> String {
    let joined: String = text.chars().map(|c| if matches!(c, '\n' | '\t') { ' ' } else { c }).collect();
    clean(&joined, |_| false)
}

/// One line of at most so many characters, with an ellipsis where it was cut.
pub(crate) fn brief(text: &str, most: usize) -> String {
    // Spaces that were line feeds are joined so that the cut shows words, not indentation.
    let words: Vec<&str> = text.split_whitespace().collect();
    let line = line(&words.join(" "));
    if line.chars().count() <= most {
        return line;
    }
    let kept: String = line.chars().take(most.saturating_sub(1)).collect();
    format!("{}…", kept.trim_end())
}

fn clean(text: &str, is_kept: impl Fn(char) -> bool) -> String {
    // The CR of CRLF is no trick.
    let text = text.replace("\r\n", "\n");
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            c if is_kept(c) => out.push(c),
            '\0'..='\x1f' => out.push(picture(c)),
            '\x7f' => out.push('␡'),
            // C1 controls: some terminals read U+009B as the start of an escape sequence.
            '\u{80}'..='\u{9f}' => mark(&mut out, c),
            // Bidirectional marks, embeddings, overrides and isolates; line and paragraph separators.
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                mark(&mut out, c)
            }
            // Invisible characters that hide text: zero width no-break space and tags.
            '\u{feff}' | '\u{e0000}'..='\u{e007f}' => mark(&mut out, c),
            c => out.push(c),
        }
    }
    out
}

/// The control picture of a C0 control.
fn picture(control: char) -> char {
    char::from_u32(0x2400 + control as u32).expect("the control pictures start at U+2400, one for each C0 control")
}

fn mark(out: &mut String, c: char) {
    write!(out, "<U+{:04X}>", c as u32).expect("writing to a string does not fail");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_inert(text: &str) -> bool {
        text.chars().all(|c| c == '\n' || c == '\t' || !c.is_control())
            && !text.contains(['\u{202e}', '\u{2066}', '\u{200f}', '\u{feff}'])
    }

    #[test]
    fn o_081_control_characters_in_output() {
        let progress = (0..10_000).map(|n| format!("{n}%\r")).collect::<String>();
        for given in
            ["\x1b[2J", "\x1b]52;c;aGk=\x07", &progress, "safe\u{202e}txt.exe", "a\0b", "\u{9b}2J", "\u{2066}x\u{2069}"]
        {
            assert!(is_inert(&text(given)), "{given:?}");
            assert!(is_inert(&line(given)), "{given:?}");
        }
        assert_eq!(text("\x1b[2J\u{202e}"), "␛[2J<U+202E>");
    }

    #[test]
    fn ordinary_text_of_any_language_stays_as_it_is() {
        let given = "größe 大きい\tשלום\nnext";
        assert_eq!(text(given), given);
        assert_eq!(text("a\r\nb"), "a\nb");
    }

    #[test]
    fn a_long_line_is_cut_at_characters() {
        assert_eq!(brief("ääää  \n ää", 6), "ääää…");
        assert_eq!(brief("ää\nää", 6), "ää ää");
    }
}
