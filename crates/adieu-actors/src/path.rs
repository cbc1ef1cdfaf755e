//! Where in the tree a node is: `/user/orders/worker-3`.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use serde::{Serialize, Serializer};

/// Where a node is in its system: `/user/orders/worker-3`.
///
/// Everything of the application is under `/user`, everything of ours under `/system`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodePath(Arc<str>);

/// A name that cannot be a node's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} cannot be the name of an actor: {problem}")]
#[non_exhaustive]
pub struct NameError {
    name: String,
    problem: &'static str,
}

// === impl NodePath ===

impl NodePath {
    /// `/user`, above all that belongs to the application.
    #[must_use]
    pub fn user() -> Self {
        Self(Arc::from("/user"))
    }

    /// `/system`, above all that belongs to the system itself.
    #[must_use]
    pub fn system() -> Self {
        Self(Arc::from("/system"))
    }

    /// The path of a node of this name beneath this one.
    ///
    /// # Errors
    ///
    /// If the name is empty, or has a slash, a space or a control character in it.
    pub fn child(&self, name: &str) -> Result<Self, NameError> {
        let problem = if name.is_empty() {
            "it is empty"
        } else if name.contains('/') {
            "a slash divides a path; spawn it beneath another actor instead"
        } else if name.contains(|c: char| c.is_whitespace() || c.is_control()) {
            "it has white space or a control character in it"
        } else {
            return Ok(Self(format!("{}/{name}", self.0).into()));
        };
        Err(NameError { name: name.to_owned(), problem })
    }

    /// The path as it is written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The last part.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or_default()
    }

    /// The path above, as it is written. None for `/user` and `/system`.
    #[must_use]
    pub fn parent(&self) -> Option<&str> {
        self.0.rsplit_once('/').map(|(parent, _)| parent).filter(|parent| !parent.is_empty())
    }

    /// Whether this is beneath the other, at any depth.
    #[must_use]
    pub fn is_beneath(&self, other: &Self) -> bool {
        self.0.strip_prefix(&*other.0).is_some_and(|rest| rest.starts_with('/'))
    }

    /// The same, with this before it.
    pub(crate) fn within(&self, above: &str) -> Self {
        Self(format!("{above}{}", self.0).into())
    }

    /// How many are above it.
    pub(crate) fn depth(&self) -> usize {
        self.0.bytes().filter(|byte| *byte == b'/').count()
    }

    /// The bounds between which all that is beneath it sorts, and nothing else.
    pub(crate) fn beneath(&self) -> (String, String) {
        (format!("{}/", self.0), format!("{}0", self.0)) // 0 is what comes after the slash.
    }
}

impl Borrow<str> for NodePath {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NodePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for NodePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl Serialize for NodePath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_beneath_sorts_between_the_bounds_and_nothing_else_does() {
        let orders = NodePath::user().child("orders").unwrap();
        let inside = orders.child("worker-3").unwrap().child("x").unwrap();
        let outside = ["orders-2", "orders.old", "orders0", "order"];
        let (from, to) = orders.beneath();
        assert!(inside.as_str() > from.as_str() && inside.as_str() < to.as_str());
        assert!(inside.is_beneath(&orders) && !orders.is_beneath(&orders));
        for name in outside {
            let path = NodePath::user().child(name).unwrap();
            assert!(!(path.as_str() > from.as_str() && path.as_str() < to.as_str()), "{path}");
            assert!(!path.is_beneath(&orders), "{path}");
        }
        assert_eq!((orders.name(), orders.parent()), ("orders", Some("/user")));
        assert_eq!(NodePath::user().parent(), None);
    }
}
