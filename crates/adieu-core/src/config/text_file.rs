//! Reads the text of a file, within limits.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use super::ConfigError;

/// The size limit of a configuration file, in bytes.
const LARGEST: u64 = 4 * 1024 * 1024;

/// Reads the text of a configuration file.
pub(super) fn text_of(path: &Path) -> Result<String, ConfigError> {
    read_text(path).map_err(|source| ConfigError::Read { path: path.to_owned(), source })
}

/// Reads a regular file of limited size. Reading a fifo or a device might never end.
pub(super) fn read_text(path: &Path) -> io::Result<String> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    let mut text = String::new();
    File::open(path)?.take(LARGEST + 1).read_to_string(&mut text)?;
    if u64::try_from(text.len()).is_ok_and(|length| length > LARGEST) {
        let problem = format!("larger than {} MiB", LARGEST / 1024 / 1024);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, problem));
    }
    Ok(text)
}
