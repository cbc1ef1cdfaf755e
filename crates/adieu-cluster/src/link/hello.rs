//! Checks which peers may connect, and selects the protocol.

use std::sync::Arc;

use super::frame::Hello;
use crate::records::NodeId;
use crate::store::Revision;
use crate::transport::Peer;

/// How a node introduces itself.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) cluster: Arc<str>,
    pub(crate) node: NodeId,
    pub(crate) build: Arc<str>,
    /// The oldest and the newest protocol that it supports.
    pub(crate) protocol: (u32, u32),
}

/// The contents of a hello.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Caller {
    pub(super) peer: Peer,
    pub(super) protocol: u32,
    /// The number of its link.
    pub(super) link: u64,
    /// The incarnation of this node to which the link is addressed.
    pub(super) wanted: Revision,
}

// === impl Identity ===

impl Identity {
    pub(super) fn hello(&self, incarnation: Revision, to: &Peer, link: u64) -> Hello {
        Hello {
            cluster: self.cluster.as_ref().to_owned(),
            node: self.node.as_str().to_owned(),
            incarnation: incarnation.get(),
            to: to.id.as_str().to_owned(),
            to_incarnation: to.incarnation.get(),
            oldest_protocol: self.protocol.0,
            newest_protocol: self.protocol.1,
            build: self.build.as_ref().to_owned(),
            link,
        }
    }

    /// Checks everything in a hello that does not depend on the view.
    pub(super) fn check(&self, hello: &Hello) -> Result<Caller, String> {
        let (ours, theirs) = (&*self.cluster, &hello.cluster);
        if ours != theirs {
            return Err(format!("this node is in cluster {ours}, not in {theirs:?}"));
        }
        if self.node.as_str() != hello.to {
            return Err(format!("this is node {}, not {:?}", self.node, hello.to));
        }
        let theirs = (hello.oldest_protocol, hello.newest_protocol);
        let protocol = negotiate(self.protocol, theirs).ok_or_else(|| {
            let ((a, b), (c, d)) = (self.protocol, theirs);
            format!("this node supports the protocols {a} to {b}, and the caller {c} to {d}")
        })?;
        let id = NodeId::new(&hello.node).map_err(|error| error.to_string())?;
        let incarnation = Revision::new(hello.incarnation);
        Ok(Caller {
            peer: Peer { id, incarnation },
            protocol,
            link: hello.link,
            wanted: Revision::new(hello.to_incarnation),
        })
    }
}

/// Returns the newest protocol that both sides support.
pub(super) fn negotiate(ours: (u32, u32), theirs: (u32, u32)) -> Option<u32> {
    let (oldest, newest) = (ours.0.max(theirs.0), ours.1.min(theirs.1));
    (oldest <= newest).then_some(newest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s1206_both_sides_speak_the_newest_protocol_that_both_know() {
        for (ours, theirs, both) in [
            ((1, 1), (1, 1), Some(1)),
            ((1, 3), (2, 5), Some(3)),
            ((2, 5), (1, 3), Some(3)),
            ((4, 5), (1, 3), None),
            ((1, 3), (4, 5), None),
        ] {
            assert_eq!(negotiate(ours, theirs), both, "{ours:?} {theirs:?}");
        }
    }
}
