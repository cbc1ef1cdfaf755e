//! A reader for the small part of the shell's language that manifests use: commands in a row.
//!
//! A loop over known words is written out. Other loops, substitutions of commands and all other
//! constructs are not interpreted.

mod repeat;
mod words;

use std::collections::HashMap;

use repeat::Loop;
pub(crate) use words::{Assignment, Word, after_assignments, assignment, split, words};

use super::expansion::Expansion;

/// A script, as far as it is understood.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Script {
    Commands(Vec<Simple>),
    /// It has loops, conditions, functions or substitutions, or too many commands.
    Complex,
}

/// One command, and its link to the next one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Simple {
    /// The variables set in front of the command.
    pub(crate) sets: Vec<Assignment>,
    /// Empty if variables are set and no command is run.
    pub(crate) words: Vec<Word>,
    pub(crate) then: Then,
    /// The line of the script in which the command begins.
    pub(crate) line: usize,
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

/// Words that begin something other than a simple command.
const KEYWORDS: [&str; 20] = [
    "if", "then", "else", "elif", "fi", "for", "while", "until", "do", "done", "case", "esac",
    "function", "select", "{", "}", "[[", "time", "!", "coproc",
];

/// Commands after which no variable of the script is known: they may set any of them.
pub(crate) const SETTERS: [&str; 14] = [
    ".",
    "source",
    "eval",
    "alias",
    "declare",
    "typeset",
    "local",
    "readonly",
    "read",
    "getopts",
    "mapfile",
    "readarray",
    "unset",
    "let",
];

/// More than people write into a manifest. Each command is compared with the lists of programs.
const MOST_COMMANDS: usize = 5_000;

struct Reader<'a> {
    rest: std::iter::Peekable<std::str::Chars<'a>>,
    variables: Variables,
    expansion: Expansion,
    /// `$0`, `$1` and so on; empty if they cannot be seen.
    arguments: &'a [Word],
    line: usize,
    /// The line in which the command has begun.
    begun: usize,
    commands: Vec<Simple>,
    words: Vec<Word>,
    /// The word that is being read, if one has begun.
    word: Option<Word>,
    /// Whether the next word is the target of a redirection.
    is_redirected: bool,
    /// The loop that is being read, if one has begun.
    repeated: Option<Loop>,
}

/// Reads a script, with the variables that are set where it runs and its arguments from `$0` on.
pub(crate) fn read(text: &str, variables: &Variables, arguments: &[Word]) -> Script {
    let mut reader = Reader {
        rest: text.chars().peekable(),
        variables: variables.clone(),
        expansion: Expansion::default(),
        arguments,
        line: 1,
        begun: 1,
        commands: Vec::new(),
        words: Vec::new(),
        word: None,
        is_redirected: false,
        repeated: None,
    };
    match reader.read().filter(|()| reader.repeated.is_none()) {
        Some(()) => Script::Commands(reader.commands),
        None => Script::Complex,
    }
}

// === impl Reader ===

impl Reader<'_> {
    /// `None` if it is more than commands in a row.
    fn read(&mut self) -> Option<()> {
        while let Some(c) = self.rest.next() {
            match c {
                '\\' => match self.rest.next() {
                    Some('\n') => self.line += 1,
                    None => {}
                    Some(c) => self.begin().text.push(c),
                },
                '\'' => {
                    self.begin();
                    loop {
                        let c = self.rest.next()?;
                        if c == '\'' {
                            break;
                        }
                        self.line += usize::from(c == '\n');
                        self.begin().text.push(c);
                    }
                }
                '"' => self.quoted()?,
                '$' => self.variable(false)?,
                '#' if self.word.is_none() => while self.rest.next_if(|c| *c != '\n').is_some() {},
                '`' | '(' | ')' => return None,
                '>' | '<' => self.redirect()?,
                '&' if self.rest.next_if_eq(&'&').is_some() => self.end(Then::And)?,
                '&' if self.rest.peek() == Some(&'>') => {}
                '&' => self.end(Then::Background)?,
                '|' if self.rest.next_if_eq(&'|').is_some() => self.end(Then::Or)?,
                // `|&` pipes the errors, too.
                '|' => {
                    self.rest.next_if_eq(&'&');
                    self.end(Then::Pipe)?;
                }
                ';' => self.end(Then::Next)?,
                '\n' => {
                    self.end(Then::Next)?;
                    self.line += 1;
                }
                c if c.is_whitespace() => self.end_word(),
                c => self.begin().text.push(c),
            }
        }
        self.end(Then::Next)
    }

    fn begin(&mut self) -> &mut Word {
        if self.words.is_empty() && self.word.is_none() {
            self.begun = self.line;
        }
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
                '$' => self.variable(true)?,
                c => {
                    self.line += usize::from(c == '\n');
                    self.begin().text.push(c);
                }
            }
        }
    }

    /// `$NAME`, `${NAME}`, `${NAME:-otherwise}`; other words that begin with `$` are not known.
    fn variable(&mut self, is_quoted: bool) -> Option<()> {
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
                // `${NAME:=value}` sets the variable.
                if more.starts_with('=') || more.starts_with(":=") {
                    return None;
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
                if name.is_empty() && self.rest.next_if(|c| "@*".contains(*c)).is_some() {
                    self.all_arguments();
                    return Some(());
                }
                if name.is_empty() {
                    self.rest.next_if(|c| "#?$!-".contains(*c));
                }
            }
        }
        if let Ok(at) = name.parse::<usize>() {
            let found = self.arguments.get(at);
            let found = found.filter(|word| self.expansion.admits(&word.text)).cloned();
            let found = found.unwrap_or(Word::of(None));
            let word = self.begin();
            word.text += &found.text;
            word.is_known &= found.is_known;
            word.is_one &= found.is_known || is_quoted;
            return Some(());
        }
        // A value that is set elsewhere may differ from the default that is written here.
        let value = self.variables.get(&name);
        let value = value.filter(|value| self.expansion.admits(value)).cloned();
        // Without quotes, white space in it makes several words of one.
        let is_one = |value: &String| is_quoted || !value.contains(char::is_whitespace);
        let is_known = value.as_ref().is_some_and(is_one);
        let word = self.begin();
        word.text += &value.or(otherwise).unwrap_or_default();
        word.is_known &= is_known;
        word.is_one &= is_known || is_quoted;
        Some(())
    }

    /// `$@`: each argument but `$0` is a word of its own.
    fn all_arguments(&mut self) {
        let arguments = self.arguments.get(1..).unwrap_or_default();
        let is_admitted = arguments.iter().all(|word| self.expansion.admits(&word.text));
        let Some((first, more)) = arguments.split_first().filter(|_| is_admitted) else {
            let word = self.begin();
            (word.is_known, word.is_one) = (false, false);
            return;
        };
        let word = self.begin();
        word.text += &first.text;
        word.is_known &= first.is_known;
        for argument in more {
            self.words.extend(self.word.replace(argument.clone()));
        }
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
        // It changes the exit code alone.
        if words.first().is_some_and(|word| word.text == "!") {
            words.remove(0);
        }
        if !self.repeat(&mut words, then)? {
            return Some(());
        }
        let assigned = words.len() - after_assignments(&words).len();
        let sets: Vec<_> = words.drain(..assigned).filter_map(|word| assignment(&word)).collect();
        let first = words.first().map(|word| word.text.as_str()).unwrap_or_default();
        if KEYWORDS.contains(&first) {
            return None;
        }
        if SETTERS.contains(&first) {
            self.variables.clear();
        }
        // Without a command, they hold for the rest of the script, like the variables of `export`.
        let exported: Vec<_> = words.iter().skip(1).filter_map(assignment).collect();
        let kept = match first {
            "" => &sets[..],
            "export" => &exported[..],
            _ => &[],
        };
        // A command that may not run, or runs in a process of its own, may leave them as they were.
        let before = self.commands.last().map(|command| command.then);
        let is_certain = matches!(before, None | Some(Then::Next | Then::Background))
            && !matches!(then, Then::Pipe | Then::Background);
        for (name, value) in kept {
            match value.clone().filter(|_| is_certain) {
                Some(value) => self.variables.insert(name.clone(), value),
                None => self.variables.remove(name),
            };
        }
        if !words.is_empty() || !sets.is_empty() {
            if self.commands.len() >= MOST_COMMANDS {
                return None;
            }
            self.commands.push(Simple { sets, words, then, line: self.begun });
        }
        Some(())
    }
}

#[cfg(test)]
mod tests;
