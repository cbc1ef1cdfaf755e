//! Reads a manifest from a file or from standard input, and recognises its platform.

use std::path::Path;

use super::input::{Manifest, Source};
use super::place::InputError;
use super::tree::Tree;
use super::{compose, deploy_script, ecs, files, fly, hints, ini, kubernetes, nomad, quadlet};
use super::{supervisord, systemd, yaml};
use crate::ending::Failure;
use crate::fit::harmless;

const STDIN: &str = "<stdin>";

// === impl Manifest ===

impl Manifest {
    /// Reads the file, or standard input if it is `-`.
    ///
    /// # Errors
    ///
    /// Fails if the file has no workload. If `only` names none of its workloads, they are listed as
    /// skipped.
    pub(crate) fn read(path: &Path, only: Option<&str>) -> Result<Self, Failure> {
        let (file, text) = read_text(path)?;
        let path = Some(path).filter(|_| file != STDIN);
        let stem = path.and_then(Path::file_stem);
        let name = stem.map_or("service".into(), |stem| stem.to_string_lossy());
        let mut manifest = Self { file, ..Self::default() };
        let source = Source { text: &text, name: &name, path, only };
        manifest.take(&source).map_err(|InputError { place, problem }| {
            Failure::input(format!("{}: {}", place.within(&manifest.file), harmless(&problem)))
        })?;
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

    fn take(&mut self, source: &Source<'_>) -> Result<(), InputError> {
        let text = source.text;
        if ini::is_one(text) && !fly::is_one(source) {
            let file = ini::read(text, None)?;
            return match () {
                () if supervisord::is_one(&file) => supervisord::read(&file, source.only, self),
                () if quadlet::is_one(&file) => quadlet::read(file, source, self),
                () => systemd::read(file, source, self),
            };
        }
        if nomad::is_hcl(text) {
            return nomad::read_hcl(text, source.only, self);
        }
        if fly::is_one(source) {
            return fly::read(source, self);
        }
        if deploy_script::is_one(text) {
            return deploy_script::read(source, self);
        }
        let read = yaml::parse(text).and_then(|tree| self.take_tree(&tree, source));
        read.map_err(|wrong| hints::explain(wrong, source))
    }

    fn take_tree(&mut self, tree: &Tree, source: &Source<'_>) -> Result<(), InputError> {
        let documents: Vec<_> = tree.documents().collect();
        for document in &documents {
            if !document.is_map() {
                return Err(document.error(format!("{}: a map of keys", hints::KNOWN)));
            }
            if let Some(hint) = hints::of_document(document, source) {
                return Err(document.error(hint));
            }
        }
        let (pods, others): (Vec<_>, Vec<_>) = documents.into_iter().partition(kubernetes::is_one);
        kubernetes::read(&pods, source.only, self)?;
        for document in others {
            if compose::is_one(&document) {
                compose::read(&document, source, self)?;
            } else if ecs::is_one(&document) {
                ecs::read(&document, source, self)?;
            } else if nomad::is_json(&document) {
                nomad::read_json(&document, source.only, self)?;
            } else {
                return Err(document.error(hints::KNOWN));
            }
        }
        Ok(())
    }
}

/// Returns the name of the file for messages, and its text.
fn read_text(path: &Path) -> Result<(String, String), Failure> {
    let name = if path == Path::new("-") { STDIN.into() } else { path.display().to_string() };
    if path.is_dir() {
        return Err(Failure::input(format!("{name}: {}", hints::of_folder(path))));
    }
    let read = if name == STDIN { files::bounded(std::io::stdin()) } else { files::read(path) };
    let bytes = read.map_err(|error| Failure::input(format!("failed to read {name}: {error}")))?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let line = error.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count() + 1;
        Failure::input(format!("{name}:{line}: this is not UTF-8, so it is no manifest"))
    })?;
    Ok((name, text.trim_start_matches('\u{feff}').to_owned()))
}
