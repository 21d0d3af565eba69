//! Columns for people.

use super::inert;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Space between columns.
const GAP: usize = 2;

/// Rows under a heading; cells are made harmless here.
#[derive(Debug)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Starts with the heading, in capitals by convention.
    pub(crate) fn new(heading: &[&str]) -> Self {
        Self { rows: vec![heading.iter().map(|cell| (*cell).to_owned()).collect()] }
    }

    /// Starts without a heading.
    pub(crate) fn plain() -> Self {
        Self { rows: Vec::new() }
    }

    /// Adds a row.
    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.iter().map(|cell| inert::line(cell)).collect());
    }

    /// The lines; the last column is not padded, and on a terminal it gives way to its width.
    pub(crate) fn lines(&self) -> Vec<String> {
        let lines = self.all_lines();
        match super::terminal_width() {
            Some(width) => lines.iter().map(|line| fitted(line, width)).collect(),
            None => lines,
        }
    }

    fn all_lines(&self) -> Vec<String> {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.width()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        self.rows
            .iter()
            .map(|row| {
                let padded = row
                    .iter()
                    .zip(&widths)
                    .map(|(cell, width)| format!("{cell}{}", " ".repeat(width - cell.width() + GAP)));
                padded.collect::<String>().trim_end().to_owned()
            })
            .collect()
    }
}

/// The line in so many columns: a line that wraps breaks the table.
fn fitted(line: &str, width: usize) -> String {
    if line.width() <= width {
        return line.to_owned();
    }
    let mut used = 1;
    let kept: String = line
        .chars()
        .take_while(|c| {
            used += c.width().unwrap_or(0);
            used <= width
        })
        .collect();
    format!("{}…", kept.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_by_the_width_that_a_terminal_shows() {
        let mut table = Table::new(&["A", "B"]);
        table.row(["大".to_owned(), "x".to_owned()]);
        table.row(["abc".to_owned(), "y\u{1b}[2J".to_owned()]);
        assert_eq!(table.all_lines(), ["A    B", "大   x", "abc  y␛[2J"]);
    }

    #[test]
    fn a_line_is_cut_at_the_width_of_the_terminal() {
        assert_eq!(fitted("abcdef", 6), "abcdef");
        assert_eq!(fitted("abcdefg", 6), "abcde…");
        assert_eq!(fitted("ab大大大", 6), "ab大…");
        assert_eq!(fitted("abc    d", 7), "abc…");
    }
}
