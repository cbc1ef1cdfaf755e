//! The file to which the report is written before the process ends.

use std::io::{Error, ErrorKind, Result};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::Report;
use crate::sync::lock;
use crate::time::Short;

/// The least time to write the file, also if the process should have exited by now. A report that is
/// a little late is more useful than none.
const LEAST: Duration = Duration::from_millis(50);

/// The file of `report-file`, if one is configured.
pub(crate) struct ReportFile {
    path: Option<PathBuf>,
    /// The contents of the file. The lock is held while the file is written, because the main thread
    /// and the watchdog may both write it.
    written: Arc<Mutex<Option<Arc<Report>>>>,
}

// === impl ReportFile ===

impl ReportFile {
    pub(crate) fn new(path: Option<PathBuf>) -> Self {
        Self { path, written: Arc::default() }
    }

    /// Writes the report, unless the file contains it.
    ///
    /// The file is written on another thread, because a pipe without a reader or a failed disk can
    /// block. If that takes longer than `within`, this returns an error.
    pub(crate) fn write(&self, report: Arc<Report>, within: Duration) -> Result<()> {
        let Some(path) = self.path.clone() else { return Ok(()) };
        let (last, within) = (Arc::clone(&self.written), within.max(LEAST));
        let (done, written) = std::sync::mpsc::channel();
        let write = move || {
            let mut last = lock(&last);
            if last.as_ref() == Some(&report) {
                return Ok(());
            }
            let mut text = serde_json::to_vec_pretty(&*report)?;
            text.push(b'\n');
            replace(&path, &text)?;
            *last = Some(report);
            Ok(())
        };
        std::thread::Builder::new().name("adieu report".into()).spawn(move || {
            let _ = done.send(write());
        })?;
        written.recv_timeout(within).unwrap_or_else(|_| {
            let after = Short(within);
            Err(Error::other(format!("report-file was not written within {after}")))
        })
    }
}

/// Writes the text to a file. A reader sees the old contents or the new ones, also if the process ends
/// meanwhile.
fn replace(path: &Path, text: &[u8]) -> Result<()> {
    let is_replaceable = match std::fs::symlink_metadata(path) {
        Ok(found) => found.is_file(),
        Err(error) => error.kind() == ErrorKind::NotFound,
    };
    // A link, such as `/dev/stdout`, and a pipe stay what they are.
    if is_replaceable && rename_over(path, text).is_ok() {
        return Ok(());
    }
    // A file that is mounted, such as the termination log of Kubernetes, cannot be replaced, only
    // written.
    std::fs::write(path, text)
}

fn rename_over(path: &Path, text: &[u8]) -> Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    let temporary = path.with_file_name(name);
    let renamed = std::fs::write(&temporary, text).and_then(|()| std::fs::rename(&temporary, path));
    if renamed.is_err() {
        let _ = std::fs::remove_file(&temporary);
    }
    renamed
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn s980_a_report_file_is_replaced_as_a_whole() {
        let folder = std::env::temp_dir().join(format!("adieu-s980-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("report.json");
        replace(&path, b"first").unwrap();
        let mut opened = std::fs::File::open(&path).unwrap();
        replace(&path, b"second").unwrap();
        let mut seen = String::new();
        opened.read_to_string(&mut seen).unwrap();
        assert_eq!((seen.as_str(), std::fs::read(&path).unwrap()), ("first", b"second".to_vec()));
        let left: Vec<_> = std::fs::read_dir(&folder).unwrap().collect();
        assert_eq!(left.len(), 1, "{left:?}");
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn s980_a_link_is_written_and_not_replaced() {
        let folder = std::env::temp_dir().join(format!("adieu-s980-link-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (file, link) = (folder.join("log"), folder.join("report.json"));
        std::fs::write(&file, "").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        replace(&link, b"report").unwrap();
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(std::fs::read(&file).unwrap(), b"report");
        std::fs::remove_dir_all(folder).unwrap();
    }
}
