//! Keys of locks and names of owners, in a form that every backend can store.

use std::fmt;
use std::sync::Arc;

/// The key of a lock.
///
/// A key is 1 to 200 bytes long and contains no braces, whitespace or control characters, so that it
/// can be part of a file name, of a Redis key with a hash tag, and of a log line.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(Arc<str>);

/// The name of a replica that holds or requests a lock, for operators to find it.
///
/// Two replicas may have the same name, because a lease is identified by its fence as well.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Owner(Arc<str>);

/// A text that is not a valid name for a key, an owner or a version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a valid name for {what}: {problem}")]
pub struct NameError {
    what: &'static str,
    text: String,
    problem: &'static str,
}

/// The rules of one kind of names.
#[derive(Clone, Copy, Debug)]
pub struct NameRules {
    /// The most bytes.
    pub longest: usize,
    /// What an error says about a name that has more.
    pub too_long: &'static str,
    /// Returns whether a name may contain the character.
    pub is_allowed: fn(char) -> bool,
    /// What an error says about a name that contains another one.
    pub not_allowed: &'static str,
}

const RULES: NameRules = NameRules {
    longest: 200,
    too_long: "it is longer than 200 bytes",
    is_allowed,
    not_allowed: "it contains whitespace, braces or control characters",
};

// === impl Key ===

impl Key {
    /// Creates a key.
    ///
    /// # Errors
    ///
    /// If the text is empty, too long, or contains braces, whitespace or control characters.
    pub fn new(text: impl AsRef<str>) -> Result<Self, NameError> {
        checked("a lock", text.as_ref()).map(Self)
    }

    /// Returns the name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

// === impl Owner ===

impl Owner {
    /// Creates an owner with this name.
    ///
    /// # Errors
    ///
    /// See [`Key::new`].
    pub fn new(text: impl AsRef<str>) -> Result<Self, NameError> {
        checked("an owner", text.as_ref()).map(Self)
    }

    /// Returns a name for this process: the host name, the process id, and a random number, because
    /// in containers the first two are often the same everywhere.
    ///
    /// The host name is that of the environment variable `HOSTNAME`, or else of the kernel.
    #[must_use]
    pub fn this_process() -> Self {
        let host = std::env::var("HOSTNAME")
            .or_else(|_| std::fs::read_to_string("/proc/sys/kernel/hostname"))
            .unwrap_or_default();
        let host: String =
            host.trim().chars().filter(|c| is_allowed(*c)).take(RULES.longest / 4).collect();
        let host = if host.is_empty() { "host" } else { &host };
        Self(format!("{host}-{}-{:08x}", std::process::id(), fastrand::u32(..)).into())
    }

    /// Returns the name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the owner with the work that it does: `one (indexes)`. A name contains no space, so
    /// the two parts can be separated again.
    pub(crate) fn working_on(&self, work: &str) -> Self {
        Self(format!("{self} ({work})").into())
    }

    /// Returns the work of the owner, if it is known.
    pub(crate) fn work(&self) -> Option<&str> {
        self.0.split_once(" (")?.1.strip_suffix(')')
    }

    /// Returns the owner without its work.
    pub(crate) fn without_work(&self) -> Self {
        match self.0.split_once(" (") {
            Some((name, _)) => Self(name.into()),
            None => self.clone(),
        }
    }

    /// Creates an owner from a stored name, without validation: it is only displayed.
    pub(crate) fn stored(text: &str) -> Self {
        Self(text.into())
    }
}

/// Escapes the characters that a key cannot contain. Different texts stay different.
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

/// Checks the rules that all names of this crate follow.
pub(crate) fn checked(what: &'static str, text: &str) -> Result<Arc<str>, NameError> {
    checked_name(what, text, &RULES)
}

/// Checks a name, which is not empty and follows the rules.
///
/// # Errors
///
/// If the text is not valid. The error calls it a name for `what`.
pub fn checked_name(
    what: &'static str,
    text: &str,
    rules: &NameRules,
) -> Result<Arc<str>, NameError> {
    let problem = match text {
        "" => "it is empty",
        long if long.len() > rules.longest => rules.too_long,
        odd if !odd.chars().all(rules.is_allowed) => rules.not_allowed,
        name => return Ok(name.into()),
    };
    Err(NameError { what, text: text.chars().take(rules.longest).collect(), problem })
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
    fn names_that_a_backend_cannot_store_are_refused() {
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
    fn names_of_this_process_are_unique_and_valid() {
        let (one, other) = (Owner::this_process(), Owner::this_process());
        assert_ne!(one, other);
        assert_eq!(Owner::new(one.as_str()).unwrap(), one);
    }
}
