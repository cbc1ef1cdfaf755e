//! The command lines of a unit.

use crate::check::environment::Environment;
use crate::check::script::{self, Word};

/// Returns the commands of a line, without the prefixes that have a meaning to systemd. A word `;`
/// separates commands.
pub(super) fn commands(value: &str) -> Vec<Vec<Word>> {
    let words: Vec<_> = script::split(value).into_iter().map(Word::known).collect();
    let commands = words.split(|word| word.text == ";").filter(|words| !words.is_empty());
    commands.map(command).collect()
}

/// Replaces `${NAME}` in a word, as systemd does before it starts a command. A name that the unit does
/// not set stays, because systemd may set it. Then the value of `NAME=${NAME}` cannot be seen.
pub(super) fn substituted(mut word: Word, environment: &mut Environment) -> Word {
    let text = std::mem::take(&mut word.text);
    let mut rest = text.as_str();
    while let Some((before, after)) = rest.split_once("${") {
        word.text += before;
        let Some((name, more)) = after.split_once('}') else {
            word.text += "${";
            rest = after;
            continue;
        };
        match environment.substitute(name).filter(|_| !before.ends_with('$')) {
            Some(value) => word.text += &value,
            None => {
                // In a script, the shell replaces it.
                word.is_known &=
                    !word.text.contains('=') || word.text.contains(char::is_whitespace);
                word.text += &format!("${{{name}}}");
            }
        }
        rest = more;
    }
    word.text += rest;
    word
}

fn command(words: &[Word]) -> Vec<Word> {
    let Some((first, rest)) = words.split_first() else { return Vec::new() };
    let program = first.text.trim_start_matches(['@', '-', ':', '+', '!', '|']);
    let prefixes = &first.text[..first.text.len() - program.len()];
    // `|` runs the line with the shell of a user, as a login shell.
    let program = Word { is_known: !prefixes.contains('|'), ..Word::known(program) };
    // After `@`, the first argument is the name of the process.
    let arguments = rest.get(usize::from(prefixes.contains('@'))..).unwrap_or_default();
    [&[program], arguments].concat()
}
