//! Files of sections and settings: units of systemd, quadlets, configurations of supervisord.

use std::path::Path;

use super::place::{Place, Wrong, printable};

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

/// A key and what it is set to.
#[derive(Clone)]
pub(crate) struct Setting {
    pub(crate) key: String,
    pub(crate) value: String,
    pub(crate) place: Place,
}

/// Whether a text has sections: its first line that says anything names one.
pub(crate) fn is_one(text: &str) -> bool {
    let first = text.lines().map(str::trim).find(|line| !is_remark(line));
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || "-:_.".contains(c);
    first.is_some_and(|line| {
        section(line).is_some_and(|name| !name.is_empty() && name.chars().all(is_of_name))
    })
}

/// Reads the sections; `file` names it if it is not the manifest itself.
pub(crate) fn read(text: &str, file: Option<&Path>) -> Result<Ini, Wrong> {
    let file = file.map(|file| file.display().to_string());
    let text = printable(text);
    let mut sections: Vec<Section> = Vec::new();
    let is_python = is_python(&text);
    let mut lines = text.lines().enumerate().peekable();
    while let Some((at, line)) = lines.next() {
        let place = |path: String| Place { file: file.clone(), line: at + 1, path };
        let mut line = if is_python { without_remark(line) } else { line.trim() }.to_owned();
        if is_remark(&line) {
            continue;
        }
        if let Some(name) = section(&line) {
            let place = place(name.into());
            sections.push(Section { name: name.into(), place, settings: Vec::new() });
            continue;
        }
        while line.ends_with('\\') && !is_python {
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
        let wrong = |problem: &str| Wrong { place: place(String::new()), problem: problem.into() };
        let separators: &[char] = if is_python { &['=', ':'] } else { &['='] };
        let Some((key, value)) = line.split_once(separators) else {
            return Err(wrong("must be KEY=VALUE, a [Section], or a # remark"));
        };
        let Some(section) = sections.last_mut() else {
            return Err(wrong("stands before the first [Section]"));
        };
        let (key, mut value) = (key.trim().to_owned(), value.trim().to_owned());
        let key = if is_python { key.to_lowercase() } else { key };
        while let Some((_, more)) = lines.next_if(|(_, line)| is_python && continues(line)) {
            value.push('\n');
            value.push_str(without_remark(more));
        }
        let place = place(format!("{}.{key}", section.name));
        section.settings.push(Setting { key, value, place });
    }
    Ok(Ini { sections })
}

/// Whether a file is one of supervisord, which Python reads: keys in any case, `=` or `:` after them,
/// remarks after a value, and values over several lines.
fn is_python(text: &str) -> bool {
    let sections = ["[program:", "[supervisord]", "[fcgi-program:", "[eventlistener:"];
    text.lines().any(|line| sections.iter().any(|section| line.starts_with(section)))
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

/// In Python's dialect, an indented line belongs to the value before it.
fn continues(line: &str) -> bool {
    line.starts_with([' ', '\t']) && !is_remark(line.trim())
}

fn is_remark(line: &str) -> bool {
    line.is_empty() || line.starts_with(['#', ';'])
}

fn section(line: &str) -> Option<&str> {
    line.strip_prefix('[')?.strip_suffix(']')
}

// === impl Ini ===

impl Ini {
    pub(crate) fn has(&self, section: &str) -> bool {
        self.sections.iter().any(|found| found.name == section)
    }

    /// Where a section first begins.
    pub(crate) fn place_of(&self, section: &str) -> Option<Place> {
        self.sections.iter().find(|found| found.name == section).map(|found| found.place.clone())
    }

    /// The settings of all sections of that name.
    pub(crate) fn settings<'a>(&'a self, section: &'a str) -> impl Iterator<Item = &'a Setting> {
        let sections = self.sections.iter().filter(move |found| found.name == section);
        sections.flat_map(|found| &found.settings)
    }

    /// The last value of a setting that holds one. An empty one takes back what was set before.
    pub(crate) fn last<'a>(&'a self, section: &'a str, key: &str) -> Option<&'a Setting> {
        let all: Vec<_> = self.settings(section).filter(|found| found.key == key).collect();
        all.last().copied().filter(|found| !found.value.is_empty())
    }

    /// The values of a setting that holds several. An empty one takes back those before it.
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
