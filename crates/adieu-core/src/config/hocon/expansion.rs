//! How large a text becomes when its substitutions are replaced, computed before they are.
//!
//! Ten lines that each name the line before ten times stand for ten thousand million values. The
//! parser would build them all, so a text that becomes too large is refused. The size is an upper
//! bound: a value that a later one replaces counts, too.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;

use hocon::parser::AstNode;

use super::limits;
use crate::config::text_file::read_text;

/// The largest size of a text with its substitutions and included files, in bytes and values.
const LARGEST: usize = 64 << 20;

/// Files that include files: real configurations need two or three levels.
const DEEPEST: usize = 8;
const MOST_FILES: usize = 64;

type Key = Vec<String>;

/// A text and the files that it includes.
#[derive(Default)]
pub(super) struct Text {
    /// The values in the order in which they are written.
    values: Vec<Written>,
    files: usize,
}

/// A value that is written at a key. The entries of an object are values of their own.
#[derive(Default)]
struct Written {
    key: Key,
    size: usize,
    substitutes: Vec<Key>,
    /// The environment variable with the first item of each list that is substituted.
    lists: Vec<String>,
}

/// A position in the text.
#[derive(Clone, Copy)]
struct Location<'a> {
    /// The key at which the file is included. A substitution in the file is relative to it.
    root: &'a [String],
    folder: Option<&'a Path>,
    /// The included file; `None` in the text itself.
    file: Option<&'a Path>,
    depth: usize,
}

/// The sizes of the values that have been computed.
#[derive(Default)]
struct Sizes {
    known: HashMap<Key, usize>,
    /// The values that are being computed: each contains the next.
    open: Vec<Key>,
    /// Whether a value contains itself by way of another value.
    is_circular: bool,
}

/// Reads a text and the files that it includes, without replacing anything.
pub(super) fn of(text: &str, folder: Option<&Path>) -> Result<Text, String> {
    let mut all = Text::default();
    all.read(text, &[], Location { root: &[], folder, file: None, depth: 0 })?;
    Ok(all)
}

// === impl Text ===

impl Text {
    fn read(&mut self, text: &str, key: &[String], location: Location<'_>) -> Result<(), String> {
        let failed = |problem: String| match location.file {
            Some(file) => format!("{}: {problem}", file.display()),
            None => problem,
        };
        limits::check(text).map_err(failed)?;
        let tokens = hocon::tokenize(text).map_err(|error| failed(error.to_string()))?;
        let root = hocon::parser::parse_tokens(&tokens);
        let root = root.map_err(|error| failed(error.to_string()))?;
        self.write(&root, key, false, location)
    }

    /// Adds the value that is written at a key, and the values inside it.
    fn write(
        &mut self,
        node: &AstNode,
        key: &[String],
        is_appended: bool,
        location: Location<'_>,
    ) -> Result<(), String> {
        let mut written = Written { key: key.to_vec(), size: 1, ..Written::default() };
        if is_appended {
            written.substitutes.push(key.to_vec());
        }
        let at = self.values.len();
        self.values.push(written);
        self.walk(node, at, location)
    }

    fn walk(&mut self, node: &AstNode, at: usize, location: Location<'_>) -> Result<(), String> {
        match node {
            AstNode::Object { fields, .. } => {
                for field in fields {
                    let key = [self.values[at].key.as_slice(), &field.key].concat();
                    self.write(&field.value, &key, field.append, location)?;
                }
            }
            AstNode::Array { items: nodes, .. } | AstNode::Concat { nodes, .. } => {
                for node in nodes {
                    self.values[at].size += 1;
                    self.walk(node, at, location)?;
                }
            }
            AstNode::Scalar { value, .. } => self.values[at].size += value.raw.len(),
            AstNode::Substitution { segments, list_suffix, .. } => {
                let named: Key = segments.iter().map(|segment| segment.text.clone()).collect();
                let written = &mut self.values[at];
                if *list_suffix {
                    written.lists.push(format!("{}_0", named.join(".")));
                }
                if !location.root.is_empty() {
                    written.substitutes.push([location.root, &named].concat());
                }
                written.substitutes.push(named);
            }
            AstNode::Include { path, is_file, .. } => {
                let key = self.values[at].key.clone();
                self.include(path, *is_file, &key, location)?;
            }
        }
        Ok(())
    }

    /// Reads an included file where the parser will look for it.
    fn include(
        &mut self,
        path: &str,
        is_file: bool,
        key: &[String],
        location: Location<'_>,
    ) -> Result<(), String> {
        let here = Path::new(".");
        let folder = if is_file { here } else { location.folder.unwrap_or(here) };
        let path = folder.join(path);
        let endings: &[&str] = match path.extension() {
            Some(_) => &[""],
            None => &["properties", "json", "conf"],
        };
        for ending in endings {
            let file = if ending.is_empty() { path.clone() } else { path.with_extension(ending) };
            if !file.exists() {
                continue;
            }
            let failed = |problem: String| format!("{}: {problem}", file.display());
            self.files += 1;
            if location.depth >= DEEPEST || self.files > MOST_FILES {
                return Err(failed(format!(
                    "included more than {DEEPEST} deep, or one of more than {MOST_FILES} files"
                )));
            }
            let text = read_text(&file).map_err(|error| failed(error.to_string()))?;
            if file.extension().is_some_and(|ending| ending == "properties") {
                limits::check(&text).map_err(failed)?;
                let size = text.len();
                self.values.push(Written { key: key.to_vec(), size, ..Written::default() });
                continue;
            }
            let (folder, depth) = (file.parent(), location.depth + 1);
            self.read(&text, key, Location { root: key, folder, file: Some(&file), depth })?;
        }
        Ok(())
    }

    /// Returns an error if the text becomes too large.
    pub(super) fn check(&self, vars: &HashMap<String, String>) -> Result<(), String> {
        let mut sizes = Sizes::default();
        let size = self.size(&[], vars, &mut sizes);
        let mut is_larger = size > LARGEST;
        if sizes.is_circular {
            // Such a substitution stands for an earlier value, whose size depends on the order in
            // which the parser replaces. Each substitution multiplies the text at most: products of
            // a given sum are largest for factors of three.
            let count: usize = self.values.iter().map(|value| value.substitutes.len()).sum();
            let factor = 3_usize.saturating_pow(u32::try_from(count / 3 + 1).unwrap_or(u32::MAX));
            is_larger |= size.saturating_mul(factor) > LARGEST;
        }
        if is_larger {
            let most = LARGEST >> 20;
            return Err(format!("with its substitutions, the text is larger than {most} MiB"));
        }
        Ok(())
    }

    /// Returns at most how large the value at a key becomes, or any size above [`LARGEST`].
    fn size(&self, key: &[String], vars: &HashMap<String, String>, sizes: &mut Sizes) -> usize {
        if let Some(size) = sizes.known.get(key) {
            return *size;
        }
        sizes.open.push(key.to_vec());
        let mut size: usize = vars.get(&key.join(".")).map_or(1, String::len);
        for value in &self.values {
            let is_part = value.key.starts_with(key);
            // A substitution at a key above may contain this key.
            if !is_part && !key.starts_with(&value.key) {
                continue;
            }
            let before = size;
            size = size.saturating_add(if is_part { value.size } else { 0 });
            for named in &value.substitutes {
                let added = if named == key {
                    // The value that was written before.
                    before
                } else if sizes.open.contains(named) {
                    sizes.is_circular = true;
                    0
                } else {
                    self.size(named, vars, sizes)
                };
                size = size.saturating_add(added).saturating_add(1);
            }
            if size > LARGEST {
                break;
            }
        }
        sizes.open.pop();
        sizes.known.insert(key.to_vec(), size);
        size
    }

    /// Returns the names that are substituted, and that no value has: the parser takes them from the
    /// environment.
    pub(super) fn variables(&self) -> Vec<String> {
        let is_written = |key: &Key| {
            self.values.iter().any(|value| !key.is_empty() && value.key.starts_with(key))
        };
        let named = self.values.iter().flat_map(|value| &value.substitutes);
        let names = named.filter(|key| !is_written(key)).map(|key| key.join("."));
        let lists = self.values.iter().flat_map(|value| value.lists.iter().cloned());
        let all: BTreeSet<_> = names.chain(lists).collect();
        all.into_iter().collect()
    }
}
