//! Places in files, and findings about them.

use std::fmt;

/// A line of a file, and the key that it is about; no key if it is about the line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The file, if it is not the manifest itself: a drop-in, for example.
    pub(crate) file: Option<String>,
    pub(crate) line: usize,
    pub(crate) path: String,
}

/// Input that cannot be judged.
#[derive(Clone, Debug)]
pub(crate) struct InputError {
    pub(crate) place: Place,
    pub(crate) problem: String,
}

/// A problem or a remark about a place.
#[derive(Clone, Debug)]
pub(crate) struct Finding {
    pub(crate) level: Level,
    pub(crate) place: Location,
    pub(crate) problem: String,
    pub(crate) advice: String,
    pub(crate) fix: Fix,
}

/// The change to the manifest that removes a finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fix {
    /// There is none that can be named, or it is part of the sums.
    None,
    /// Another preStop, or none.
    PreStop,
    /// `exec` in front of the process.
    Exec,
    /// The grace period in the environment of the process.
    StateGrace,
    /// This line in the manifest.
    Line(String),
    /// This option of `adieu check`, if it is true.
    Say(&'static str),
    /// `--ignore-key` with this key, if the key has no effect.
    Key(String),
}

/// The file and the place to change.
#[derive(Clone, Debug)]
pub(crate) enum Location {
    Manifest(Place),
    /// The key.
    Config(&'static str),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// The shutdown would fail.
    Error,
    /// Whether the shutdown works cannot be seen in the manifest.
    Unknown,
    /// The shutdown works, but something around it does not.
    Warning,
    /// A note.
    Note,
}

// === impl Place ===

impl Place {
    /// Returns the beginning of a file.
    pub(crate) fn start() -> Self {
        Self::at(1, "")
    }

    /// A line of the manifest itself.
    pub(crate) fn at(line: usize, path: impl Into<String>) -> Self {
        Self { file: None, line, path: path.into() }
    }

    /// With the name of its file, which is `manifest` unless the place names another.
    pub(crate) fn within(&self, manifest: &str) -> String {
        format!("{}:{self}", self.file.as_deref().unwrap_or(manifest))
    }
}

// === impl InputError ===

impl InputError {
    pub(crate) fn at(line: usize, problem: impl Into<String>) -> Self {
        Self { place: Place::at(line, ""), problem: problem.into() }
    }
}

// === impl Finding ===

impl Finding {
    pub(crate) fn new(
        level: Level,
        place: Place,
        problem: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        let place = Location::Manifest(place);
        Self { level, place, problem: problem.into(), advice: advice.into(), fix: Fix::None }
    }

    /// Names the change that removes this finding.
    pub(crate) fn fixed_by(self, fix: Fix) -> Self {
        Self { fix, ..self }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Error => "error",
            Self::Unknown => "unknown",
            Self::Warning => "warning",
            Self::Note => "note",
        })
    }
}

impl fmt::Display for InputError {
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

/// Removes the control characters from a text of a manifest, except for line breaks, so that it can be
/// shown on a terminal.
pub(crate) fn printable(text: &str) -> String {
    let lines: Vec<_> = text.lines().map(crate::fit::harmless).collect();
    lines.join("\n")
}
