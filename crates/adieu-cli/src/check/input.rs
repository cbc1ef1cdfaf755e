//! Manifests from files and from standard input, of bounded size.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::place::{Place, Wrong};
use super::workload::Workload;
use super::yaml::Tree;
use super::{compose, kubernetes, systemd};
use crate::Failure;

/// More than any manifest that people write; what tools write comes in several documents.
const LARGEST: u64 = 4 * 1024 * 1024;

/// More than anybody wants to read about.
const MOST_WORKLOADS: usize = 1_000;

/// What a file describes.
#[derive(Default)]
pub(crate) struct Manifest {
    /// As it was named.
    pub(crate) file: String,
    pub(crate) workloads: Vec<Workload>,
    /// What runs nothing, and where.
    pub(crate) skipped: Vec<(Place, String)>,
    /// How many documents were looked at, those in lists included.
    pub(crate) documents: usize,
}

// === impl Manifest ===

impl Manifest {
    pub(crate) fn add(&mut self, workload: Workload) -> Result<(), Wrong> {
        if self.workloads.len() >= MOST_WORKLOADS {
            let problem = format!("more than {MOST_WORKLOADS} workloads: give them one by one");
            return Err(Wrong { place: workload.place, problem });
        }
        self.workloads.push(workload);
        Ok(())
    }

    pub(crate) fn skip(&mut self, place: Place, what: String) {
        self.skipped.push((place, what));
    }

    /// Reads the file, or standard input if it is `-`. There is something to judge in it, though
    /// perhaps not what was asked for.
    pub(crate) fn read(path: &Path, only: Option<&str>) -> Result<Self, Failure> {
        let (file, text) = read_text(path)?;
        let stem = path.file_stem().filter(|_| file != STDIN);
        let name = stem.map_or("service".into(), |stem| stem.to_string_lossy());
        let mut manifest = Self { file, ..Self::default() };
        manifest
            .take(&text, &name, only)
            .map_err(|wrong| with_hint(wrong, &text))
            .map_err(|wrong| Failure::input(format!("{}:{wrong}", manifest.file)))?;
        if let (Some(drop_ins), [unit]) =
            (systemd::drop_ins_of(path), manifest.workloads.as_mut_slice())
        {
            unit.findings.push(drop_ins);
        }
        if let Some(only) = only {
            let (kept, others): (Vec<_>, Vec<_>) = std::mem::take(&mut manifest.workloads)
                .into_iter()
                .partition(|workload| workload.is_called(only));
            manifest.workloads = kept;
            for other in others {
                manifest.skip(other.place.clone(), other.title());
            }
        }
        if manifest.workloads.is_empty() && (only.is_none() || manifest.skipped.is_empty()) {
            return Err(manifest.is_of_no_use());
        }
        Ok(manifest)
    }

    fn take(&mut self, text: &str, name: &str, only: Option<&str>) -> Result<(), Wrong> {
        if systemd::is_one(text) {
            return systemd::read(text, name, self);
        }
        let tree = Tree::parse(text)?;
        for document in tree.documents() {
            if !document.is_map() {
                return Err(document
                    .wrong("must be a Kubernetes manifest, a compose file or a systemd unit: a map of keys"));
            }
            if kubernetes::is_one(&document) {
                kubernetes::read(&document, only, self)?;
            } else if compose::is_one(&document) {
                compose::read(&document, only, self)?;
            } else {
                return Err(document.wrong(
                    "there is neither kind, as in a Kubernetes manifest, nor services, as in a compose \
                     file: write which it is",
                ));
            }
        }
        Ok(())
    }

    fn is_of_no_use(&self) -> Failure {
        let file = &self.file;
        let some = self.skipped.iter().take(10);
        let skipped: Vec<_> = some.map(|(place, what)| format!("{what} (line {place})")).collect();
        Failure::input(if skipped.is_empty() {
            format!("{file}: it is empty: give a manifest with a Deployment, unit or service")
        } else {
            let skipped = skipped.join(", ");
            format!("{file}: nothing in it runs anything: there is {skipped}")
        })
    }
}

const STDIN: &str = "<stdin>";

/// The name to call it by, and what it says.
fn read_text(path: &Path) -> Result<(String, String), Failure> {
    let name = if path == Path::new("-") { STDIN.into() } else { path.display().to_string() };
    let unreadable = |error| Failure::input(format!("failed to read {name}: {error}"));
    let mut bytes = Vec::new();
    let read = if name == STDIN {
        std::io::stdin().take(LARGEST + 1).read_to_end(&mut bytes)
    } else {
        File::open(path).and_then(|file| file.take(LARGEST + 1).read_to_end(&mut bytes))
    };
    let length = read.map_err(unreadable)?;
    if u64::try_from(length).is_ok_and(|length| length > LARGEST) {
        let most = LARGEST / 1024 / 1024;
        return Err(Failure::input(format!(
            "{name}: larger than {most} MiB: give the manifests one by one"
        )));
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let line = error.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count() + 1;
        Failure::input(format!("{name}:{line}: this is not UTF-8, so it is no manifest"))
    })?;
    Ok((name, text.trim_start_matches('\u{feff}').to_owned()))
}

/// Templates are the usual reason why a manifest is not YAML.
fn with_hint(mut wrong: Wrong, text: &str) -> Wrong {
    if text.contains("{{") {
        wrong.problem += "; a template must be rendered first: helm template … | adieu check \
                          --manifest -";
    }
    wrong
}
