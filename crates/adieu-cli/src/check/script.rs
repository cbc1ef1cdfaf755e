//! A reader for the small part of the shell's language that manifests use: commands in a row.
//!
//! A loop over known words is written out. Other loops, substitutions of commands and all other
//! constructs are not interpreted.

use std::collections::HashMap;

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

/// A variable and its value; no value if that cannot be seen.
pub(crate) type Assignment = (String, Option<String>);

/// One word of a command, after quotes have been removed and variables replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Word {
    pub(crate) text: String,
    /// Whether all of it can be seen: no variable in it that is set elsewhere.
    pub(crate) is_known: bool,
    /// Whether it is one word also if not all of it can be seen: its variables are in quotes.
    pub(crate) is_one: bool,
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

/// `for NAME in WORDS; do COMMANDS; done`.
struct Loop {
    /// How many words there are.
    times: usize,
    /// Where its commands begin, when `do` has been read.
    body: Option<usize>,
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
        Self { text: text.into(), is_known: true, is_one: true }
    }

    /// A word of a list, if it is a text.
    pub(crate) fn of(text: Option<&str>) -> Self {
        Self { text: text.unwrap_or_default().into(), is_known: text.is_some(), is_one: false }
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

    /// Reads the beginning and the end of a loop over known words. Returns whether a command is left;
    /// `None` if the loop is not understood.
    fn repeat(&mut self, words: &mut Vec<Word>, then: Then) -> Option<bool> {
        let first = words.first().map(|word| word.text.as_str()).unwrap_or_default();
        match (first, &mut self.repeated) {
            ("for", None) => {
                let before = self.commands.last().map(|command| command.then);
                let is_plain = matches!(before, None | Some(Then::Next)) && then == Then::Next;
                let [_, name, keyword, rest @ ..] = words.as_slice() else { return None };
                let is_known =
                    |word: &Word| word.is_known && !word.text.contains(['*', '?', '[', '{', '~']);
                if !is_plain || keyword.text != "in" || !rest.iter().all(is_known) {
                    return None;
                }
                self.variables.remove(&name.text);
                self.repeated = Some(Loop { times: rest.len(), body: None });
                Some(false)
            }
            ("do", Some(Loop { body: body @ None, .. })) => {
                *body = Some(self.commands.len());
                words.remove(0);
                Some(!words.is_empty())
            }
            ("done", Some(Loop { times, body: Some(body) })) => {
                let (times, body) = (*times, *body);
                self.repeated = None;
                if words.len() > 1 || then != Then::Next {
                    return None;
                }
                let once = self.commands.split_off(body);
                // A variable that the body sets has another value in the next turn.
                let sets = |command: &Simple| {
                    let first = command.words.first().map(|word| word.text.as_str());
                    first.is_none_or(|first| first == "export" || SETTERS.contains(&first))
                };
                if once.iter().any(sets) || once.len().saturating_mul(times) > MOST_COMMANDS {
                    return None;
                }
                for _ in 0..times {
                    self.commands.extend(once.iter().cloned());
                }
                Some(false)
            }
            // The commands after it depend on the turn.
            ("break" | "continue", Some(_)) => None,
            (_, Some(Loop { body: None, .. })) if !words.is_empty() => None,
            _ => Some(true),
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

/// Returns the variable and value of `NAME=value`. The value of `NAME+=value` is not known.
pub(crate) fn assignment(word: &Word) -> Option<Assignment> {
    let (name, value) = word.text.split_once('=')?;
    let (name, is_whole) = name.strip_suffix('+').map_or((name, true), |name| (name, false));
    let is_name = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let is_one = is_name && name.starts_with(|c: char| !c.is_ascii_digit());
    is_one.then(|| (name.to_owned(), (word.is_known && is_whole).then(|| value.to_owned())))
}

/// The words after the variables that are set in front of a command.
pub(crate) fn after_assignments(words: &[Word]) -> &[Word] {
    &words[words.iter().take_while(|word| assignment(word).is_some()).count()..]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Commands as `word word`, an unseen word as `?`, joined by the operator after each.
    fn shown(text: &str) -> String {
        let variables = Variables::from([("DELAY".into(), "12".into())]);
        let arguments = [Word::known("sh"), Word::known("orders"), Word::known("-v")];
        let Script::Commands(commands) = read(text, &variables, &arguments) else {
            return "complex".into();
        };
        let mut shown = String::new();
        for Simple { sets, words, then, line: _ } in commands {
            let word = |word: Word| if word.is_known { word.text } else { "?".into() };
            for (name, value) in sets {
                shown += &format!("{name}:{} ", value.unwrap_or("?".into()));
            }
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
            ("A='1 2'; sleep $A \"$A\"", "A:1 2 ;sleep ? 1 2;"),
            ("sleep ${DELAY}; sleep ${OTHER:-3}", "sleep 12;sleep ?;"),
            ("A=4; sleep $A # then\nexec orders 2>&1 >/dev/null", "A:4 ;sleep 4;exec orders;"),
            ("export A=4; sleep $A; A=$X B=2 orders", "export A=4;sleep 4;A:? B:2 orders;"),
            ("true && A=4; sleep $A", "true&&A:4 ;sleep ?;"),
            ("A=4; . ./env; sleep $A", "A:4 ;. ./env;sleep ?;"),
            ("orders & wait $!", "orders&wait ?;"),
            ("a | b || c", "a|b||c;"),
            ("sleep \\\n 7", "sleep 7;"),
            ("exec \"$@\" $1 $0 $7", "exec orders -v orders sh ?;"),
            ("orders |& tee log", "orders|tee log;"),
            ("A=4; A+=5; sleep $A", "A:4 ;A:? ;sleep ?;"),
            ("sleep ${A:=5}", "complex"),
            ("time sleep 5", "complex"),
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
