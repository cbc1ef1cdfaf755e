//! The errors of configurations.

use std::path::{Path, PathBuf};

use crate::plan::PlanError;

/// Why a configuration is invalid.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("failed to read {}", path.display())]
    Read {
        /// The file in question.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The extension of the file is unknown.
    #[error("unknown format of {}: name it .toml, .json, .conf or .hocon", path.display())]
    UnknownFormat {
        /// The file in question.
        path: PathBuf,
    },
    /// The feature `hocon`, which reads HOCON, is off.
    #[error("failed to read HOCON: enable the feature `hocon` of adieu")]
    NoHocon,
    /// The text has a syntax error.
    #[error("failed to parse {format}: {problem}")]
    Syntax {
        /// The expected format.
        format: super::Format,
        /// The problem, and its position.
        problem: String,
    },
    /// The key is unknown.
    #[error("unknown key {path}{}", hint(nearest.as_deref()))]
    UnknownKey {
        /// The path of the key.
        path: String,
        /// The key that was probably meant.
        nearest: Option<String>,
    },
    /// The value of the key is invalid.
    #[error("{path}: {problem}")]
    Invalid {
        /// The path of the key.
        path: String,
        /// The problem with its value.
        problem: String,
    },
    /// Two switches contradict each other, or a value is out of range.
    #[error("{problem}")]
    Contradiction {
        /// The keys in question, and what to do.
        problem: String,
    },
    /// The phases form no valid plan.
    #[error("{path}: {problem}")]
    Plan {
        /// The path of the key that causes the problem, as far as that is known.
        path: String,
        /// The problem.
        problem: PlanError,
    },
    /// A file contains one of these errors.
    #[error("{}: {problem}", path.display())]
    File {
        /// The file in question.
        path: PathBuf,
        /// The error in it.
        problem: Box<ConfigError>,
    },
}

// === impl ConfigError ===

impl ConfigError {
    /// Prepends the path of the block to the path of the key.
    pub(super) fn within(mut self, block: &str) -> Self {
        if let Self::Plan { path, .. } = &mut self
            && !block.is_empty()
        {
            *path = format!("{block}.{path}");
        }
        self
    }

    /// Adds the file to the error, unless the error already names it.
    pub(super) fn in_file(self, path: &Path) -> Self {
        match self {
            Self::Read { .. } | Self::UnknownFormat { .. } | Self::File { .. } => self,
            problem @ (Self::NoHocon
            | Self::Syntax { .. }
            | Self::UnknownKey { .. }
            | Self::Invalid { .. }
            | Self::Contradiction { .. }
            | Self::Plan { .. }) => {
                Self::File { path: path.to_owned(), problem: Box::new(problem) }
            }
        }
    }
}

fn hint(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |nearest| format!("; did you mean {nearest}?"))
}
