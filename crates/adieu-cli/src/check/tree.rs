//! A manifest of any format as a tree of bounded size. Each node has its line.
//!
//! An alias of YAML is the node that it names, not a copy of it: no file is larger than it looks.

use std::collections::HashMap;

use super::place::{InputError, Place, printable};

/// No manifest is nested more deeply, nor has more nodes.
pub(crate) const DEEPEST: usize = 64;
const MOST_NODES: usize = 300_000;

/// How many maps are searched for one key, by way of merge keys.
const MOST_MERGED: usize = 64;

/// The documents of a file.
pub(crate) struct Tree {
    nodes: Vec<StoredNode>,
    documents: Vec<Id>,
    merges: HashMap<Id, Merge>,
    /// The name of the file, if it is not the manifest itself.
    file: Option<String>,
}

/// A node of a tree, and its path.
#[derive(Clone)]
pub(crate) struct Node<'a> {
    tree: &'a Tree,
    id: Id,
    /// The line of the key, if there is one.
    line: usize,
    path: String,
}

/// How a value is merged with the values of other files, if not in the usual way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Merge {
    /// The key is removed: `!reset`.
    Reset,
    /// The value replaces the others: `!override`.
    Override,
}

/// The nodes of a tree that is being built.
#[derive(Default)]
pub(crate) struct Nodes {
    nodes: Vec<StoredNode>,
    merges: HashMap<Id, Merge>,
    /// References count like nodes: each can be visited.
    pub(crate) aliases: usize,
}

pub(crate) type Id = usize;

struct StoredNode {
    line: usize,
    value: NodeValue,
}

enum NodeValue {
    /// `plain` if without quotes, so that it may be something else than a string.
    Scalar {
        text: String,
        plain: bool,
    },
    /// A value that the tool that renders the file replaces.
    Expression,
    List(Vec<Id>),
    Map(Map),
}

/// Keys and values by their order, and the places of the keys that are strings.
struct Map {
    pairs: Vec<(Id, Id)>,
    by_key: HashMap<String, usize>,
    merged: Vec<Id>,
}

// === impl Nodes ===

impl Nodes {
    pub(crate) fn scalar(
        &mut self,
        line: usize,
        text: &str,
        plain: bool,
    ) -> Result<Id, InputError> {
        self.add(line, NodeValue::Scalar { text: printable(text), plain })
    }

    pub(crate) fn expression(&mut self, line: usize) -> Result<Id, InputError> {
        self.add(line, NodeValue::Expression)
    }

    pub(crate) fn list(&mut self, line: usize, items: Vec<Id>) -> Result<Id, InputError> {
        self.add(line, NodeValue::List(items))
    }

    /// Pairs of keys and values. A key that is given twice is refused.
    pub(crate) fn map(&mut self, line: usize, pairs: Vec<(Id, Id)>) -> Result<Id, InputError> {
        let id = self.list(line, Vec::new())?;
        self.fill_map(id, pairs)?;
        Ok(id)
    }

    /// Makes a list or a map of a node that was reserved with [`Nodes::list`].
    pub(crate) fn fill_list(&mut self, id: Id, items: Vec<Id>) {
        self.nodes[id].value = NodeValue::List(items);
    }

    pub(crate) fn fill_map(&mut self, id: Id, pairs: Vec<(Id, Id)>) -> Result<(), InputError> {
        let (mut by_key, mut merged) = (HashMap::new(), Vec::new());
        for (at, &(key, value)) in pairs.iter().enumerate() {
            let StoredNode { line, value: NodeValue::Scalar { text, .. } } = &self.nodes[key]
            else {
                continue;
            };
            if text == "<<" {
                match &self.nodes[value].value {
                    NodeValue::List(maps) => merged.extend(maps),
                    NodeValue::Map(_) | NodeValue::Scalar { .. } | NodeValue::Expression => {
                        merged.push(value)
                    }
                }
            } else if let Some(first) = by_key.insert(text.clone(), at) {
                let first = self.nodes[pairs[first].0].line;
                let problem = format!("{text} is given twice, first in line {first}: keep one");
                return Err(InputError::at(*line, problem));
            }
        }
        self.nodes[id].value = NodeValue::Map(Map { pairs, by_key, merged });
        Ok(())
    }

    pub(crate) fn set_merge(&mut self, id: Id, merge: Option<Merge>) {
        self.merges.extend(merge.map(|merge| (id, merge)));
    }

    fn add(&mut self, line: usize, value: NodeValue) -> Result<Id, InputError> {
        if self.nodes.len() + self.aliases >= MOST_NODES {
            let problem = format!("more than {MOST_NODES} values: give the manifests one by one");
            return Err(InputError::at(line, problem));
        }
        self.nodes.push(StoredNode { line, value });
        Ok(self.nodes.len() - 1)
    }

    pub(crate) fn into_tree(self, documents: Vec<Id>) -> Tree {
        Tree { nodes: self.nodes, documents, merges: self.merges, file: None }
    }
}

// === impl Tree ===

impl Tree {
    /// Returns the tree of a file that lies beside the manifest.
    pub(crate) fn of_file(self, name: String) -> Self {
        Self { file: Some(name), ..self }
    }

    /// Returns the documents that are not empty.
    pub(crate) fn documents(&self) -> impl Iterator<Item = Node<'_>> {
        let all = self.documents.iter().map(|&id| {
            let line = self.nodes[id].line;
            Node { tree: self, id, line, path: String::new() }
        });
        all.filter(|document| !document.is_null())
    }

    /// A map, and all that are merged into it, in the order in which they count.
    fn merged(&self, id: Id) -> Vec<&Map> {
        let (mut open, mut maps) = (vec![id], Vec::new());
        while let Some(id) = open.pop().filter(|_| maps.len() < MOST_MERGED) {
            let NodeValue::Map(map) = &self.nodes[id].value else { continue };
            maps.push(map);
            // The first is searched first, with all that is merged into it.
            open.extend(map.merged.iter().take(MOST_MERGED).rev());
        }
        maps
    }

    /// Returns a key of a map and its value.
    fn pair(&self, id: Id, key: &str) -> Option<(Id, Id)> {
        let of = |map: &Map| map.by_key.get(key).map(|&at| map.pairs[at]);
        match &self.nodes[id].value {
            // Almost every map. It needs no search through merged maps.
            NodeValue::Map(map) if map.merged.is_empty() => of(map),
            NodeValue::Map(_) => self.merged(id).into_iter().find_map(of),
            NodeValue::List(_) | NodeValue::Scalar { .. } | NodeValue::Expression => None,
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }
}

/// Returns whether a number has a leading zero, with which YAML 1.1 and the options of docker read
/// it as octal.
pub(crate) fn is_octal(text: &str) -> bool {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    digits.len() > 1 && digits.starts_with('0') && digits.chars().all(|c| c.is_ascii_digit())
}

/// Returns the problem of such a number.
pub(crate) fn octal(text: &str) -> String {
    let plain = text.trim_start_matches('0');
    let plain = if plain.is_empty() { "0" } else { plain };
    format!("{text} begins with a zero, which makes it octal: write {plain}")
}

pub(crate) fn too_deep() -> String {
    format!("nested more than {DEEPEST} deep: no manifest is")
}

// === impl Node ===

impl<'a> Node<'a> {
    fn node(&self) -> &'a StoredNode {
        &self.tree.nodes[self.id]
    }

    fn step(&self, line: Id, id: Id, path: String) -> Self {
        Self { tree: self.tree, id, line: self.tree.nodes[line].line, path }
    }

    pub(crate) fn place(&self) -> Place {
        let file = self.tree.file.clone();
        Place { file, ..Place::at(self.line, self.path.clone()) }
    }

    pub(crate) fn error(&self, problem: impl Into<String>) -> InputError {
        InputError { place: self.place(), problem: problem.into() }
    }

    /// Returns the value of `key`; `None` for null.
    pub(crate) fn get(&self, key: &str) -> Option<Self> {
        self.entry(key).filter(|found| !found.is_null())
    }

    /// Returns the value of `key`, which may be null.
    pub(crate) fn entry(&self, key: &str) -> Option<Self> {
        let (at, id) = self.tree.pair(self.id, key)?;
        let path = if self.path.is_empty() { key.into() } else { format!("{}.{key}", self.path) };
        Some(self.step(at, id, path))
    }

    /// Returns how it is merged with the values of other files, if not in the usual way.
    pub(crate) fn merge(&self) -> Option<Merge> {
        self.tree.merges.get(&self.id).copied()
    }

    /// Returns how many values of the tree that it is in are merged in an unusual way.
    pub(crate) fn merges_of_tree(&self) -> usize {
        self.tree.merges.len()
    }

    /// The same, through several maps.
    pub(crate) fn find(&self, keys: &[&str]) -> Option<Self> {
        keys.iter().try_fold(self.clone(), |at, key| at.get(key))
    }

    /// Returns the items of a list; none if it is something else.
    pub(crate) fn items(&self) -> Vec<Self> {
        let NodeValue::List(items) = &self.node().value else { return Vec::new() };
        let item = |(at, &id)| self.step(id, id, format!("{}[{at}]", self.path));
        items.iter().enumerate().map(item).collect()
    }

    /// Returns the entries of a map whose keys are strings, and the entries that are merged into
    /// it; none if it is not a map.
    pub(crate) fn entries(&self) -> Vec<(&'a str, Self)> {
        let mut entries: Vec<(&'a str, Self)> = Vec::new();
        let mut seen = std::collections::HashSet::new();
        for map in self.tree.merged(self.id) {
            for &(key, value) in &map.pairs {
                let NodeValue::Scalar { text, .. } = &self.tree.nodes[key].value else { continue };
                if text != "<<" && seen.insert(text.as_str()) {
                    let path = format!("{}.{text}", self.path);
                    let path = path.trim_start_matches('.').into();
                    entries.push((text, self.step(key, value, path)));
                }
            }
        }
        entries
    }

    pub(crate) fn is_map(&self) -> bool {
        matches!(self.node().value, NodeValue::Map(_))
    }

    /// Returns whether the tool that renders the file replaces its value.
    pub(crate) fn is_expression(&self) -> bool {
        matches!(self.node().value, NodeValue::Expression)
    }

    /// Returns whether it is a number or a truth value, which typed schemas refuse as a text.
    pub(crate) fn is_typed(&self) -> bool {
        let NodeValue::Scalar { text, plain: true } = &self.node().value else { return false };
        let is_number = text.parse::<f64>().is_ok() && text.contains(|c: char| c.is_ascii_digit());
        is_number || ["true", "false", "True", "False"].contains(&text.as_str())
    }

    /// Returns whether it is a number with a leading zero, which is octal for some readers of YAML.
    pub(crate) fn is_octal(&self) -> bool {
        let NodeValue::Scalar { text, plain: true } = &self.node().value else { return false };
        is_octal(text)
    }

    pub(crate) fn is_null(&self) -> bool {
        let NodeValue::Scalar { text, plain: true } = &self.node().value else { return false };
        ["", "~", "null", "Null", "NULL"].contains(&text.as_str())
    }

    /// Returns the text of a scalar of any type.
    pub(crate) fn text(&self) -> Option<&'a str> {
        match &self.node().value {
            NodeValue::Scalar { text, .. } => Some(text),
            NodeValue::Expression | NodeValue::List(_) | NodeValue::Map(_) => None,
        }
    }

    /// Returns the scalar that `key` is set to.
    pub(crate) fn text_of(&self, key: &str) -> Option<&'a str> {
        self.get(key)?.text()
    }

    /// Returns a scalar, or a list of scalars. Other values are `None`.
    pub(crate) fn texts(&self) -> Vec<Option<&'a str>> {
        match &self.node().value {
            NodeValue::Scalar { text, .. } => vec![Some(text)],
            NodeValue::List(_) => self.items().iter().map(Self::text).collect(),
            NodeValue::Expression | NodeValue::Map(_) => vec![None],
        }
    }

    /// A whole number that is not negative.
    pub(crate) fn number(&self) -> Result<u64, InputError> {
        let NodeValue::Scalar { text, plain: true } = &self.node().value else {
            return Err(self.error("must be a whole number without quotes, such as 30"));
        };
        if is_octal(text) {
            return Err(self.error(octal(text)));
        }
        let wrong = || self.error(format!("must be a whole number such as 30, not {text}"));
        let hexadecimal = text.strip_prefix("0x").map(|digits| u64::from_str_radix(digits, 16));
        hexadecimal.unwrap_or_else(|| text.parse()).map_err(|_| wrong())
    }
}
