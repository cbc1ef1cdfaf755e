//! YAML as JSON, so that a test can change it as a person would.

use std::collections::HashMap;

use saphyr_parser::{Event, Parser, ScalarStyle};
use serde_json::{Map, Value};

/// A list or an object that has begun.
enum Open {
    List(Vec<Value>, usize),
    /// With the key whose value comes next.
    Object(Map<String, Value>, Option<String>, usize),
}

/// Returns the documents of a text. JSON is YAML, too.
pub(super) fn read(text: &str) -> Vec<Value> {
    let (mut open, mut documents) = (Vec::new(), Vec::new());
    let mut anchors: HashMap<usize, Value> = HashMap::new();
    let mut parser = Parser::new_from_str(text);
    while let Some(event) = parser.next_event() {
        let (event, _) = event.unwrap();
        let (value, anchor) = match event {
            Event::SequenceStart(anchor, _) => {
                open.push(Open::List(Vec::new(), anchor));
                continue;
            }
            Event::MappingStart(anchor, _) => {
                open.push(Open::Object(Map::new(), None, anchor));
                continue;
            }
            Event::Scalar(text, style, anchor, tag) => {
                let is_plain = style == ScalarStyle::Plain && tag.is_none();
                (if is_plain { plain(&text) } else { text.as_ref().into() }, anchor)
            }
            Event::Alias(anchor) => (anchors[&anchor].clone(), 0),
            Event::SequenceEnd | Event::MappingEnd => match open.pop().unwrap() {
                Open::List(list, anchor) => (Value::Array(list), anchor),
                Open::Object(map, _, anchor) => (Value::Object(map), anchor),
            },
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd => continue,
        };
        anchors.insert(anchor, value.clone());
        match open.last_mut() {
            None => documents.push(value),
            Some(Open::List(list, _)) => list.push(value),
            Some(Open::Object(_, key @ None, _)) => *key = Some(text_of(&value)),
            Some(Open::Object(map, key, _)) => {
                let key = key.take().unwrap();
                // The object's own value has priority.
                if let Some(merged) = value.as_object().filter(|_| key == "<<") {
                    for (key, value) in merged {
                        map.entry(key).or_insert(value.clone());
                    }
                } else {
                    map.insert(key, value);
                }
            }
        }
    }
    documents
}

fn plain(text: &str) -> Value {
    let is_number = text == "0" || !text.trim_start_matches('-').starts_with(['0', '+']);
    match serde_json::from_str(text) {
        Ok(value @ (Value::Number(_) | Value::Bool(_) | Value::Null)) if is_number => value,
        _ if ["", "~"].contains(&text) => Value::Null,
        _ => text.into(),
    }
}

pub(super) fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Writes the documents as JSON, one after the other.
pub(super) fn write(documents: &[Value]) -> String {
    let all = documents.iter().map(|document| serde_json::to_string_pretty(document).unwrap());
    all.collect::<Vec<_>>().join("\n---\n") + "\n"
}

/// Returns the first object in a tree for which the condition holds.
pub(super) fn find<'a>(
    tree: &'a mut Value,
    is_meant: &dyn Fn(&Map<String, Value>) -> bool,
) -> Option<&'a mut Map<String, Value>> {
    match tree {
        Value::Object(map) => match is_meant(map) {
            true => Some(map),
            false => map.values_mut().find_map(|value| find(value, is_meant)),
        },
        Value::Array(list) => list.iter_mut().find_map(|value| find(value, is_meant)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}
