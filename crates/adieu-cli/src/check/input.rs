//! A manifest while it is read: its text, and the workloads found in it.

use std::path::{Path, PathBuf};

use super::files;
use super::place::{InputError, Place};
use super::workload::Workload;
use crate::ending::Failure;
use crate::fit::harmless;

/// More than fit into one readable output.
pub(crate) const MOST_WORKLOADS: usize = 1_000;

/// The content of a file.
#[derive(Default)]
pub(crate) struct Manifest {
    /// As it was named.
    pub(crate) file: String,
    pub(crate) workloads: Vec<Workload>,
    /// The documents that run nothing, with their places.
    pub(crate) skipped: Vec<(Place, String)>,
}

/// A file that is being read.
pub(crate) struct Source<'a> {
    pub(crate) text: &'a str,
    /// The name of a workload that has no name of its own.
    pub(crate) name: &'a str,
    /// `None` for standard input.
    pub(crate) path: Option<&'a Path>,
    /// The workload to judge; `None` for all.
    pub(crate) only: Option<&'a str>,
}

// === impl Manifest ===

impl Manifest {
    pub(crate) fn add(&mut self, workload: Workload) -> Result<(), InputError> {
        if self.workloads.len() >= MOST_WORKLOADS {
            let problem = format!("more than {MOST_WORKLOADS} workloads: give them one by one");
            return Err(InputError { place: workload.place, problem });
        }
        self.workloads.push(workload);
        Ok(())
    }

    pub(crate) fn skip(&mut self, place: Place, what: String) {
        self.skipped.push((place, what));
    }

    pub(super) fn is_of_no_use(&self) -> Failure {
        let file = &self.file;
        let some = self.skipped.iter().take(10);
        let skipped: Vec<_> = some.map(|(place, what)| format!("{what} (line {place})")).collect();
        Failure::input(if skipped.is_empty() {
            format!("{file}: it is empty: give a manifest with a Deployment, unit or service")
        } else {
            let skipped = skipped.join(", ");
            format!("{file}: nothing in it runs anything: there is {}", harmless(&skipped))
        })
    }
}

// === impl Source ===

impl Source<'_> {
    /// A file that the manifest names, and that stands beside it. `None` if it cannot be read here.
    pub(crate) fn beside(&self, name: &str) -> Option<(String, String)> {
        let folder = self.path?.parent()?;
        let path: PathBuf = folder.join(name);
        let text = String::from_utf8(files::read(&path).ok()?).ok()?;
        Some((path.display().to_string(), text))
    }

    /// A folder that the manifest names, and that stands beside it.
    pub(crate) fn folder_beside(&self, name: &str) -> Option<PathBuf> {
        Some(self.path?.parent()?.join(name)).filter(|folder| folder.is_dir())
    }
}
