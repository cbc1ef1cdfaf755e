//! A YAML file as a tree whose nodes know their lines, of bounded size.
//!
//! An alias is the node that it names, not a copy of it: no file is larger than it looks.

use std::collections::HashMap;

use saphyr_parser::{Event, Parser, ScalarStyle};

use super::place::{Place, Wrong};
use crate::fit::harmless;

/// No manifest is nested so deeply, nor has so many nodes.
const DEEPEST: usize = 64;
const MOST_NODES: usize = 300_000;

/// How many maps are looked into for one key, by way of merge keys.
const MOST_MERGED: usize = 64;

/// What a file holds: several documents, or none.
pub(crate) struct Tree {
    nodes: Vec<Node>,
    documents: Vec<Id>,
}

/// A node, and how one gets there.
#[derive(Clone)]
pub(crate) struct At<'a> {
    tree: &'a Tree,
    id: Id,
    /// Of the key, where there is one: that is where people look.
    line: usize,
    path: String,
}

type Id = usize;

struct Node {
    line: usize,
    is: Is,
}

enum Is {
    /// `plain` if without quotes, so that it may be something else than a string.
    Scalar {
        text: String,
        plain: bool,
    },
    List(Vec<Id>),
    Map(Map),
}

/// Keys and values by their order, and the places of the keys that are strings.
struct Map {
    pairs: Vec<(Id, Id)>,
    by_key: HashMap<String, usize>,
    merged: Vec<Id>,
}

/// A list or map whose end has not been seen yet.
struct Open {
    id: Id,
    anchor: usize,
    is_map: bool,
    children: Vec<Id>,
}

#[derive(Default)]
struct Builder {
    nodes: Vec<Node>,
    documents: Vec<Id>,
    open: Vec<Open>,
    anchors: HashMap<usize, Id>,
    aliases: usize,
}

// === impl Tree ===

impl Tree {
    pub(crate) fn parse(text: &str) -> Result<Self, Wrong> {
        let mut builder = Builder::default();
        let mut parser = Parser::new_from_str(text);
        while let Some(event) = parser.next_event() {
            let (event, span) = event.map_err(|error| {
                let problem = match error.info() {
                    // The parser looks ahead, and may be the first to see it.
                    "recursion limit exceeded" => too_deep(),
                    info => format!("this is not YAML: {info}"),
                };
                Wrong::at(error.marker().line(), problem)
            })?;
            builder.take(event, span.start.line())?;
        }
        Ok(Self { nodes: builder.nodes, documents: builder.documents })
    }

    /// The documents that are not empty.
    pub(crate) fn documents(&self) -> impl Iterator<Item = At<'_>> {
        let all = self.documents.iter().map(|&id| {
            let line = self.nodes[id].line;
            At { tree: self, id, line, path: String::new() }
        });
        all.filter(|document| !document.is_null())
    }
}

fn too_deep() -> String {
    format!("nested more than {DEEPEST} deep: no manifest is")
}

// === impl Builder ===

impl Builder {
    fn take(&mut self, event: Event<'_>, line: usize) -> Result<(), Wrong> {
        match event {
            Event::Scalar(text, style, anchor, _) => {
                let plain = style == ScalarStyle::Plain;
                let id =
                    self.add(line, Is::Scalar { text: harmless(&text).into_owned(), plain })?;
                self.name(anchor, id);
                self.put(id);
            }
            Event::SequenceStart(anchor, _) => self.begin(line, anchor, false)?,
            Event::MappingStart(anchor, _) => self.begin(line, anchor, true)?,
            Event::SequenceEnd | Event::MappingEnd => self.end()?,
            Event::Alias(anchor) => match self.anchors.get(&anchor) {
                Some(&id) => {
                    self.aliases += 1;
                    self.put(id);
                }
                // It is known only when it has ended.
                None => {
                    let problem = "an alias that refers to what it is in: write it out";
                    return Err(Wrong::at(line, problem));
                }
            },
            Event::DocumentEnd => self.anchors.clear(),
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentStart(_) => {}
        }
        Ok(())
    }

    fn add(&mut self, line: usize, is: Is) -> Result<Id, Wrong> {
        if self.nodes.len() + self.aliases >= MOST_NODES {
            let problem = format!("more than {MOST_NODES} values: give the manifests one by one");
            return Err(Wrong::at(line, problem));
        }
        self.nodes.push(Node { line, is });
        Ok(self.nodes.len() - 1)
    }

    fn name(&mut self, anchor: usize, id: Id) {
        // Zero is no anchor.
        if anchor != 0 {
            self.anchors.insert(anchor, id);
        }
    }

    fn put(&mut self, id: Id) {
        match self.open.last_mut() {
            Some(parent) => parent.children.push(id),
            None => self.documents.push(id),
        }
    }

    fn begin(&mut self, line: usize, anchor: usize, is_map: bool) -> Result<(), Wrong> {
        if self.open.len() >= DEEPEST {
            return Err(Wrong::at(line, too_deep()));
        }
        let id = self.add(line, Is::List(Vec::new()))?;
        self.open.push(Open { id, anchor, is_map, children: Vec::new() });
        Ok(())
    }

    fn end(&mut self) -> Result<(), Wrong> {
        let Some(Open { id, anchor, is_map, children }) = self.open.pop() else { return Ok(()) };
        self.nodes[id].is = if is_map { Is::Map(self.map(&children)?) } else { Is::List(children) };
        self.name(anchor, id);
        self.put(id);
        Ok(())
    }

    fn map(&self, children: &[Id]) -> Result<Map, Wrong> {
        let pairs: Vec<_> = children.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
        let (mut by_key, mut merged) = (HashMap::new(), Vec::new());
        for (at, &(key, value)) in pairs.iter().enumerate() {
            let Node { line, is: Is::Scalar { text, .. } } = &self.nodes[key] else { continue };
            if text == "<<" {
                match &self.nodes[value].is {
                    Is::List(maps) => merged.extend(maps),
                    Is::Map(_) | Is::Scalar { .. } => merged.push(value),
                }
            } else if let Some(first) = by_key.insert(text.clone(), at) {
                let first = self.nodes[pairs[first].0].line;
                let problem = format!("{text} is given twice, first in line {first}: keep one");
                return Err(Wrong::at(*line, problem));
            }
        }
        Ok(Map { pairs, by_key, merged })
    }
}

// === impl At ===

impl<'a> At<'a> {
    fn node(&self) -> &'a Node {
        &self.tree.nodes[self.id]
    }

    fn step(&self, line: Id, id: Id, path: String) -> Self {
        Self { tree: self.tree, id, line: self.tree.nodes[line].line, path }
    }

    pub(crate) fn place(&self) -> Place {
        Place { line: self.line, path: self.path.clone() }
    }

    pub(crate) fn wrong(&self, problem: impl Into<String>) -> Wrong {
        Wrong { place: self.place(), problem: problem.into() }
    }

    /// What `key` is set to; nothing if that is null.
    pub(crate) fn get(&self, key: &str) -> Option<Self> {
        let (at, id) = self.tree.look_up(self.id, key)?;
        let path = if self.path.is_empty() { key.into() } else { format!("{}.{key}", self.path) };
        Some(self.step(at, id, path)).filter(|found| !found.is_null())
    }

    /// The same, through several maps.
    pub(crate) fn find(&self, keys: &[&str]) -> Option<Self> {
        keys.iter().try_fold(self.clone(), |at, key| at.get(key))
    }

    /// The items of a list; none if it is something else.
    pub(crate) fn items(&self) -> Vec<Self> {
        let Is::List(items) = &self.node().is else { return Vec::new() };
        let item = |(at, &id)| self.step(id, id, format!("{}[{at}]", self.path));
        items.iter().enumerate().map(item).collect()
    }

    /// The entries of a map whose keys are strings; none if it is something else.
    pub(crate) fn entries(&self) -> Vec<(&'a str, Self)> {
        let Is::Map(Map { pairs, .. }) = &self.node().is else { return Vec::new() };
        let entry = |&(key, value): &(Id, Id)| match &self.tree.nodes[key].is {
            Is::Scalar { text, .. } => {
                let path = format!("{}.{text}", self.path);
                Some((text.as_str(), self.step(key, value, path.trim_start_matches('.').into())))
            }
            Is::List(_) | Is::Map(_) => None,
        };
        pairs.iter().filter_map(entry).collect()
    }

    pub(crate) fn is_map(&self) -> bool {
        matches!(self.node().is, Is::Map(_))
    }

    fn is_null(&self) -> bool {
        let Is::Scalar { text, plain: true } = &self.node().is else { return false };
        ["", "~", "null", "Null", "NULL"].contains(&text.as_str())
    }

    /// A scalar, however it is written.
    pub(crate) fn text(&self) -> Option<&'a str> {
        match &self.node().is {
            Is::Scalar { text, .. } => Some(text),
            Is::List(_) | Is::Map(_) => None,
        }
    }

    /// A whole number that is not negative.
    pub(crate) fn number(&self) -> Result<u64, Wrong> {
        let Is::Scalar { text, plain: true } = &self.node().is else {
            return Err(self.wrong("must be a whole number without quotes, such as 30"));
        };
        let wrong = || self.wrong(format!("must be a whole number such as 30, not {text}"));
        text.parse().map_err(|_| wrong())
    }
}

impl Tree {
    /// A key of a map and what it is set to, by itself or by what is merged into it.
    fn look_up(&self, id: Id, wanted: &str) -> Option<(Id, Id)> {
        let mut open = vec![id];
        for _ in 0..MOST_MERGED {
            let Is::Map(map) = &self.nodes[open.pop()?].is else { continue };
            if let Some(&at) = map.by_key.get(wanted) {
                return map.pairs.get(at).copied();
            }
            // The first is looked into first, with all that is merged into it.
            open.extend(map.merged.iter().take(MOST_MERGED).rev());
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(text: &str) -> (usize, String) {
        let wrong = Tree::parse(text).err().unwrap();
        (wrong.place.line, wrong.problem)
    }

    #[test]
    fn nodes_know_their_lines_and_paths() {
        let tree = Tree::parse("# first\na:\n  - b: 7\n---\nc: 'x'\n---\n").unwrap();
        let documents: Vec<_> = tree.documents().collect();
        assert_eq!(documents.len(), 2);
        let b = documents[0].get("a").unwrap().items()[0].get("b").unwrap();
        assert_eq!((b.place().line, b.place().path.as_str()), (3, "a[0].b"));
        assert_eq!(b.number().unwrap(), 7);
        assert!(documents[1].get("c").unwrap().number().is_err());
    }

    #[test]
    fn aliases_and_merge_keys_are_followed() {
        let tree = Tree::parse("x: &x {a: 1, b: 2}\ny:\n  <<: *x\n  b: 3\nz: {<<: [*x]}").unwrap();
        let document = tree.documents().next().unwrap();
        let number = |keys: &[&str]| document.find(keys).unwrap().number().unwrap();
        assert_eq!((number(&["y", "a"]), number(&["y", "b"]), number(&["z", "b"])), (1, 3, 2));
        // The first of several wins, with all that is merged into it.
        let text = "a: &a {k: 1}\nb: &b {<<: *a}\nc: &c {k: 2}\nd: {<<: [*b, *c]}";
        let tree = Tree::parse(text).unwrap();
        let found = tree.documents().next().unwrap().find(&["d", "k"]).unwrap();
        assert_eq!((found.number().unwrap(), found.place().line), (1, 1));
    }

    #[test]
    fn what_is_too_large_too_deep_or_twice_is_refused() {
        assert!(problem(&"[".repeat(100_000)).1.contains("64 deep"));
        assert!(problem(&"- ".repeat(100_000)).1.contains("64 deep"));
        assert!(problem(&"- 1\n".repeat(MOST_NODES + 1)).1.contains("more than"));
        let twice = (3, "a is given twice, first in line 1: keep one".to_owned());
        assert_eq!(problem("a: 1\nb: 2\na: 3"), twice);
        assert_eq!(problem("&a [*a]").0, 1);
        // Ten to the ninth, if it were copied.
        let mut bomb = String::from("a0: &a0 [1]\n");
        for n in 1..10 {
            let before = format!("*a{},", n - 1).repeat(10);
            bomb += &format!("a{n}: &a{n} [{before}]\n");
        }
        assert!(Tree::parse(&bomb).unwrap().nodes.len() < 1_000);
        let merges = bomb.replace("[1]", "{a: 1}").replace("[*", "{<<: [*").replace(",]", "]}");
        let merges = Tree::parse(&merges).unwrap();
        let last = merges.documents().next().unwrap().get("a9").unwrap();
        assert!(last.get("absent").is_none());
    }
}
