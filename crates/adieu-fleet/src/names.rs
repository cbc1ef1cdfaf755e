//! What is locked, and by whom: names that every backend can store.

use std::fmt;
use std::sync::Arc;

/// What is locked.
///
/// A key is 1 to 200 bytes long and has no braces, spaces or control characters, so that it can be
/// a part of a file name, of a Redis key with a hash tag, and of a log line.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(Arc<str>);

/// Who holds a lock: a replica, by a name that people can find it by.
///
/// Two replicas of the same name do no harm: a lease is told apart by its fence, too.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Owner(Arc<str>);

/// Why something is not a name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no name for {what}: {problem}")]
pub struct NameError {
    what: &'static str,
    text: String,
    problem: &'static str,
}

const LONGEST: usize = 200;

// === impl Key ===

impl Key {
    /// A key of this name.
    ///
    /// # Errors
    ///
    /// If it is empty, too long, or has braces, spaces or control characters.
    pub fn new(text: impl AsRef<str>) -> Result<Self, NameError> {
        checked("a lock", text.as_ref()).map(Self)
    }

    /// The name itself.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

// === impl Owner ===

impl Owner {
    /// An owner of this name.
    ///
    /// # Errors
    ///
    /// As [`Key::new`].
    pub fn new(text: impl AsRef<str>) -> Result<Self, NameError> {
        checked("an owner", text.as_ref()).map(Self)
    }

    /// This process: the host's name, the process's id, and something random, because in
    /// containers both of these tend to be the same everywhere.
    #[must_use]
    pub fn this_process() -> Self {
        let host = std::env::var("HOSTNAME")
            .or_else(|_| std::fs::read_to_string("/proc/sys/kernel/hostname"))
            .unwrap_or_default();
        let host: String =
            host.trim().chars().filter(|c| is_allowed(*c)).take(LONGEST / 4).collect();
        let host = if host.is_empty() { "host" } else { &host };
        Self(format!("{host}-{}-{:08x}", std::process::id(), fastrand::u32(..)).into())
    }

    /// The name itself.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The same owner while it works on something: `one (indexes)`. No name has a space in it, so
    /// the two parts can be told apart.
    pub(crate) fn working_on(&self, work: &str) -> Self {
        Self(format!("{self} ({work})").into())
    }

    /// What the owner works on, if that is known.
    pub(crate) fn work(&self) -> Option<&str> {
        self.0.split_once(" (")?.1.strip_suffix(')')
    }

    /// The owner alone.
    pub(crate) fn without_work(&self) -> Self {
        match self.0.split_once(" (") {
            Some((name, _)) => Self(name.into()),
            None => self.clone(),
        }
    }

    /// A name that a backend has stored; whatever it is, it is shown, not judged.
    pub(crate) fn stored(text: &str) -> Self {
        Self(text.into())
    }
}

/// The text as a part of a key: what a key cannot have is escaped, so that different texts stay
/// different.
pub(crate) fn as_key(text: &str) -> String {
    let escaped = |c: char| match c {
        c if c == '%' || !is_allowed(c) => format!("%{:x};", u32::from(c)),
        c => c.to_string(),
    };
    text.chars().map(escaped).collect()
}

fn is_allowed(c: char) -> bool {
    !(c.is_control() || c.is_whitespace() || matches!(c, '{' | '}'))
}

/// The same rules for all names.
pub(crate) fn checked(what: &'static str, text: &str) -> Result<Arc<str>, NameError> {
    let problem = match text {
        "" => "it is empty",
        long if long.len() > LONGEST => "it is longer than 200 bytes",
        odd if !odd.chars().all(is_allowed) => "it has spaces, braces or control characters",
        name => return Ok(name.into()),
    };
    let text = text.chars().take(LONGEST).collect();
    Err(NameError { what, text, problem })
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_every_backend_can_store() {
        for good in ["reindex", "users/42", "lifecycle:ensure-indexes", "größe"] {
            assert_eq!(Key::new(good).unwrap().as_str(), good);
        }
        for bad in ["", "a b", "{a}", "a}", "a\nb", &"x".repeat(201)] {
            assert!(Key::new(bad).is_err(), "{bad:?}");
            assert!(Owner::new(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn any_text_is_a_key_and_different_texts_are_different_keys() {
        let texts = ["indexes", "an index", "an%20;index", "größe\n(2)", "{a}", "a/b"];
        let keys: std::collections::BTreeSet<_> =
            texts.iter().map(|text| Key::new(as_key(text)).unwrap()).collect();
        assert_eq!(keys.len(), texts.len());
        assert_eq!(as_key("indexes"), "indexes");
        assert_eq!(as_key("an index"), "an%20;index");
    }

    #[test]
    fn this_process_is_nobody_else() {
        let (one, other) = (Owner::this_process(), Owner::this_process());
        assert_ne!(one, other);
        assert_eq!(Owner::new(one.as_str()).unwrap(), one);
    }
}
