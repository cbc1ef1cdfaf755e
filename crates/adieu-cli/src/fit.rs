//! Text that fits: harmless, not too long, padded.

use std::borrow::Cow;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Charts and tables need this many columns.
const NARROWEST: usize = 40;

/// How many columns a text takes at a terminal.
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

/// Cuts the text to this many columns; shortened text ends in `…`. Harmless, too.
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

/// Exactly this many columns, shortened or padded on the right.
pub(crate) fn fitted(text: &str, columns: usize) -> String {
    let mut text = shortened(text, columns);
    let missing = columns.saturating_sub(width(&text));
    text.extend(std::iter::repeat_n(' ', missing));
    text
}

/// Lines of parts, as many on each as fit into this many columns. Colours take no room.
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

/// Lines of words, none wider than this many columns unless a single word is.
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

/// How wide the output may be: as the terminal, or 100 columns where there is none.
pub(crate) fn terminal_width() -> usize {
    terminal_size::terminal_size()
        .map_or(100, |(width, _)| usize::from(width.0))
        .clamp(NARROWEST, 200)
}

/// How wide text may be that need not be cut: as the terminal, or of any width in a pipe.
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
