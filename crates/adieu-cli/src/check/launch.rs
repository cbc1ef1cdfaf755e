//! What a command leaves between the platform's signal and the process, and which variables it
//! sets on the way.

use super::environment::Environment;
use super::place::{Finding, Fix, Level, Place};
use super::programs::{self, Start, base};
use super::script::{self, SETTERS, Script, Simple, Then, Word};

/// What stands between the platform's signal and the process. The last is the worst.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Front {
    /// Nothing: the process itself is signalled.
    Nothing,
    /// Something of which that cannot be seen here.
    Unseen(String),
    /// A program of this name, which stops the process by its own rules, whichever process is
    /// signalled.
    Managed(String),
    /// A shell that waits for it, and passes no signal on.
    Shell,
}

/// How deep commands may be nested in commands.
const DEEPEST: usize = 16;

struct Launch<'a> {
    environment: &'a mut Environment,
    place: &'a Place,
}

/// What a shell is given to run.
pub(crate) enum Given<'a> {
    /// A script on its command line, and the script's arguments from `$0` on.
    Script(&'a str, &'a [Word]),
    File,
    Unseen,
}

/// Follows a command until the process starts; changes the environment as the command does.
pub(crate) fn front(words: &[Word], environment: &mut Environment, place: &Place) -> Front {
    Launch { environment, place }.front(words, DEEPEST)
}

/// The script that a shell is given.
pub(crate) fn given(words: &[Word]) -> Given<'_> {
    let (mut at, mut is_command) = (0, false);
    while let Some(word) = words.get(at) {
        let text = word.text.as_str();
        at += 1;
        match text.strip_prefix(['-', '+']) {
            Some(option) if !word.is_known || option.is_empty() => return Given::Unseen,
            Some(option) if option.starts_with('-') => {}
            Some(option) => {
                is_command |= text.starts_with('-') && option.contains('c');
                if option.ends_with(['o', 'O']) {
                    at += 1;
                }
            }
            None if is_command && word.is_known => {
                return Given::Script(text, words.get(at..).unwrap_or_default());
            }
            None if is_command => return Given::Unseen,
            None => return Given::File,
        }
    }
    Given::Unseen
}

fn unseen(what: impl Into<String>) -> Front {
    Front::Unseen(what.into())
}

// === impl Launch ===

impl Launch<'_> {
    fn front(&mut self, words: &[Word], depth: usize) -> Front {
        let Some(depth) = depth.checked_sub(1) else {
            return unseen("commands nested this deeply are not followed");
        };
        let mut words = words;
        let mut group = None;
        for _ in 0..programs::MOST_WRAPPERS {
            let Some((first, rest)) = words.split_first() else { return Front::Nothing };
            // `%(NAME)s` is how supervisord writes a variable.
            if !first.is_known || first.text.contains('$') || first.text.contains("%(") {
                return unseen("which program this starts cannot be seen here");
            }
            let name = base(first);
            let front = match programs::start(words) {
                Start::Env(arguments) => match self.env(arguments) {
                    Some(inner) => {
                        words = inner;
                        continue;
                    }
                    None => unseen("what env runs here cannot be seen"),
                },
                Start::Wrapper(inner) => {
                    group = group.or(programs::signals_the_group(words).then_some(name));
                    words = inner;
                    continue;
                }
                Start::Odd => {
                    unseen(format!("what {name} runs with these options is not known here"))
                }
                Start::Shell => self.shell(name, rest, depth),
                Start::Manager => Front::Managed(name.to_owned()),
                Start::Script => unseen(format!("whether {name} ends in exec cannot be seen here")),
                Start::Other => {
                    unseen(format!("{name} is not the process, and may run it as its child"))
                }
                Start::May(inner) => unseen(format!(
                    "whether {name} runs {inner} in its place or as its child cannot be seen here"
                )),
                Start::Process => Front::Nothing,
            };
            // The shell is signalled, too, and ends at once; and the init process ends with it.
            return match (front, group) {
                (Front::Shell, Some(init)) => {
                    unseen(format!("{init} ends when the shell behind it ends"))
                }
                (front, _) => front,
            };
        }
        unseen("a chain of this many programs is not followed")
    }

    /// `env -u NAME NAME=value command`: the command, if there is one and all options are known.
    fn env<'w>(&mut self, words: &'w [Word]) -> Option<&'w [Word]> {
        let mut rest = words;
        while let Some((word, more)) = rest.split_first() {
            let text = word.text.as_str();
            if let Some((name, value)) = script::assignment(word) {
                self.set(&name, value.as_deref());
            } else {
                match text {
                    "-i" | "-" | "--ignore-environment" => self.environment.forget(),
                    "--" | "-v" | "--debug" => {}
                    "-u" => {
                        self.environment.remove(&more.first()?.text);
                        rest = more.get(1..)?;
                        continue;
                    }
                    _ if text.starts_with("--unset=") => {
                        self.environment.remove(text.trim_start_matches("--unset="));
                    }
                    _ if text.starts_with('-') || !word.is_known => return None,
                    _ => return Some(rest),
                }
            }
            rest = more;
        }
        None
    }

    fn set(&mut self, name: &str, value: Option<&str>) {
        match value {
            Some(value) => self.environment.set(name, value, self.place.clone()),
            None => self.environment.set_unseen(name, self.place.clone()),
        }
    }

    fn shell(&mut self, name: &str, options: &[Word], depth: usize) -> Front {
        match given(options) {
            Given::Script(text, arguments) => {
                let read = script::read(text, &self.environment.values(), arguments);
                match read {
                    Script::Commands(commands) => self.commands(&commands, name == "dash", depth),
                    Script::Complex => {
                        self.environment.add_unseen(self.place.clone());
                        unseen("whether this script passes signals on cannot be seen here")
                    }
                }
            }
            Given::File => unseen("whether this script ends in exec cannot be seen here"),
            Given::Unseen => unseen("what this shell runs cannot be seen here"),
        }
    }

    /// Commands in a row: all that may replace the shell must be the process.
    fn commands(&mut self, commands: &[Simple], is_dash: bool, depth: usize) -> Front {
        let mut worst = Front::Nothing;
        let mut variables = Shell::default();
        let mut after_branch = None;
        for (at, command) in commands.iter().enumerate() {
            let before = at.checked_sub(1).map(|at| &commands[at]);
            let then = before.map(|before| before.then);
            let stays =
                then == Some(Then::Pipe) || matches!(command.then, Then::Pipe | Then::Background);
            let is_branch = matches!(then, Some(Then::And | Then::Or));
            let replaces = matches!(command.words.as_slice(), [exec, _, ..] if exec.text == "exec");
            let is_last = at + 1 == commands.len();
            self.assign(command, stays || is_branch, replaces || is_last, &mut variables);
            if !replaces || stays {
                continue;
            }
            worst = worst.max(self.front(&command.words, depth));
            if commands[..at].iter().any(|other| other.then == Then::Background) {
                let what = "another program runs in the background, and may be the process";
                worst = worst.max(unseen(what));
            }
            if !is_branch {
                return worst;
            }
            let is_test = before.is_some_and(is_quick);
            if then == Some(Then::Or) && !is_test {
                worst = worst.max(unseen("the shell stays in front of the command before ||"));
            }
            after_branch = Some(at + 1);
        }
        // On the other branch the shell ends, if nothing but exit follows.
        let rest = after_branch.map_or(commands, |at| &commands[at..]);
        if after_branch.is_some() && rest.iter().all(|command| is_one_of(command, &["exit"])) {
            return worst;
        }
        worst.max(self.last(commands, is_dash, depth))
    }

    /// What a script leaves in front of the process if no `exec` is certain.
    fn last(&mut self, commands: &[Simple], is_dash: bool, depth: usize) -> Front {
        let is_piped = matches!(commands, [.., before, _] if before.then == Then::Pipe);
        let Some(last) = commands.last().filter(|last| !last.words.is_empty()) else {
            return unseen("what this shell runs cannot be seen here");
        };
        if commands.iter().any(|command| is_one_of(command, &["trap", "eval"])) {
            return unseen("whether this script passes signals on and waits cannot be seen here");
        }
        // What has been started before is the child of a shell that waits.
        if is_one_of(last, &["wait"]) || is_quick(last) {
            return Front::Shell;
        }
        if last.then != Then::Next || is_piped {
            return Front::Shell;
        }
        // bash replaces itself with the last command of a list, dash does not, and `sh` is either.
        match self.front(&last.words, depth) {
            Front::Nothing if !is_dash => unseen(
                "whether the shell replaces itself with its last command depends on the shell",
            ),
            Front::Nothing => Front::Shell,
            inner @ (Front::Unseen(_) | Front::Managed(_) | Front::Shell) => inner,
        }
    }

    /// Takes the variables that a command sets for the process.
    fn assign(
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
                shell.variables.push((name.clone(), known(value)));
                // A variable that is exported stays so.
                if shell.exports_all || self.environment.has(name) {
                    self.set(name, known(value).as_deref());
                }
            }
        } else if is_for_process {
            for (name, value) in &command.sets {
                self.set(name, known(value).as_deref());
            }
        }
        match first {
            "export" => {
                for word in rest.iter().filter(|word| !word.text.starts_with('-')) {
                    let (name, value) = script::assignment(word).unwrap_or_else(|| {
                        let set = shell.variables.iter().rev().find(|(name, _)| *name == word.text);
                        set.cloned().unwrap_or_else(|| (word.text.clone(), None))
                    });
                    self.set(&name, known(&value).as_deref());
                }
            }
            "set" => {
                let is_all = |word: &Word| {
                    let letters = word.text.strip_prefix('-').unwrap_or_default();
                    letters.contains('a') || word.text == "allexport"
                };
                shell.exports_all |= rest.iter().any(is_all);
            }
            "unset" if !is_uncertain => {
                rest.iter().for_each(|word| self.environment.remove(&word.text));
            }
            _ if SETTERS.contains(&first) => self.environment.add_unseen(self.place.clone()),
            _ => {}
        }
    }
}

/// What a shell keeps for itself.
#[derive(Default)]
struct Shell {
    variables: Vec<script::Assignment>,
    /// Whether it passes all of them on.
    exports_all: bool,
}

fn is_one_of(command: &Simple, names: &[&str]) -> bool {
    command.words.first().is_some_and(|first| names.contains(&first.text.as_str()))
}

fn is_quick(command: &Simple) -> bool {
    command.words.first().is_some_and(|first| programs::is_quick(base(first)))
}

// === impl Front ===

impl Front {
    /// What is wrong with it where the first process alone is signalled.
    pub(crate) fn finding(self, place: Place) -> Option<Finding> {
        let advice = "start the process itself, or write exec in front of it";
        let (level, problem, advice) = match self {
            Self::Nothing => return None,
            Self::Shell => {
                let problem = "a shell is signalled and does not pass the signal on: the process never \
                               receives it, and is killed undrained";
                (Level::Error, problem.to_owned(), advice.to_owned())
            }
            Self::Unseen(what) => {
                let problem = format!("{what}: the stop signal may never reach the process");
                (Level::Unknown, problem, format!("{advice}, or pass --execs if it does so"))
            }
            Self::Managed(name) => {
                let problem = format!("{name} stops the process by its own rules, in its own time");
                let advice = "check its configuration, too; or start the process itself";
                let fix = Fix::Line(format!("no {name} in front of the process"));
                let finding = Finding::new(Level::Unknown, place, problem, advice);
                return Some(finding.fixed_by(fix));
            }
        };
        Some(Finding::new(level, place, problem, advice).fixed_by(Fix::Exec))
    }

    /// What is wrong with it where all processes that it has started are signalled.
    pub(crate) fn finding_in_group(self, place: Place) -> Option<Finding> {
        match self {
            Self::Managed(_) => self.finding(place),
            Self::Nothing | Self::Unseen(_) | Self::Shell => None,
        }
    }
}

#[cfg(test)]
mod tests;
