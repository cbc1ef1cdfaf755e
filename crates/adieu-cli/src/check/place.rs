//! Where something is in a file, and what is wrong with it.

use std::fmt;

/// A line of a file, and the key that it is about; no key if it is about the line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) line: usize,
    pub(crate) path: String,
}

/// Input that cannot be judged.
#[derive(Clone, Debug)]
pub(crate) struct Wrong {
    pub(crate) place: Place,
    pub(crate) problem: String,
}

/// What is worth saying about a place.
#[derive(Clone, Debug)]
pub(crate) struct Finding {
    pub(crate) level: Level,
    pub(crate) place: Where,
    pub(crate) problem: String,
    pub(crate) advice: String,
}

/// In which file it is to be changed, and where.
#[derive(Clone, Debug)]
pub(crate) enum Where {
    Manifest(Place),
    /// The key.
    Config(&'static str),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// It does not work.
    Error,
    /// It works, and will be regretted.
    Warning,
    /// Good to know.
    Note,
}

// === impl Place ===

impl Place {
    /// Where a file begins.
    pub(crate) fn start() -> Self {
        Self { line: 1, path: String::new() }
    }
}

// === impl Wrong ===

impl Wrong {
    pub(crate) fn at(line: usize, problem: impl Into<String>) -> Self {
        Self { place: Place { line, path: String::new() }, problem: problem.into() }
    }
}

// === impl Finding ===

impl Finding {
    pub(crate) fn new(level: Level, place: Place, problem: &str, advice: &str) -> Self {
        let place = Where::Manifest(place);
        Self { level, place, problem: problem.into(), advice: advice.into() }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Note => "note",
        })
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.problem)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path.as_str() {
            "" => write!(f, "{}", self.line),
            path => write!(f, "{}: {path}", self.line),
        }
    }
}

/// A text of a manifest, fit to be shown: what would steer a terminal is taken out, but for where
/// its lines end.
pub(crate) fn printable(text: &str) -> String {
    let lines: Vec<_> = text.lines().map(crate::fit::harmless).collect();
    lines.join("\n")
}
