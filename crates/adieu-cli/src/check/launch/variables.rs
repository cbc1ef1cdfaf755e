//! The variables that the commands of a shell set for the process.

use std::collections::HashMap;

use super::{Launch, Signalled};
use crate::check::script::{self, SETTERS, Simple, Word};
use crate::check::shell_options::Options;

/// The state of a shell between its commands.
pub(super) struct Shell {
    /// No value if that cannot be seen.
    variables: HashMap<String, Option<String>>,
    exports: Exports,
}

/// The variables of a shell that its commands get.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Exports {
    /// Only the variables of `export`.
    Named,
    /// All, because of `-a`.
    All,
    /// One of both, depending on a command that may not run.
    Unseen,
}

// === impl Shell ===

impl Shell {
    pub(super) fn new(options: Options) -> Self {
        let exports = if options.exports_all { Exports::All } else { Exports::Named };
        Self { variables: HashMap::new(), exports }
    }
}

// === impl Exports ===

impl Exports {
    /// Returns the exports after `set -a`, `set -o allexport` or `set +a`.
    fn after_set(self, words: &[Word]) -> Self {
        let mut exports = self;
        let mut named = None;
        for word in words {
            let text = word.text.as_str();
            let on = match text.strip_prefix('-') {
                _ if named.is_some() && text == "allexport" => named.take(),
                Some("-") => break,
                Some(letters) => {
                    named = letters.contains('o').then_some(true);
                    letters.contains('a').then_some(true)
                }
                None => {
                    let letters = text.strip_prefix('+').unwrap_or_default();
                    named = letters.contains('o').then_some(false);
                    letters.contains('a').then_some(false)
                }
            };
            exports = match on {
                _ if !word.is_known => Self::Unseen,
                Some(true) => Self::All,
                Some(false) => Self::Named,
                None => exports,
            };
        }
        exports
    }
}

// === impl Launch ===

impl Launch<'_> {
    /// Adds the variables that a command sets for the process.
    pub(super) fn assign(
        &mut self,
        command: &Simple,
        is_uncertain: bool,
        is_for_process: bool,
        shell: &mut Shell,
    ) {
        let known = |value: &Option<String>| value.clone().filter(|_| !is_uncertain);
        let first = command.words.first().map(|word| word.text.as_str()).unwrap_or_default();
        let rest = command.words.get(1..).unwrap_or_default();
        if command.words.is_empty() {
            for (name, value) in &command.sets {
                shell.variables.insert(name.clone(), known(value));
                // A variable that is exported stays so.
                if shell.exports == Exports::All || self.environment.has(name) {
                    self.set(name, known(value).as_deref());
                } else if shell.exports == Exports::Unseen {
                    self.set(name, None);
                }
            }
        } else if is_for_process {
            for (name, value) in &command.sets {
                self.set(name, known(value).as_deref());
            }
        } else {
            // This command may be the process, or keep the value for the commands after it.
            let may_count = |name: &str, all: bool| all || self.environment.has(name);
            let all = self.signalled == Signalled::All;
            let names = command.sets.iter().filter(|(name, _)| may_count(name, all));
            let names: Vec<_> = names.map(|(name, _)| name.clone()).collect();
            names.iter().for_each(|name| self.set(name, None));
        }
        match first {
            "export" => {
                // `export -n NAME` takes the variable back.
                let is_kept = !rest.iter().any(|word| word.text.starts_with("-n"));
                for word in rest.iter().filter(|word| !word.text.starts_with('-')) {
                    if !word.is_known && !word.text.contains('=') {
                        self.environment.add_unseen(self.place.clone());
                        continue;
                    }
                    let (name, value) = script::assignment(word).unwrap_or_else(|| {
                        let set = shell.variables.get(&word.text);
                        (word.text.clone(), set.cloned().flatten())
                    });
                    self.set(&name, known(&value).filter(|_| is_kept).as_deref());
                }
            }
            "set" => {
                let set = Exports::after_set(shell.exports, rest);
                let is_known = set == shell.exports || !is_uncertain;
                shell.exports = if is_known { set } else { Exports::Unseen };
            }
            "unset" => {
                for word in rest {
                    match is_uncertain {
                        _ if !word.is_known => self.environment.add_unseen(self.place.clone()),
                        true => self.environment.unset_perhaps(&word.text, self.place.clone()),
                        false => self.environment.unset(&word.text),
                    }
                }
            }
            _ if SETTERS.contains(&first) => self.environment.add_unseen(self.place.clone()),
            _ => {}
        }
    }
}
