//! YAML, and with it JSON, as a tree.

use std::collections::HashMap;

use saphyr_parser::{Event, Parser, ScalarStyle, Tag};

use super::place::InputError;
use super::tree::{DEEPEST, Id, Merge, Nodes, Tree, too_deep};

/// A list or map whose end has not been seen yet.
struct Open {
    id: Id,
    anchor: usize,
    is_map: bool,
    children: Vec<Id>,
}

#[derive(Default)]
struct Builder {
    nodes: Nodes,
    documents: Vec<Id>,
    open: Vec<Open>,
    anchors: HashMap<usize, Id>,
}

pub(crate) fn parse(text: &str) -> Result<Tree, InputError> {
    refuse_odd_breaks(text)?;
    let mut builder = Builder::default();
    let mut parser = Parser::new_from_str(text);
    while let Some(event) = parser.next_event() {
        let (event, span) = event.map_err(|error| {
            let problem = match error.info() {
                // The parser reads ahead, and may be the first to see it.
                "recursion limit exceeded" => too_deep(),
                info => format!("this is not YAML: {info}"),
            };
            InputError::at(error.marker().line(), problem)
        })?;
        builder.take(event, span.start.line())?;
    }
    Ok(builder.nodes.into_tree(builder.documents))
}

/// Refuses the characters that end a line in YAML 1.1 and not in YAML 1.2: with them, tools disagree
/// about which keys a file has.
fn refuse_odd_breaks(text: &str) -> Result<(), InputError> {
    let is_odd = |c: char| matches!(c, '\u{85}' | '\u{2028}' | '\u{2029}');
    let Some((at, odd)) = text.char_indices().find(|(_, c)| is_odd(*c)) else { return Ok(()) };
    let line = text[..at].matches('\n').count() + 1;
    let code = u32::from(odd);
    let problem = format!("U+{code:04X} ends a line for some readers of YAML: leave it out");
    Err(InputError::at(line, problem))
}

/// Returns the rule that a tag of compose sets.
fn merge(tag: Option<&Tag>) -> Option<Merge> {
    let tag = tag.filter(|tag| !tag.is_yaml_core_schema())?;
    match tag.suffix.trim_start_matches('!') {
        "reset" => Some(Merge::Reset),
        "override" => Some(Merge::Override),
        _ => None,
    }
}

// === impl Builder ===

impl Builder {
    fn take(&mut self, event: Event<'_>, line: usize) -> Result<(), InputError> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let merge = merge(tag.as_deref());
                let id = match tag.as_deref() {
                    // The tool that defines the tag replaces the value.
                    Some(tag) if !tag.is_yaml_core_schema() && merge.is_none() => {
                        self.nodes.expression(line)?
                    }
                    Some(tag) if tag.is_yaml_core_schema() => {
                        self.nodes.scalar(line, &text, tag.suffix != "str")?
                    }
                    Some(_) | None => {
                        self.nodes.scalar(line, &text, style == ScalarStyle::Plain)?
                    }
                };
                self.nodes.set_merge(id, merge);
                self.name(anchor, id);
                self.put(id);
            }
            Event::SequenceStart(anchor, tag) => self.begin(line, anchor, false, tag.as_deref())?,
            Event::MappingStart(anchor, tag) => self.begin(line, anchor, true, tag.as_deref())?,
            Event::SequenceEnd | Event::MappingEnd => self.end()?,
            Event::Alias(anchor) => match self.anchors.get(&anchor) {
                Some(&id) => {
                    self.nodes.aliases += 1;
                    self.put(id);
                }
                // It is known only when it has ended.
                None => {
                    let problem = "an alias that refers to what it is in: write it out";
                    return Err(InputError::at(line, problem));
                }
            },
            Event::DocumentEnd => self.anchors.clear(),
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentStart(_) => {}
        }
        Ok(())
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

    fn begin(
        &mut self,
        line: usize,
        anchor: usize,
        is_map: bool,
        tag: Option<&Tag>,
    ) -> Result<(), InputError> {
        if self.open.len() >= DEEPEST {
            return Err(InputError::at(line, too_deep()));
        }
        let id = self.nodes.list(line, Vec::new())?;
        self.nodes.set_merge(id, merge(tag));
        self.open.push(Open { id, anchor, is_map, children: Vec::new() });
        Ok(())
    }

    fn end(&mut self) -> Result<(), InputError> {
        let Some(Open { id, anchor, is_map, children }) = self.open.pop() else { return Ok(()) };
        if is_map {
            let pairs = children.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
            self.nodes.fill_map(id, pairs)?;
        } else {
            self.nodes.fill_list(id, children);
        }
        self.name(anchor, id);
        self.put(id);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(text: &str) -> (usize, String) {
        let wrong = parse(text).err().unwrap();
        (wrong.place.line, wrong.problem)
    }

    #[test]
    fn nodes_know_their_lines_and_paths() {
        let tree = parse("# first\na:\n  - b: 7\n---\nc: 'x'\n---\n").unwrap();
        let documents: Vec<_> = tree.documents().collect();
        assert_eq!(documents.len(), 2);
        let b = documents[0].get("a").unwrap().items()[0].get("b").unwrap();
        assert_eq!((b.place().line, b.place().path.as_str()), (3, "a[0].b"));
        assert_eq!(b.number().unwrap(), 7);
        assert!(documents[1].get("c").unwrap().number().is_err());
    }

    #[test]
    fn aliases_and_merge_keys_are_followed() {
        let tree = parse("x: &x {a: 1, b: 2}\ny:\n  <<: *x\n  b: 3\nz: {<<: [*x]}").unwrap();
        let document = tree.documents().next().unwrap();
        let number = |keys: &[&str]| document.find(keys).unwrap().number().unwrap();
        assert_eq!((number(&["y", "a"]), number(&["y", "b"]), number(&["z", "b"])), (1, 3, 2));
        // The first of several wins, with all that is merged into it.
        let text = "a: &a {k: 1}\nb: &b {<<: *a}\nc: &c {k: 2}\nd: {<<: [*b, *c]}";
        let tree = parse(text).unwrap();
        let found = tree.documents().next().unwrap().find(&["d", "k"]).unwrap();
        assert_eq!((found.number().unwrap(), found.place().line), (1, 1));
        // All entries, each once, with the nearest value.
        let text = "a: &a {k: 1, m: 5}\nb: {<<: *a, k: 2}";
        let tree = parse(text).unwrap();
        let entries = tree.documents().next().unwrap().get("b").unwrap().entries();
        let entries: Vec<_> = entries.iter().map(|(key, at)| (*key, at.text().unwrap())).collect();
        assert_eq!(entries, [("k", "2"), ("m", "5")]);
    }

    #[test]
    fn large_deep_and_repeated_input_is_refused() {
        assert!(problem(&"[".repeat(100_000)).1.contains("64 deep"));
        assert!(problem(&"- ".repeat(100_000)).1.contains("64 deep"));
        assert!(problem(&"- 1\n".repeat(300_001)).1.contains("more than"));
        let twice = (3, "a is given twice, first in line 1: keep one".to_owned());
        assert_eq!(problem("a: 1\nb: 2\na: 3"), twice);
        assert_eq!(problem("&a [*a]").0, 1);
        // Ten to the ninth, if it were copied.
        let mut bomb = String::from("a0: &a0 [1]\n");
        for n in 1..10 {
            let before = format!("*a{},", n - 1).repeat(10);
            bomb += &format!("a{n}: &a{n} [{before}]\n");
        }
        assert!(parse(&bomb).unwrap().len() < 1_000);
        let merges = bomb.replace("[1]", "{a: 1}").replace("[*", "{<<: [*").replace(",]", "]}");
        let merges = parse(&merges).unwrap();
        let last = merges.documents().next().unwrap().get("a9").unwrap();
        assert!(last.get("absent").is_none());
    }
}
