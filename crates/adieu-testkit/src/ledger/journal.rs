//! Writes facts to a file that survives the process.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::Path;

use super::Fact;

/// A file that the service under test appends facts to.
///
/// Each fact is one line, such as `accepted order 17`, written by one system call. It is in the file
/// when [`Journal::record`] returns, even if the process is killed after that, and several processes
/// can append to one file. A service that is not written in Rust can write such lines as well.
#[derive(Debug)]
pub struct Journal {
    file: File,
}

// === impl Journal ===

impl Journal {
    /// Opens a file to append to, and creates it if it does not exist.
    ///
    /// # Errors
    ///
    /// If it cannot be opened.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        OpenOptions::new().create(true).append(true).open(path).map(|file| Self { file })
    }

    /// Appends a fact. The kind is one word; the id may have spaces, but no line breaks.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn record(&self, fact: Fact, kind: &str, id: impl fmt::Display) -> io::Result<()> {
        // One system call, so that lines do not mix: the file was opened for appending.
        (&self.file).write_all(format!("{fact} {kind} {id}\n").as_bytes())
    }
}

/// Reads all facts. The last line may be incomplete if the process was killed while it wrote.
pub(super) fn read(path: &Path) -> io::Result<Vec<(Fact, String, String)>> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error),
    };
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let facts = whole.lines().map(|line| {
        parse(line).ok_or_else(|| {
            let problem = format!("line is not a fact: {line:?} in {}", path.display());
            io::Error::new(ErrorKind::InvalidData, problem)
        })
    });
    facts.collect()
}

fn parse(line: &str) -> Option<(Fact, String, String)> {
    let (word, rest) = line.split_once(' ')?;
    let (kind, id) = rest.split_once(' ')?;
    let fact = Fact::ALL.into_iter().find(|fact| fact.word() == word)?;
    Some((fact, kind.to_owned(), id.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Ledger;

    #[test]
    fn facts_of_several_writers_are_read_and_an_incomplete_line_is_ignored() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let ledger = Ledger::new();
        assert_eq!(ledger.read(&path).unwrap(), 0, "no file yet");
        let (one, other) = (Journal::open(&path).unwrap(), Journal::open(&path).unwrap());
        for fact in Fact::ALL {
            one.record(fact, "order", "17 of GET /a b").unwrap();
            other.record(fact, "order", 18).unwrap();
        }
        (&other.file).write_all(b"accepted ord").unwrap();
        assert_eq!(ledger.read(&path).unwrap(), 2 * Fact::ALL.len());
        for fact in Fact::ALL {
            assert_eq!(ledger.count(fact, "order"), 2);
        }
        (&other.file).write_all(b"er\n").unwrap();
        let error = ledger.read(&path).unwrap_err();
        assert!(error.to_string().starts_with("line is not a fact: \"accepted order\""), "{error}");
    }
}
