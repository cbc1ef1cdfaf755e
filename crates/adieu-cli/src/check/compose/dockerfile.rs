//! The instructions of a Dockerfile in a compose file that concern stopping.

use crate::check::environment::Environment;
use crate::check::place::Place;
use crate::check::script::{self, Word};

/// The settings of the last stage of a Dockerfile.
#[derive(Default)]
pub(super) struct Dockerfile {
    pub(super) signal: Option<String>,
    pub(super) entrypoint: Vec<Word>,
    pub(super) command: Vec<Word>,
    variables: Vec<(String, String)>,
}

/// Reads the instructions that matter. Stages before the last do not run.
pub(super) fn read(text: &str) -> Dockerfile {
    let mut found = Dockerfile::default();
    let text = text.replace("\\\n", " ");
    for line in text.lines().map(str::trim) {
        let Some((instruction, rest)) = line.split_once(char::is_whitespace) else { continue };
        let rest = rest.trim();
        match instruction.to_ascii_uppercase().as_str() {
            "FROM" => found = Dockerfile::default(),
            "STOPSIGNAL" => found.signal = Some(rest.into()),
            "ENTRYPOINT" => (found.entrypoint, found.command) = (command(rest), Vec::new()),
            "CMD" => found.command = command(rest),
            "ENV" => found.env(rest),
            _ => {}
        }
    }
    found
}

/// A list in JSON is run as it is, and a line by a shell.
fn command(text: &str) -> Vec<Word> {
    match serde_json::from_str::<Vec<String>>(text) {
        Ok(words) => words.into_iter().map(Word::known).collect(),
        Err(_) => ["/bin/sh", "-c", text].map(Word::known).into(),
    }
}

// === impl Dockerfile ===

impl Dockerfile {
    /// `ENV A=1 B=2`, or `ENV A 1` as it was written once.
    fn env(&mut self, text: &str) {
        if let Some((name, value)) = text.split_once(' ').filter(|(name, _)| !name.contains('=')) {
            self.variables.push((name.into(), value.trim().into()));
            return;
        }
        let pairs = script::split(text);
        let pairs = pairs.iter().filter_map(|pair| pair.split_once('='));
        self.variables.extend(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    pub(super) fn variables(&self, environment: &mut Environment, place: &Place) {
        for (name, value) in &self.variables {
            environment.set_marked(name, value, '$', place.clone());
        }
    }
}
