//! A snapshot of the tree of a system, for people and programs.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use crate::node::Node;
use crate::path::NodePath;

/// The nodes of a system and their queue lengths at one moment. Prints as a tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TreeView {
    /// The name of the system.
    pub system: Arc<str>,
    /// The nodes, sorted by their paths.
    pub nodes: Vec<NodeView>,
}

/// One node at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct NodeView {
    /// The path of the node.
    pub path: NodePath,
    /// How many messages are queued, if that is known.
    pub queued: Option<usize>,
    /// How many messages the node has processed, if that is known.
    pub handled: Option<u64>,
}

impl TreeView {
    pub(crate) fn of<'a>(system: &Arc<str>, nodes: impl Iterator<Item = &'a dyn Node>) -> Self {
        let view = |node: &dyn Node| NodeView {
            path: node.path().clone(),
            queued: node.queued(),
            handled: node.handled(),
        };
        Self { system: Arc::clone(system), nodes: nodes.map(view).collect() }
    }
}

impl fmt::Display for TreeView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.system)?;
        let mut last_root: Option<&str> = None;
        for node in &self.nodes {
            let root = node.path.as_str().split('/').nth(1);
            if last_root != root {
                writeln!(f, "  /{}", root.unwrap_or_default())?;
                last_root = root;
            }
            let depth = node.path.as_str().matches('/').count();
            write!(f, "{:indent$}{}", "", node.path.name(), indent = depth * 2)?;
            if let Some(queued) = node.queued.filter(|queued| *queued > 0) {
                write!(f, "  {queued} queued")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}
