//! Files of bounded size. Pipes and devices are refused, because reading them might never end.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// More than any manifest that people write. Tools write several documents.
pub(crate) const LARGEST: u64 = 4 * 1024 * 1024;

pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    // Before it is opened: opening a fifo blocks until another process writes to it.
    let metadata = std::fs::metadata(path)?;
    if !metadata.is_file() {
        let what = "not a regular file: give a file, or - for standard input";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    bounded(File::open(path)?)
}

pub(crate) fn bounded(from: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(LARGEST + 1).read_to_end(&mut bytes)?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length <= LARGEST) {
        return Ok(bytes);
    }
    let most = LARGEST / 1024 / 1024;
    let what = format!("larger than {most} MiB: give the manifests one by one");
    Err(io::Error::new(io::ErrorKind::FileTooLarge, what))
}
