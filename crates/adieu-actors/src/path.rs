//! Paths of nodes in the tree: `/user/orders/worker-3`.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use serde::{Serialize, Serializer};

/// The path of a node in its system: `/user/orders/worker-3`.
///
/// Actors of the application are below `/user`, and the services that they depend on below `/system`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodePath(Arc<str>);

/// The error for a name that is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} is not a valid name for an actor: {problem}")]
#[non_exhaustive]
pub struct NameError {
    name: String,
    problem: &'static str,
}

// === impl NodePath ===

impl NodePath {
    /// Returns `/user`, the root of the application's actors.
    #[must_use]
    pub fn user() -> Self {
        Self(Arc::from("/user"))
    }

    /// Returns `/system`, the root of actors that are stopped after the application's.
    #[must_use]
    pub fn system() -> Self {
        Self(Arc::from("/system"))
    }

    /// Returns the path of a child with this name.
    ///
    /// # Errors
    ///
    /// If the name is empty, or contains a slash, white space or a control character.
    pub fn child(&self, name: &str) -> Result<Self, NameError> {
        let problem = if name.is_empty() {
            "it is empty"
        } else if name.contains('/') {
            "a slash separates the parts of a path; spawn it below another actor instead"
        } else if name.contains(|c: char| c.is_whitespace() || c.is_control()) {
            "it contains white space or a control character"
        } else {
            return Ok(Self(format!("{}/{name}", self.0).into()));
        };
        Err(NameError { name: name.to_owned(), problem })
    }

    /// Returns the path as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the last part of the path.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or_default()
    }

    /// Returns the path of the parent as text, or `None` for `/user` and `/system`.
    #[must_use]
    pub fn parent(&self) -> Option<&str> {
        self.0.rsplit_once('/').map(|(parent, _)| parent).filter(|parent| !parent.is_empty())
    }

    /// Returns whether this path is below the other, at any depth.
    #[must_use]
    pub fn is_below(&self, other: &Self) -> bool {
        self.0.strip_prefix(&*other.0).is_some_and(|rest| rest.starts_with('/'))
    }

    /// Returns the path with a prefix.
    pub(crate) fn prefixed(&self, prefix: &str) -> Self {
        Self(format!("{prefix}{}", self.0).into())
    }

    /// Returns how many parts the path has.
    pub(crate) fn depth(&self) -> usize {
        self.0.bytes().filter(|byte| *byte == b'/').count()
    }

    /// Returns exclusive bounds: exactly the paths below this one sort between them.
    pub(crate) fn bounds_below(&self) -> (String, String) {
        (format!("{}/", self.0), format!("{}0", self.0)) // `0` is the character after the slash.
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
    fn only_paths_below_sort_between_the_bounds() {
        let orders = NodePath::user().child("orders").unwrap();
        let inside = orders.child("worker-3").unwrap().child("x").unwrap();
        let outside = ["orders-2", "orders.old", "orders0", "order"];
        let (from, to) = orders.bounds_below();
        assert!(inside.as_str() > from.as_str() && inside.as_str() < to.as_str());
        assert!(inside.is_below(&orders) && !orders.is_below(&orders));
        for name in outside {
            let path = NodePath::user().child(name).unwrap();
            assert!(!(path.as_str() > from.as_str() && path.as_str() < to.as_str()), "{path}");
            assert!(!path.is_below(&orders), "{path}");
        }
        assert_eq!((orders.name(), orders.parent()), ("orders", Some("/user")));
        assert_eq!(NodePath::user().parent(), None);
    }
}
