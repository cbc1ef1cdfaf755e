//! What can be wrong with a configuration.

use std::path::{Path, PathBuf};

use crate::plan::PlanError;

/// Why a configuration was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("failed to read {}", path.display())]
    Read {
        /// The file in question.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// The file's ending does not say what is in it.
    #[error("failed to tell the format of {}: name it .toml, .json or .conf (HOCON)", path.display())]
    UnknownFormat {
        /// The file in question.
        path: PathBuf,
    },
    /// HOCON is read by the feature `hocon`, which is off.
    #[error("failed to read HOCON: the feature `hocon` of adieu is off")]
    NoHocon,
    /// The text is not in its format.
    #[error("failed to parse {format}: {problem}")]
    Syntax {
        /// What it should have been.
        format: super::Format,
        /// What is wrong, and where.
        problem: String,
    },
    /// There is no such key.
    #[error("unknown key {path}{}", hint(nearest.as_deref()))]
    UnknownKey {
        /// Where it is.
        path: String,
        /// The key that was probably meant.
        nearest: Option<String>,
    },
    /// The key's value makes no sense.
    #[error("{path}: {problem}")]
    Invalid {
        /// Where it is.
        path: String,
        /// What is wrong with it.
        problem: String,
    },
    /// Two switches contradict each other.
    #[error("{problem}")]
    Contradiction {
        /// Which two, and what to do.
        problem: String,
    },
    /// The phases do not make a plan.
    #[error("{path}: {problem}")]
    Plan {
        /// The key that is to blame, as far as one is.
        path: String,
        /// What is wrong.
        problem: PlanError,
    },
    /// A file holds one of these mistakes.
    #[error("{}: {problem}", path.display())]
    File {
        /// The file in question.
        path: PathBuf,
        /// What is wrong with it.
        problem: Box<ConfigError>,
    },
}

// === impl ConfigError ===

impl ConfigError {
    /// The same, in the block at this path.
    pub(super) fn within(mut self, block: &str) -> Self {
        if let Self::Plan { path, .. } = &mut self
            && !block.is_empty()
        {
            *path = format!("{block}.{path}");
        }
        self
    }

    /// The same, in this file. Errors that name the file already stay as they are.
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
