//! The instructions of a Dockerfile that concern stopping: the one in a compose file, or the one in the
//! folder that a compose file builds.

use crate::check::environment::Environment;
use crate::check::input::Source;
use crate::check::place::Place;
use crate::check::script::{self, Word};
use crate::check::stop_signal::StopSignal;
use crate::check::tree::Node;

/// The settings of a stage of a Dockerfile.
#[derive(Clone, Default)]
pub(super) struct Dockerfile {
    pub(super) signal: Option<StopSignal>,
    pub(super) entrypoint: Vec<Word>,
    pub(super) command: Vec<Word>,
    /// The last instruction that sets how the container starts.
    pub(super) started_at: Option<Place>,
    variables: Vec<(String, String, Place)>,
    /// The shell that runs commands which are not lists.
    shell: Option<Vec<String>>,
}

/// An instruction and its arguments.
struct Instruction {
    name: String,
    arguments: String,
    line: usize,
}

/// Returns the settings of the image that a service builds. `None` if they cannot be seen here.
///
/// `builds` are the definitions that compose merges, the one that counts most first.
pub(super) fn of(builds: &[Node<'_>], source: &Source<'_>) -> Option<Dockerfile> {
    let text = |key: &str| builds.iter().find_map(|build| build.text_of(key));
    if builds.is_empty() {
        return None;
    }
    if let Some(inline) = builds.iter().find_map(|build| build.get("dockerfile_inline")) {
        return read(inline.text()?, text("target"), &|_| inline.place());
    }
    // The short form is the context alone.
    let context = builds.iter().find_map(|build| build.text().or_else(|| build.text_of("context")));
    let (context, name) = (context.unwrap_or("."), text("dockerfile").unwrap_or("Dockerfile"));
    // Compose fills in variables, and contexts may be addresses.
    if [context, name].iter().any(|part| part.contains('$') || part.contains("://")) {
        return None;
    }
    let (file, dockerfile) = source.beside(&format!("{context}/{name}"))?;
    let place = |line| Place { file: Some(file.clone()), ..Place::at(line, "") };
    read(&dockerfile, text("target"), &place)
}

/// Reads the stage that is built: the last one, or the one with the name of `target`.
fn read(text: &str, target: Option<&str>, place: &dyn Fn(usize) -> Place) -> Option<Dockerfile> {
    let mut stages: Vec<(String, Dockerfile)> = Vec::new();
    for Instruction { name, arguments, line } in instructions(text) {
        let at = place(line);
        if name == "FROM" {
            let words = arguments.split_whitespace().filter(|word| !word.starts_with("--"));
            let words: Vec<_> = words.collect();
            let is_named = |word: &&str| word.eq_ignore_ascii_case("as");
            let own = words.iter().position(is_named).and_then(|at| words.get(at + 1));
            let base = words.first().map(|base| base.to_lowercase()).unwrap_or_default();
            let base = stages.iter().rev().find(|(name, _)| *name == base);
            let stage = base.map(|(_, stage)| stage.clone()).unwrap_or_default();
            let own = own.map_or_else(|| stages.len().to_string(), |own| own.to_lowercase());
            stages.push((own, stage));
            continue;
        }
        // Instructions before the first stage set no property of an image.
        let Some((_, stage)) = stages.last_mut() else { continue };
        match name.as_str() {
            "STOPSIGNAL" => {
                let fix = match at.file {
                    Some(_) => "STOPSIGNAL SIGTERM",
                    None => "stop_signal: SIGTERM",
                };
                stage.signal = Some(StopSignal { text: arguments, place: at, fix: fix.into() });
            }
            "ENTRYPOINT" => {
                stage.entrypoint = stage.command_of(&arguments);
                stage.command = Vec::new();
                stage.started_at = Some(at);
            }
            "CMD" => {
                stage.command = stage.command_of(&arguments);
                stage.started_at = Some(at);
            }
            "SHELL" => stage.shell = serde_json::from_str(&arguments).ok(),
            "ENV" => stage.env(&arguments, &at),
            _ => {}
        }
    }
    let Some(target) = target.map(str::to_lowercase) else { return Some(stages.pop()?.1) };
    stages.into_iter().rev().find(|(name, _)| *name == target).map(|(_, stage)| stage)
}

/// Splits a Dockerfile into instructions. A line that ends with the escape character continues in
/// the next one that is not a remark.
fn instructions(text: &str) -> Vec<Instruction> {
    let first = text.lines().next().unwrap_or_default().replace(' ', "").to_lowercase();
    let escape = if first == "#escape=`" { '`' } else { '\\' };
    let mut all: Vec<Instruction> = Vec::new();
    let (mut goes_on, mut heredoc) = (false, None::<String>);
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        if heredoc.is_some() {
            heredoc = heredoc.filter(|end| line != end);
            continue;
        }
        if line.starts_with('#') || line.is_empty() {
            continue;
        }
        let (part, more) = match line.strip_suffix(escape) {
            Some(part) => (part.trim_end(), true),
            None => (line, false),
        };
        match all.last_mut().filter(|_| goes_on) {
            Some(last) => last.arguments = format!("{} {part}", last.arguments),
            None => {
                let (name, arguments) = part.split_once(char::is_whitespace).unwrap_or((part, ""));
                let (name, arguments) = (name.to_ascii_uppercase(), arguments.trim().to_owned());
                all.push(Instruction { name, arguments, line: at + 1 });
            }
        }
        goes_on = more;
        let last = all.last().filter(|last| ["RUN", "COPY", "ADD"].contains(&last.name.as_str()));
        let word = last.filter(|_| !more).and_then(|last| last.arguments.split("<<").nth(1));
        let word = word.and_then(|rest| rest.trim_start_matches('-').split_whitespace().next());
        heredoc = word.map(|word| word.trim_matches(['"', '\'']).to_owned());
    }
    all
}

// === impl Dockerfile ===

impl Dockerfile {
    /// Returns the words of a command. A list in JSON is run as it is, and a line by a shell.
    fn command_of(&self, text: &str) -> Vec<Word> {
        if let Ok(words) = serde_json::from_str::<Vec<String>>(text) {
            return words.into_iter().map(Word::known).collect();
        }
        let shell = self.shell.clone();
        let shell = shell.unwrap_or_else(|| ["/bin/sh", "-c"].map(str::to_owned).into());
        shell.into_iter().chain([text.to_owned()]).map(Word::known).collect()
    }

    /// `ENV A=1 B=2`, or `ENV A 1` as it was written once.
    fn env(&mut self, text: &str, at: &Place) {
        let mut add = |name: &str, value: &str| {
            self.variables.push((name.to_owned(), value.to_owned(), at.clone()));
        };
        if let Some((name, value)) = text.split_once(' ').filter(|(name, _)| !name.contains('=')) {
            add(name, value.trim());
            return;
        }
        for pair in script::split(text) {
            if let Some((name, value)) = pair.split_once('=') {
                add(name, value);
            }
        }
    }

    pub(super) fn set_variables(&self, environment: &mut Environment) {
        for (name, value, place) in &self.variables {
            environment.set_marked(name, value, '$', place.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str, target: Option<&str>) -> String {
        let Some(found) = read(text, target, &|line| Place::at(line, "")) else {
            return "none".into();
        };
        let words = |words: &[Word]| {
            let texts: Vec<_> = words.iter().map(|word| word.text.as_str()).collect();
            texts.join(" ")
        };
        let signal = found.signal.as_ref().map_or("-", |signal| signal.text.as_str());
        let names: Vec<_> = found.variables.iter().map(|(name, ..)| name.as_str()).collect();
        let line = found.started_at.as_ref().map_or(0, |at| at.line);
        let (entrypoint, command) = (words(&found.entrypoint), words(&found.command));
        format!("{entrypoint}|{command}|{signal}|{}|{line}", names.join(","))
    }

    #[test]
    fn s1351_the_stage_that_is_built_decides() {
        for (text, target, expected) in [
            ("FROM a\nCMD [\"orders\"]\n", None, "|orders|-||2"),
            ("FROM a\nCMD orders --port 80\n", None, "|/bin/sh -c orders --port 80|-||2"),
            ("FROM a AS b\nCMD x\nFROM c\nENTRYPOINT [\"o\"]\n", None, "o||-||4"),
            ("FROM a AS B\nSTOPSIGNAL 3\nFROM b\nCMD [\"o\"]\n", None, "|o|3||4"),
            ("FROM a AS b\nCMD [\"x\"]\nFROM c AS d\nCMD [\"y\"]\n", Some("b"), "|x|-||2"),
            ("FROM a AS b\n", Some("c"), "none"),
            ("FROM a\nSHELL [\"bash\", \"-ec\"]\nENTRYPOINT o\n", None, "bash -ec o||-||3"),
            ("FROM a\nENV A=1 \\\n  # remark\n  B=2\nENV C 3\n", None, "||-|A,B,C|0"),
            ("FROM a\nRUN <<EOF\nCMD x\nEOF\nCMD [\"o\"]\n", None, "|o|-||5"),
            ("FROM a\nCMD [\"x\"]\nENTRYPOINT [\"o\"]\n", None, "o||-||3"),
            ("ARG V=1\nFROM --platform=linux/amd64 a\nCMD [\"o\"]\n", None, "|o|-||3"),
            ("", None, "none"),
        ] {
            assert_eq!(shown(text, target), expected, "{text}");
        }
    }
}
