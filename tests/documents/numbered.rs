//! Finds the tests that carry the number of a promise in sources, such as `s07_a_phase_waits`.
//!
//! A function is a test if it has an attribute `#[test]` or `#[…::test]` and is not ignored, or if a
//! macro that makes tests of functions is invoked with its name. Comments and strings do not count.

use std::collections::BTreeSet;

/// The functions with a number that were found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Numbered {
    /// The names of those that run as tests.
    pub(super) tests: BTreeSet<String>,
    /// The names of those that do not.
    pub(super) idle: BTreeSet<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Mark(char),
}

impl Numbered {
    pub(super) fn find<'a>(sources: impl IntoIterator<Item = &'a str>) -> Self {
        let sources: Vec<Vec<Token>> = sources.into_iter().map(tokens).collect();
        let macros = test_macros(&sources);
        let (mut functions, mut tests) = (BTreeSet::new(), BTreeSet::new());
        for source in &sources {
            for (at, token) in source.iter().enumerate() {
                match (token, &source[at + 1..]) {
                    (Token::Word(word), [Token::Word(name), ..]) if word == "fn" => {
                        functions.insert(name.clone());
                        if is_test(&source[..at]) {
                            tests.insert(name.clone());
                        }
                    }
                    (Token::Word(word), [Token::Mark('!'), Token::Mark(open), rest @ ..])
                        if macros.contains(word) && "([{".contains(*open) =>
                    {
                        tests.extend(words(inside(rest)));
                    }
                    _ => {}
                }
            }
        }
        functions.retain(|name| number(name).is_some());
        let idle = functions.difference(&tests).cloned().collect();
        tests.retain(|name| functions.contains(name));
        Self { tests, idle }
    }

    pub(super) fn numbers(&self) -> BTreeSet<u32> {
        self.tests.iter().filter_map(|name| number(name)).collect()
    }
}

/// Returns the number of a promise in the name of a test.
fn number(name: &str) -> Option<u32> {
    name.strip_prefix('s')?.split_once('_')?.0.parse().ok()
}

/// Returns the macros that make tests: they write a function with a test attribute and a name that
/// they are given, or invoke another such macro.
fn test_macros(sources: &[Vec<Token>]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    loop {
        let before = found.len();
        for source in sources {
            for (at, token) in source.iter().enumerate() {
                let (Token::Word(word), [Token::Mark('!'), Token::Word(name), _, rest @ ..]) =
                    (token, &source[at + 1..])
                else {
                    continue;
                };
                let body = inside(rest);
                if word == "macro_rules" && (writes_test(body) || invokes(body, &found)) {
                    found.insert(name.clone());
                }
            }
        }
        if found.len() == before {
            return found;
        }
    }
}

fn writes_test(body: &[Token]) -> bool {
    body.iter().enumerate().any(|(at, token)| {
        *token == Token::Word("fn".into())
            && body.get(at + 1) == Some(&Token::Mark('$'))
            && is_test(&body[..at])
    })
}

fn invokes(body: &[Token], macros: &BTreeSet<String>) -> bool {
    body.windows(2)
        .any(|pair| matches!(pair, [Token::Word(name), Token::Mark('!')] if macros.contains(name)))
}

/// Returns whether the attributes at the end of `before`, which ends where a function begins, make it
/// a test that runs.
fn is_test(before: &[Token]) -> bool {
    let qualifiers = ["pub", "crate", "async", "unsafe", "const"];
    let mut rest = before;
    while let [front @ .., last] = rest {
        let skipped = match last {
            Token::Word(word) => qualifiers.contains(&word.as_str()),
            Token::Mark(mark) => "()".contains(*mark),
        };
        if !skipped {
            break;
        }
        rest = front;
    }
    let (mut has_test, mut is_ignored) = (false, false);
    while let Some((front, attribute)) = last_attribute(rest) {
        let path = attribute.iter().take_while(|token| **token != Token::Mark('('));
        has_test |= path.last() == Some(&Token::Word("test".into()));
        is_ignored |= attribute.first() == Some(&Token::Word("ignore".into()));
        rest = front;
    }
    has_test && !is_ignored
}

/// Splits `#[…]` off the end.
fn last_attribute(tokens: &[Token]) -> Option<(&[Token], &[Token])> {
    let [front @ .., Token::Mark(']')] = tokens else { return None };
    let mut depth = 1;
    for at in (0..front.len()).rev() {
        match front[at] {
            Token::Mark(']') => depth += 1,
            Token::Mark('[') => depth -= 1,
            Token::Mark(_) | Token::Word(_) => {}
        }
        if depth == 0 {
            let [before @ .., Token::Mark('#')] = &front[..at] else { return None };
            return Some((before, &front[at + 1..]));
        }
    }
    None
}

/// Returns the tokens up to the delimiter that closes the one before them.
fn inside(tokens: &[Token]) -> &[Token] {
    let mut depth = 1;
    for (at, token) in tokens.iter().enumerate() {
        match token {
            Token::Mark('(' | '[' | '{') => depth += 1,
            Token::Mark(')' | ']' | '}') => depth -= 1,
            Token::Mark(_) | Token::Word(_) => {}
        }
        if depth == 0 {
            return &tokens[..at];
        }
    }
    tokens
}

fn words(tokens: &[Token]) -> impl Iterator<Item = String> {
    tokens.iter().filter_map(|token| match token {
        Token::Word(word) => Some(word.clone()),
        Token::Mark(_) => None,
    })
}

/// Splits source text into words and marks, without comments, strings and characters.
fn tokens(text: &str) -> Vec<Token> {
    let (mut tokens, mut rest) = (Vec::new(), text);
    while let Some(first) = rest.chars().next() {
        if rest.starts_with("//") {
            rest = rest.find('\n').map_or("", |end| &rest[end..]);
        } else if rest.starts_with("/*") {
            rest = after_block_comment(rest);
        } else if first == '"' {
            rest = after_quoted(&rest[1..], '"');
        } else if first == '\'' {
            let mut next = rest[1..].chars();
            // A character, or else a lifetime.
            rest = match (next.next(), next.next()) {
                (Some('\\'), _) | (Some(_), Some('\'')) => after_quoted(&rest[1..], '\''),
                _ => &rest[1..],
            };
        } else if first.is_alphanumeric() || first == '_' {
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            let (word, after) = rest.split_at(end);
            let hashes = after.len() - after.trim_start_matches('#').len();
            let is_raw = ["r", "br", "cr"].contains(&word) && after[hashes..].starts_with('"');
            if is_raw {
                let close = format!("\"{}", "#".repeat(hashes));
                let body = &after[hashes + 1..];
                rest = body.find(&close).map_or("", |at| &body[at + close.len()..]);
            } else {
                tokens.push(Token::Word(word.to_owned()));
                rest = after;
            }
        } else {
            if !first.is_whitespace() {
                tokens.push(Token::Mark(first));
            }
            rest = &rest[first.len_utf8()..];
        }
    }
    tokens
}

fn after_block_comment(text: &str) -> &str {
    let (mut depth, mut rest) = (0, text);
    loop {
        if let Some(inner) = rest.strip_prefix("/*") {
            (depth, rest) = (depth + 1, inner);
        } else if let Some(outer) = rest.strip_prefix("*/") {
            (depth, rest) = (depth - 1, outer);
        } else {
            let Some(first) = rest.chars().next() else { return "" };
            rest = &rest[first.len_utf8()..];
        }
        if depth == 0 {
            return rest;
        }
    }
}

fn after_quoted(text: &str, quote: char) -> &str {
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        if c == '\\' {
            chars.next();
        } else if c == quote {
            return &text[at + c.len_utf8()..];
        }
    }
    ""
}

#[test]
fn only_functions_that_run_as_tests_are_found() {
    let source = r####"
        #[test]
        fn s1_plain() {}
        #[tokio::test(start_paused = true)]
        #[cfg(unix)]
        pub(crate) async fn s2_on_a_runtime<'a>() { let _ = ('\'', '"', "fn s90_x"); }
        proptest! { #[test] fn s3_with_values(x in 0..1) {} }
        // #[test] fn s91_in_a_comment() {}
        /* /* nested */ #[test] fn s92_in_a_block() {} */
        const TEXT: &str = r#"#[test] fn s93_in_a_string() {}"#;
        #[test]
        #[ignore = "slow"]
        fn s94_ignored() {}
        fn s95_without_an_attribute() {}
        #[test]
        struct Between;
        fn s96_after_another_item() {}
        #[cfg(test)]
        fn s97_for_tests_only() {}
        macro_rules! on_each { ($($test:ident),*) => { $(#[test] async fn $test() { super::$test() })* }; }
        macro_rules! on_all { ($($test:ident),*) => { on_each![$($test),*]; }; }
        macro_rules! quiet { ($($test:ident),*) => { $(fn $test() {})* }; }
        fn s4_by_a_macro() {}
        fn s5_by_two_macros() {}
        fn s98_by_a_macro_in_a_comment() {}
        fn s99_by_a_macro_that_makes_no_tests() {}
        on_each![s4_by_a_macro];
        on_all! { s5_by_two_macros, }
        // on_each![s98_by_a_macro_in_a_comment];
        quiet![s99_by_a_macro_that_makes_no_tests];
        fn helper() {}
    "####;
    let found = Numbered::find([source]);
    assert_eq!(found.numbers(), BTreeSet::from([1, 2, 3, 4, 5]), "{found:?}");
    let idle: Vec<Option<u32>> = found.idle.iter().map(|name| number(name)).collect();
    assert_eq!(idle, [94, 95, 96, 97, 98, 99].map(Some), "{found:?}");
}
