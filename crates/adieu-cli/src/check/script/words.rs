//! Words of commands, and the variables that they set.

/// One word of a command, after quotes have been removed and variables replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Word {
    pub(crate) text: String,
    /// Whether all of it can be seen: no variable in it that is set elsewhere.
    pub(crate) is_known: bool,
    /// Whether it is one word also if not all of it can be seen: its variables are in quotes.
    pub(crate) is_one: bool,
}

/// A variable and its value; no value if that cannot be seen.
pub(crate) type Assignment = (String, Option<String>);

/// Splits a line into words as systemd, compose and supervisord do: at white space, unless it is
/// quoted. No variable is replaced.
pub(crate) fn split(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match (c, quote) {
            ('\\', Some('"') | None) => word.get_or_insert_default().extend(chars.next()),
            (c, Some(open)) if c == open => quote = None,
            ('"' | '\'', None) => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (c, None) if c.is_whitespace() => words.extend(word.take()),
            (c, _) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

/// Returns the words of a command: a line, or a list as JSON writes it.
pub(crate) fn words(text: &str) -> Vec<Word> {
    let listed = serde_json::from_str::<Vec<String>>(text).ok();
    listed.unwrap_or_else(|| split(text)).into_iter().map(Word::known).collect()
}

// === impl Word ===

impl Word {
    pub(crate) fn known(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_known: true, is_one: true }
    }

    /// A word of a list, if it is a text.
    pub(crate) fn of(text: Option<&str>) -> Self {
        Self { text: text.unwrap_or_default().into(), is_known: text.is_some(), is_one: false }
    }
}

/// Returns the variable and value of `NAME=value`. The value of `NAME+=value` is not known.
pub(crate) fn assignment(word: &Word) -> Option<Assignment> {
    let (name, value) = word.text.split_once('=')?;
    let (name, is_whole) = name.strip_suffix('+').map_or((name, true), |name| (name, false));
    let is_name = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let is_one = is_name && name.starts_with(|c: char| !c.is_ascii_digit());
    is_one.then(|| (name.to_owned(), (word.is_known && is_whole).then(|| value.to_owned())))
}

/// Returns the words after the variables that are set in front of a command.
pub(crate) fn after_assignments(words: &[Word]) -> &[Word] {
    &words[words.iter().take_while(|word| assignment(word).is_some()).count()..]
}
