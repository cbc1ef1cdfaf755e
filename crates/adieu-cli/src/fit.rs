//! Text that fits: harmless, not too long, padded.

use std::borrow::Cow;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// How many columns a text takes at a terminal.
pub(crate) fn width(text: &str) -> usize {
    text.width()
}

/// What a terminal or a browser could take for an instruction, or for another direction, is shown
/// as a replacement; line breaks as a space. Names and errors come from the service that reported.
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

/// At most so many columns; what is shortened ends in `…`. Harmless, too.
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

/// Exactly so many columns, shortened or padded on the right.
pub(crate) fn fitted(text: &str, columns: usize) -> String {
    let mut text = shortened(text, columns);
    let missing = columns.saturating_sub(width(&text));
    text.extend(std::iter::repeat_n(' ', missing));
    text
}

/// How wide the output may be: as the terminal, or 100 columns where there is none.
pub(crate) fn terminal_width() -> usize {
    terminal_size::terminal_size().map_or(100, |(width, _)| usize::from(width.0)).clamp(60, 200)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_long_is_shortened_to_the_column() {
        assert_eq!(fitted("drain", 7), "drain  ");
        assert_eq!(fitted("drain http", 7), "drain …");
        assert_eq!(fitted("日本語の名前", 7), "日本語…");
        assert_eq!(fitted("日本語の名前", 6), "日本… ");
        assert_eq!(shortened("a\u{1b}[2Jb\nc", 20), "a\u{fffd}[2Jb c");
    }
}
