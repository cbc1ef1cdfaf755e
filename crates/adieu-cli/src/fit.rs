//! Text that fits: harmless, not too long, padded.

use std::borrow::Cow;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// The minimum width of charts and tables.
const NARROWEST: usize = 40;

/// Returns how many columns a text takes at a terminal.
pub(crate) fn width(text: &str) -> usize {
    text.width()
}

/// Replaces characters that a terminal or a browser takes for instructions or for another writing
/// direction, and line breaks by a space. Names and errors come from the service that reported.
pub(crate) fn harmless(text: &str) -> Cow<'_, str> {
    let is_harmful = |c: char| {
        c.is_control()
            || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{fffe}' | '\u{ffff}')
    };
    if !text.contains(is_harmful) {
        return Cow::Borrowed(text);
    }
    let shown = |c: char| match c {
        '\n' | '\r' | '\t' => ' ',
        c if is_harmful(c) => '\u{fffd}',
        c => c,
    };
    Cow::Owned(text.chars().map(shown).collect())
}

/// Makes the text harmless, and cuts it to this many columns; shortened text ends in `…`.
pub(crate) fn shortened(text: &str, most: usize) -> String {
    let text = harmless(text);
    if width(&text) <= most {
        return text.into_owned();
    }
    let mut kept = String::new();
    let mut used = 1;
    for c in text.chars() {
        used += c.width().unwrap_or(0);
        if used > most {
            break;
        }
        kept.push(c);
    }
    kept + "…"
}

/// Returns text of exactly this many columns, shortened or padded on the right.
pub(crate) fn fitted(text: &str, columns: usize) -> String {
    let mut text = shortened(text, columns);
    let missing = columns.saturating_sub(width(&text));
    text.extend(std::iter::repeat_n(' ', missing));
    text
}

/// Joins parts into lines of at most this many columns. Colours take no room.
pub(crate) fn flowed(parts: &[String], columns: usize) -> Vec<String> {
    let width = |text: &str| width(&anstream::adapter::strip_str(text).to_string());
    let mut lines: Vec<String> = Vec::new();
    for part in parts {
        match lines.last_mut() {
            Some(line) if width(line) + 3 + width(part) <= columns => {
                line.push_str("   ");
                line.push_str(part);
            }
            _ => lines.push(part.clone()),
        }
    }
    lines
}

/// Breaks text into lines of at most this many columns. A word that is longer is not broken.
pub(crate) fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if width(line) + 1 + width(word) <= columns => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Returns the width of the terminal, or 100 columns if there is none.
pub(crate) fn terminal_width() -> usize {
    terminal_size::terminal_size()
        .map_or(100, |(width, _)| usize::from(width.0))
        .clamp(NARROWEST, 200)
}

/// Returns the width of the terminal, or no limit if the output is a pipe or a file.
pub(crate) fn output_width() -> usize {
    use std::io::IsTerminal;
    if std::io::stdout().is_terminal() { terminal_width() } else { usize::MAX }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_shortened_to_the_column() {
        assert_eq!(fitted("drain", 7), "drain  ");
        assert_eq!(fitted("drain http", 7), "drain …");
        assert_eq!(fitted("日本語の名前", 7), "日本語…");
        assert_eq!(fitted("日本語の名前", 6), "日本… ");
        assert_eq!(shortened("a\u{1b}[2Jb\nc", 20), "a\u{fffd}[2Jb c");
        assert_eq!(wrapped("a body that was cut off", 9), ["a body", "that was", "cut off"]);
        let parts = ["one".to_owned(), "\u{1b}[32mtwo\u{1b}[0m".into(), "three".into()];
        assert_eq!(flowed(&parts, 10), ["one   \u{1b}[32mtwo\u{1b}[0m", "three"]);
    }
}
