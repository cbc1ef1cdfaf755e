//! The file to which the report is written before the process ends.

use std::io::{Error, Result, Write};
use std::path::PathBuf;
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
            let mut file = std::fs::File::create(&path)?;
            serde_json::to_writer_pretty(&mut file, &*report)?;
            file.write_all(b"\n")?;
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
