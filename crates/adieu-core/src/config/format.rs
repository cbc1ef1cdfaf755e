//! The file formats of a configuration.

use std::fmt;

/// A file format of a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// `.toml`
    Toml,
    /// `.json`
    Json,
    /// `.conf` or `.hocon`, the format of Akka. Needs the feature `hocon`.
    Hocon,
}

// === impl Format ===

impl Format {
    /// Returns whether a duration without a unit is in milliseconds, as in HOCON.
    pub(super) fn bare_numbers_are_millis(self) -> bool {
        self == Self::Hocon
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Toml => "TOML",
            Self::Json => "JSON",
            Self::Hocon => "HOCON",
        })
    }
}
