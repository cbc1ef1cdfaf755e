//! The file of a lock: lines of words, and a last line that proves that the file is complete.

use std::collections::BTreeMap;
use std::fmt;

use super::clock::Stamp;
use crate::lock_backend::{Fence, Marker};
use crate::names::Owner;

/// The stored state of a lock.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) fence: u64,
    pub(super) held: Option<(Owner, Stamp)>,
    pub(super) markers: BTreeMap<String, Marker>,
}

const FIRST: &str = "adieu lease 1";
const LAST: &str = "whole";

// === impl Record ===

impl Record {
    /// Parses a record. Returns `None` if the text is not a complete one.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut lines = text.strip_suffix(&format!("{LAST}\n"))?.lines();
        if lines.next()? != FIRST {
            return None;
        }
        let fence = lines.next()?.strip_prefix("fence ")?.parse().ok()?;
        let mut record = Self { fence, ..Self::default() };
        for line in lines {
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                ["held", owner, boot, millis] => {
                    let stamp = Stamp { boot: boot.to_owned(), millis: millis.parse().ok()? };
                    record.held = Some((Owner::stored(&decoded(owner)?), stamp));
                }
                ["marker", fence, name, value] => {
                    let fence = Fence::new(fence.parse().ok()?);
                    let marker = Marker { value: decoded(value)?, fence };
                    record.markers.insert(decoded(name)?, marker);
                }
                _ => return None,
            }
        }
        Some(record)
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { fence, held, markers } = self;
        writeln!(f, "{FIRST}\nfence {fence}")?;
        if let Some((owner, Stamp { boot, millis })) = held {
            writeln!(f, "held {} {boot} {millis}", encoded(owner.as_str()))?;
        }
        for (name, Marker { value, fence }) in markers {
            writeln!(f, "marker {fence} {} {}", encoded(name), encoded(value))?;
        }
        writeln!(f, "{LAST}")
    }
}

/// Encodes a text as a word that can be a file name: other characters than letters, digits, `-` and
/// `_` become `%` and their hexadecimal code.
pub(super) fn encoded(text: &str) -> String {
    let mut word = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => word.push(byte.into()),
            other => word.push_str(&format!("%{other:02x}")),
        }
    }
    word
}

fn decoded(word: &str) -> Option<String> {
    let (mut bytes, mut left) = (Vec::with_capacity(word.len()), word.as_bytes());
    while let Some((&first, rest)) = left.split_first() {
        left = rest;
        if first == b'%' {
            let (digits, rest) = left.split_at_checked(2)?;
            bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
            left = rest;
        } else {
            bytes.push(first);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_record_survives_a_round_trip_and_a_truncated_one_is_refused(
            fence: u64,
            held in prop::option::of((".{1,20}", "[a-f0-9-]{1,36}", any::<u64>())),
            markers in prop::collection::btree_map(".{0,10}", (".{0,20}", any::<u64>()), 0..4),
        ) {
            let held = held.map(|(owner, boot, millis)| {
                (Owner::stored(&owner), Stamp { boot, millis })
            });
            let markers = markers
                .into_iter()
                .map(|(name, (value, fence))| (name, Marker { value, fence: Fence::new(fence) }))
                .collect();
            let record = Record { fence, held, markers };
            let text = record.to_string();
            for cut in (0..text.len()).filter(|cut| text.is_char_boundary(*cut)) {
                prop_assert_eq!(Record::parse(&text[..cut]), None);
            }
            prop_assert_eq!(Record::parse(&text), Some(record));
        }

        #[test]
        fn parsing_never_panics(text in ".{0,200}") {
            let _ = Record::parse(&text);
            let _ = Record::parse(&format!("{FIRST}\nfence 1\n{text}\n{LAST}\n"));
            let _ = decoded(&text);
        }
    }
}
