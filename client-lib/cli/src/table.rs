//! Columns of text that line up.

use anstyle::Style;

use crate::output::{HEADING, PLAIN};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    Left,
    Right,
}

#[derive(Debug)]
pub struct Table {
    columns: Vec<(&'static str, Align)>,
    rows: Vec<Vec<(String, Style)>>,
}

impl Table {
    pub fn new(columns: &[(&'static str, Align)]) -> Self {
        Self { columns: columns.to_vec(), rows: Vec::new() }
    }

    pub fn row(&mut self, cells: Vec<(String, Style)>) {
        self.rows.push(cells);
    }

    /// The lines, with a heading where `headed`; the last column is not padded.
    pub fn render(&self, headed: bool) -> String {
        let heading: Vec<(String, Style)> = self.columns.iter().map(|(name, _)| (name.to_string(), HEADING)).collect();
        let lines: Vec<&Vec<(String, Style)>> = headed.then_some(&heading).into_iter().chain(&self.rows).collect();
        let width = |column: usize| {
            lines.iter().filter_map(|l| l.get(column)).map(|(text, _)| text.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let mut text = String::new();
        for line in &lines {
            let mut padding = 0;
            for (((cell, style), width), (_, align)) in line.iter().zip(&widths).zip(&self.columns) {
                let missing = width - cell.chars().count();
                let (before, after) = if *align == Align::Right { (missing, 0) } else { (0, missing) };
                text.extend(std::iter::repeat_n(' ', padding + before));
                text.push_str(&format!("{style}{cell}{style:#}"));
                padding = after + 2;
            }
            text.push('\n');
        }
        text
    }
}

/// A cell without a style.
pub fn plain(text: impl Into<String>) -> (String, Style) {
    (text.into(), PLAIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_lines_do_not_trail() {
        let mut table = Table::new(&[("SIZE", Align::Right), ("NAME", Align::Left)]);
        table.row(vec![plain("7"), plain("a")]);
        table.row(vec![plain("12345"), plain("ü")]);
        let text = anstream::adapter::strip_str(&table.render(true)).to_string();
        assert_eq!(text, " SIZE  NAME\n    7  a\n12345  ü\n");
    }
}
