//! Loops over known words, written out.

use super::{MOST_COMMANDS, Reader, SETTERS, Simple, Then, Word};

/// `for NAME in WORDS; do COMMANDS; done`.
pub(super) struct Loop {
    /// How many words there are.
    times: usize,
    /// The start of its commands, when `do` has been read.
    body: Option<usize>,
}

// === impl Reader ===

impl Reader<'_> {
    /// Reads the beginning and the end of a loop over known words. Returns whether a command is left;
    /// `None` if the loop is not understood.
    pub(super) fn repeat(&mut self, words: &mut Vec<Word>, then: Then) -> Option<bool> {
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
}
