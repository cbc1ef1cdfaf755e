//! A reader for the small part of the shell's language that manifests use: commands in a row.
//!
//! What goes beyond that, such as loops and substitutions of commands, is not interpreted.

use std::collections::HashMap;

/// What a script comes to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Script {
    Commands(Vec<Simple>),
    /// It has loops, conditions, functions or substitutions.
    Complex,
}

/// One command, and what follows it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Simple {
    pub(crate) words: Vec<Word>,
    pub(crate) then: Then,
}

/// One word of a command, after quotes have been removed and variables replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Word {
    pub(crate) text: String,
    /// Whether all of it can be seen: no variable in it that is set elsewhere.
    pub(crate) is_known: bool,
}

/// How the next command depends on this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    Next,
    And,
    Or,
    Pipe,
    Background,
}

/// Values of variables.
pub(crate) type Variables = HashMap<String, String>;

/// What begins something other than a simple command.
const KEYWORDS: [&str; 17] = [
    "if", "then", "else", "elif", "fi", "for", "while", "until", "do", "done", "case", "esac",
    "function", "select", "{", "}", "[[",
];

struct Reader<'a> {
    rest: std::iter::Peekable<std::str::Chars<'a>>,
    variables: Variables,
    commands: Vec<Simple>,
    words: Vec<Word>,
    /// The word that is being read, if one has begun.
    word: Option<Word>,
    /// Whether the next word is where output goes.
    is_redirected: bool,
}

/// Reads a script, with the variables that are set where it runs.
pub(crate) fn read(text: &str, variables: &Variables) -> Script {
    let mut reader = Reader {
        rest: text.chars().peekable(),
        variables: variables.clone(),
        commands: Vec::new(),
        words: Vec::new(),
        word: None,
        is_redirected: false,
    };
    match reader.read() {
        Some(()) => Script::Commands(reader.commands),
        None => Script::Complex,
    }
}

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

/// The words of a command: a line, or a list as JSON writes it.
pub(crate) fn words(text: &str) -> Vec<Word> {
    let listed = serde_json::from_str::<Vec<String>>(text).ok();
    listed.unwrap_or_else(|| split(text)).into_iter().map(Word::known).collect()
}

// === impl Word ===

impl Word {
    pub(crate) fn known(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_known: true }
    }

    /// A word of a list, if it is a text.
    pub(crate) fn of(text: Option<&str>) -> Self {
        Self { text: text.unwrap_or_default().into(), is_known: text.is_some() }
    }
}

// === impl Reader ===

impl Reader<'_> {
    /// `None` if it is more than commands in a row.
    fn read(&mut self) -> Option<()> {
        while let Some(c) = self.rest.next() {
            match c {
                '\\' => match self.rest.next() {
                    Some('\n') | None => {}
                    Some(c) => self.begin().text.push(c),
                },
                '\'' => {
                    self.begin();
                    loop {
                        let c = self.rest.next()?;
                        if c == '\'' {
                            break;
                        }
                        self.begin().text.push(c);
                    }
                }
                '"' => self.quoted()?,
                '$' => self.variable()?,
                '#' if self.word.is_none() => while self.rest.next_if(|c| *c != '\n').is_some() {},
                '`' | '(' | ')' => return None,
                '>' | '<' => self.redirect()?,
                '&' if self.rest.next_if_eq(&'&').is_some() => self.end(Then::And)?,
                '&' if self.rest.peek() == Some(&'>') => {}
                '&' => self.end(Then::Background)?,
                '|' if self.rest.next_if_eq(&'|').is_some() => self.end(Then::Or)?,
                '|' => self.end(Then::Pipe)?,
                ';' | '\n' => self.end(Then::Next)?,
                c if c.is_whitespace() => self.end_word(),
                c => self.begin().text.push(c),
            }
        }
        self.end(Then::Next)
    }

    fn begin(&mut self) -> &mut Word {
        self.word.get_or_insert_with(|| Word::known(""))
    }

    fn quoted(&mut self) -> Option<()> {
        self.begin();
        loop {
            match self.rest.next()? {
                '"' => return Some(()),
                '\\' => {
                    let c = self.rest.next()?;
                    self.begin().text.push(c);
                }
                '`' => return None,
                '$' => self.variable()?,
                c => self.begin().text.push(c),
            }
        }
    }

    /// `$NAME`, `${NAME}`, `${NAME:-otherwise}`; what else begins with `$` is not known.
    fn variable(&mut self) -> Option<()> {
        let is_of_name = |c: &char| c.is_ascii_alphanumeric() || *c == '_';
        let mut name = String::new();
        let mut otherwise = None;
        match self.rest.peek() {
            Some('(') => return None,
            Some('{') => {
                self.rest.next();
                while let Some(c) = self.rest.next_if(is_of_name) {
                    name.push(c);
                }
                let mut more = String::new();
                loop {
                    match self.rest.next()? {
                        '}' => break,
                        '$' | '`' | '{' => return None,
                        c => more.push(c),
                    }
                }
                otherwise = more.strip_prefix(":-").or(more.strip_prefix('-')).map(str::to_owned);
                if otherwise.is_none() && !more.is_empty() {
                    name.clear();
                }
            }
            _ => {
                while let Some(c) = self.rest.next_if(is_of_name) {
                    name.push(c);
                }
                if name.is_empty() {
                    self.rest.next_if(|c| "@*#?$!-".contains(*c));
                }
            }
        }
        // A value that is set elsewhere may differ from the default that is written here.
        let value = self.variables.get(&name).cloned();
        let is_known = value.is_some();
        let word = self.begin();
        word.text += &value.or(otherwise).unwrap_or_default();
        word.is_known &= is_known;
        Some(())
    }

    /// `> file`, `2>&1`: not part of the command.
    fn redirect(&mut self) -> Option<()> {
        // The number in front is a file descriptor.
        if self.word.as_ref().is_some_and(|word| word.text.chars().all(|c| c.is_ascii_digit())) {
            self.word = None;
        }
        self.end_word();
        if self.rest.peek() == Some(&'<') {
            return None;
        }
        while self.rest.next_if(|c| ">&|".contains(*c)).is_some() {}
        self.is_redirected = true;
        Some(())
    }

    fn end_word(&mut self) {
        if let Some(word) = self.word.take()
            && !std::mem::take(&mut self.is_redirected)
        {
            self.words.push(word);
        }
    }

    fn end(&mut self, then: Then) -> Option<()> {
        self.end_word();
        self.is_redirected = false;
        let mut words = std::mem::take(&mut self.words);
        // `NAME=value` in front sets a variable, for the rest of the script if nothing follows.
        let assigned = words.iter().take_while(|word| assignment(word).is_some()).count();
        let values: Vec<_> = words.drain(..assigned).collect();
        if words.is_empty() {
            for word in &values {
                let Some((name, value)) = assignment(word) else { continue };
                match word.is_known {
                    true => self.variables.insert(name.into(), value.into()),
                    false => self.variables.remove(name),
                };
            }
            return Some(());
        }
        if words.first().is_some_and(|word| KEYWORDS.contains(&word.text.as_str())) {
            return None;
        }
        self.commands.push(Simple { words, then });
        Some(())
    }
}

fn assignment(word: &Word) -> Option<(&str, &str)> {
    let (name, value) = word.text.split_once('=')?;
    let is_name = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    (is_name && name.starts_with(|c: char| !c.is_ascii_digit())).then_some((name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Commands as `word word`, an unseen word as `?`, joined by what follows each.
    fn shown(text: &str) -> String {
        let variables = Variables::from([("DELAY".into(), "12".into())]);
        let Script::Commands(commands) = read(text, &variables) else { return "complex".into() };
        let mut shown = String::new();
        for Simple { words, then } in commands {
            let word = |word: Word| if word.is_known { word.text } else { "?".into() };
            shown += &words.into_iter().map(word).collect::<Vec<_>>().join(" ");
            shown += match then {
                Then::Next => ";",
                Then::And => "&&",
                Then::Or => "||",
                Then::Pipe => "|",
                Then::Background => "&",
            };
        }
        shown
    }

    #[test]
    fn commands_in_a_row_are_read_and_nothing_else_is() {
        for (text, expected) in [
            ("sleep 5", "sleep 5;"),
            ("sleep $DELAY && echo 'a;b' \"c d\"", "sleep 12&&echo a;b c d;"),
            ("sleep ${DELAY}; sleep ${OTHER:-3}", "sleep 12;sleep ?;"),
            ("A=4; sleep $A # then\nexec orders 2>&1 >/dev/null", "sleep 4;exec orders;"),
            ("orders & wait $!", "orders&wait ?;"),
            ("a | b || c", "a|b||c;"),
            ("sleep \\\n 7", "sleep 7;"),
            ("exec \"$@\"", "exec ?;"),
            ("while true; do sleep 1; done", "complex"),
            ("sleep $(cat /delay)", "complex"),
            ("(sleep 5)", "complex"),
            ("sleep `cat x`", "complex"),
            ("cat <<EOF\nEOF", "complex"),
            ("echo 'open", "complex"),
            ("", ""),
        ] {
            assert_eq!(shown(text), expected, "{text}");
        }
    }

    #[test]
    fn lines_are_split_at_white_space_that_is_not_quoted() {
        let words = split(r#"/bin/sh -c "exec orders --name 'a b'" x\ y"#);
        assert_eq!(words, ["/bin/sh", "-c", "exec orders --name 'a b'", "x y"]);
        assert_eq!(split("A=1 \"B=2 3\" ''"), ["A=1", "B=2 3", ""]);
    }
}
