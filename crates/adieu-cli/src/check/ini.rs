//! Files of sections and settings: units of systemd, quadlets, configurations of supervisord.

use std::path::Path;

use super::place::{InputError, Place, printable};

/// All sections of a file, in order.
pub(crate) struct Ini {
    pub(crate) sections: Vec<Section>,
}

/// A section, as often as it is begun.
pub(crate) struct Section {
    pub(crate) name: String,
    pub(crate) place: Place,
    pub(crate) settings: Vec<Setting>,
}

/// A key and its value.
#[derive(Clone)]
pub(crate) struct Setting {
    pub(crate) key: String,
    pub(crate) value: String,
    pub(crate) place: Place,
}

/// Returns whether a text has sections: its first line that is not a remark begins one.
pub(crate) fn is_one(text: &str) -> bool {
    let first = text.lines().map(str::trim).find(|line| !is_remark(line));
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || "-:_.".contains(c);
    first.is_some_and(|line| {
        section(line).is_some_and(|name| !name.is_empty() && name.chars().all(is_of_name))
    })
}

/// Reads the sections; `file` names it if it is not the manifest itself.
pub(crate) fn read(text: &str, file: Option<&Path>) -> Result<Ini, InputError> {
    let file = file.map(|file| file.display().to_string());
    let text = printable(text);
    let mut ini = Ini { sections: Vec::new() };
    let is_python = is_python(&text);
    if is_python {
        ini.read_python(&text, file)?
    } else {
        ini.read_unit(&text, file)?
    }
    Ok(ini)
}

/// Returns whether a file is one of supervisord, which Python reads.
fn is_python(text: &str) -> bool {
    let sections = ["[program:", "[supervisord]", "[fcgi-program:", "[eventlistener:"];
    text.lines().any(|line| sections.iter().any(|section| line.trim_start().starts_with(section)))
}

/// Returns a line of Python's dialect without its remark: `;` or `#` begins one, at the beginning of
/// the line or after white space.
fn without_remark(line: &str) -> &str {
    let begins = |(at, c): &(usize, char)| {
        [';', '#'].contains(c) && line[..*at].chars().next_back().is_none_or(char::is_whitespace)
    };
    let end = line.char_indices().find(begins).map_or(line.len(), |(at, _)| at);
    line[..end].trim()
}

fn line_error(place: Place) -> InputError {
    InputError { place, problem: "must be KEY=VALUE, a [Section], or a # remark".into() }
}

fn is_remark(line: &str) -> bool {
    line.is_empty() || line.starts_with(['#', ';'])
}

fn section(line: &str) -> Option<&str> {
    line.strip_prefix('[')?.strip_suffix(']')
}

// === impl Ini ===

impl Ini {
    /// Units: a line that ends with a backslash continues on the next one.
    fn read_unit(&mut self, text: &str, file: Option<String>) -> Result<(), InputError> {
        let mut lines = text.lines().enumerate();
        while let Some((at, line)) = lines.next() {
            let place = |path: &str| Place { file: file.clone(), ..Place::at(at + 1, path) };
            let mut line = line.trim().to_owned();
            if is_remark(&line) {
                continue;
            }
            if let Some(name) = section(&line) {
                self.begin(name, place(name));
                continue;
            }
            while line.ends_with('\\') {
                line.pop();
                // Remarks in between do not end it.
                let Some((_, more)) =
                    lines.by_ref().find(|(_, line)| !line.trim().starts_with(['#', ';']))
                else {
                    break;
                };
                line.truncate(line.trim_end().len());
                line.push(' ');
                line.push_str(more.trim());
            }
            let pair = line.split_once('=').ok_or_else(|| line_error(place("")))?;
            self.set(pair.0.trim().to_owned(), pair.1, place(""))?;
        }
        Ok(())
    }

    /// Python's dialect: keys in any case, `=` or `:` after them, remarks after a value. A line that
    /// is indented deeper than a key belongs to the value of that key.
    fn read_python(&mut self, text: &str, file: Option<String>) -> Result<(), InputError> {
        let mut indent_of_key = None;
        for (at, raw) in text.lines().enumerate() {
            let place = |path: &str| Place { file: file.clone(), ..Place::at(at + 1, path) };
            let line = without_remark(raw);
            if line.is_empty() {
                continue;
            }
            let indent = raw.len() - raw.trim_start().len();
            if indent_of_key.is_some_and(|key| indent > key) {
                let last = self.sections.last_mut().and_then(|found| found.settings.last_mut());
                last.into_iter().for_each(|setting| {
                    setting.value.push('\n');
                    setting.value.push_str(line);
                });
                continue;
            }
            if let Some(name) = line.strip_prefix('[').and_then(|name| name.rsplit_once(']')) {
                self.begin(name.0, place(name.0));
                indent_of_key = None;
                continue;
            }
            let pair = line.split_once(['=', ':']).ok_or_else(|| line_error(place("")))?;
            self.set(pair.0.trim().to_lowercase(), pair.1, place(""))?;
            indent_of_key = Some(indent);
        }
        Ok(())
    }

    fn begin(&mut self, name: &str, place: Place) {
        self.sections.push(Section { name: name.into(), place, settings: Vec::new() });
    }

    fn set(&mut self, key: String, value: &str, at: Place) -> Result<(), InputError> {
        let Some(section) = self.sections.last_mut() else {
            return Err(InputError {
                place: at,
                problem: "stands before the first [Section]".into(),
            });
        };
        let place = Place { path: format!("{}.{key}", section.name), ..at };
        section.settings.push(Setting { key, value: value.trim().to_owned(), place });
        Ok(())
    }

    pub(crate) fn has(&self, section: &str) -> bool {
        self.sections.iter().any(|found| found.name == section)
    }

    /// Returns the place where a section first begins.
    pub(crate) fn place_of(&self, section: &str) -> Option<Place> {
        self.sections.iter().find(|found| found.name == section).map(|found| found.place.clone())
    }

    /// Returns the settings of all sections of that name.
    pub(crate) fn settings<'a>(&'a self, section: &'a str) -> impl Iterator<Item = &'a Setting> {
        let sections = self.sections.iter().filter(move |found| found.name == section);
        sections.flat_map(|found| &found.settings)
    }

    /// Returns the last value of a key that holds one value, and nothing if that is empty. The keys of
    /// systemd itself follow other rules.
    pub(crate) fn last<'a>(&'a self, section: &'a str, key: &str) -> Option<&'a Setting> {
        let all: Vec<_> = self.settings(section).filter(|found| found.key == key).collect();
        all.last().copied().filter(|found| !found.value.is_empty())
    }

    /// Returns the values of a key that holds several. An empty value clears the list.
    pub(crate) fn list<'a>(&'a self, section: &'a str, key: &str) -> Vec<&'a Setting> {
        let mut list = Vec::new();
        for setting in self.settings(section).filter(|found| found.key == key) {
            match setting.value.as_str() {
                "" => list.clear(),
                _ => list.push(setting),
            }
        }
        list
    }
}
