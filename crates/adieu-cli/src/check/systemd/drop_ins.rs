//! The drop-ins beside a unit.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::check::files;
use crate::check::ini::{self, Ini};
use crate::check::input::Source;
use crate::check::place::{Finding, InputError, Level, Place};

/// Adds the settings of the drop-ins beside a unit, in the order in which systemd reads them.
pub(crate) fn merge_drop_ins(unit: &mut Ini, source: &Source<'_>) -> Result<(), InputError> {
    let Some(path) = source.path else { return Ok(()) };
    for file in drop_ins(path).into_iter().filter(|file| !is_mask(file)) {
        let name = file.display().to_string();
        let wrong = |problem: String| InputError {
            place: Place { file: Some(name.clone()), ..Place::start() },
            problem,
        };
        let bytes = files::read(&file).map_err(|error| wrong(error.to_string()))?;
        let text = String::from_utf8(bytes).map_err(|_| wrong("this is not UTF-8".into()))?;
        unit.sections.extend(ini::read(&text, Some(&file))?.sections);
    }
    Ok(())
}

/// Returns the finding about an instance of a template that has drop-ins of its own.
pub(crate) fn about_instances(source: &Source<'_>) -> Option<Finding> {
    let unit = source.path?;
    let (stem, ending) = unit.file_name()?.to_str()?.split_once("@.")?;
    let (start, end) = (format!("{stem}@"), format!(".{ending}.d"));
    let is_own = |name: &String| {
        name.strip_prefix(&start)
            .and_then(|rest| rest.strip_suffix(&end))
            .is_some_and(|instance| !instance.is_empty())
    };
    let folder = unit.parent().filter(|folder| !folder.as_os_str().is_empty());
    let entries = std::fs::read_dir(folder.unwrap_or(Path::new("."))).ok()?.filter_map(Result::ok);
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    // The first one by name: the order of a folder is not certain.
    let name = names.filter(is_own).min()?;
    let problem = format!("an instance has drop-ins of its own, which are not read: {name}");
    let advice = "copy the template to the name of the instance beside them, and check that";
    Some(Finding::new(Level::Unknown, Place::start(), problem, advice))
}

/// Returns whether a drop-in is a link to `/dev/null`, which disables the files of its name in
/// other folders.
fn is_mask(file: &Path) -> bool {
    file.canonicalize().is_ok_and(|file| file == Path::new("/dev/null"))
}

/// Files by their names; of two of the same name, the one for the more specific unit counts.
fn drop_ins(unit: &Path) -> Vec<PathBuf> {
    let (Some(name), Some(folder)) =
        (unit.file_name().and_then(|name| name.to_str()), unit.parent())
    else {
        return Vec::new();
    };
    let Some((stem, ending)) = name.rsplit_once('.') else { return Vec::new() };
    // From the most specific: the unit itself, its template, its prefixes, all units of its kind.
    let mut folders = vec![format!("{name}.d")];
    if let Some((template, _)) = stem.split_once('@') {
        folders.push(format!("{template}@.{ending}.d"));
    }
    let dashes = stem.char_indices().filter(|(_, c)| *c == '-').map(|(at, _)| at);
    folders.extend(dashes.rev().map(|at| format!("{}-.{ending}.d", &stem[..at])));
    folders.push(format!("{ending}.d"));
    let mut files = BTreeMap::new();
    for one in folders {
        let Ok(entries) = std::fs::read_dir(folder.join(one)) else { continue };
        for entry in entries.filter_map(Result::ok) {
            let path = entry.path();
            // systemd ignores hidden files.
            let is_hidden = entry.file_name().to_string_lossy().starts_with('.');
            if path.extension().is_some_and(|ending| ending == "conf") && !is_hidden {
                files.entry(entry.file_name()).or_insert(path);
            }
        }
    }
    files.into_values().collect()
}
