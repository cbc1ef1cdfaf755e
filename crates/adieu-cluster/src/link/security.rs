//! Decides which nodes may connect: all on this machine, those with a token, or those with a
//! certificate.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use subtle::ConstantTimeEq;

/// How the nodes of a cluster recognise each other.
#[derive(Clone, Debug)]
pub struct Security(pub(super) Kind);

#[derive(Clone, Debug)]
pub(super) enum Kind {
    None,
    Token(Token),
    Mtls(Mtls),
}

/// A secret that all nodes share.
#[derive(Clone)]
pub(super) struct Token(Arc<str>);

/// Certificates of the cluster's own authority, which both sides of a link check.
#[derive(Clone, Debug)]
pub struct Mtls {
    pub(super) dir: PathBuf,
    pub(super) server_name: Option<String>,
}

/// Why a node cannot listen for other nodes.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// The address is not `IP:port`.
    #[error(
        "failed to listen for other nodes: {address:?} is not an address such as 10.0.0.7:7070"
    )]
    Address {
        /// The text.
        address: String,
    },
    /// Other machines could reach the address, and nothing would stop them.
    #[error(
        "failed to listen for other nodes on {address}: other machines can reach it, so certificates \
         (Security::mtls) or a token (Security::token) are required; only loopback addresses need neither"
    )]
    Unprotected {
        /// The address.
        address: SocketAddr,
    },
    /// The node listens on all addresses, so it cannot be derived which one reaches it.
    #[error(
        "failed to listen for other nodes on {address}: it stands for all addresses of this machine, \
         so set the one at which other nodes reach this node with `address`, such as 10.0.0.7:{}",
        address.port()
    )]
    Anywhere {
        /// The address.
        address: SocketAddr,
    },
    /// Other nodes would refuse to connect to the address.
    #[error(
        "failed to listen for other nodes: the address {address} is not on this machine, and without \
         certificates (Security::mtls) or a token (Security::token) nodes connect to loopback addresses \
         only; set `address` to one of those, or use certificates or a token"
    )]
    Unreachable {
        /// The address.
        address: String,
    },
    /// The token is too short to be a secret.
    #[error("cluster token is too short: {length} bytes, at least {least} required")]
    WeakToken {
        /// The length of the token.
        length: usize,
        /// The least length.
        least: usize,
    },
    /// The token cannot be sent in a header.
    #[error("cluster token has characters other than visible ASCII: use letters and digits")]
    OddToken,
    /// A certificate or key cannot be used.
    #[error("failed to read {}: {problem}", path.display())]
    Certificate {
        /// The file.
        path: PathBuf,
        /// The problem.
        problem: String,
    },
    /// The system refuses the address.
    #[error("failed to listen for other nodes on {address}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        #[source]
        source: io::Error,
    },
}

const LEAST_TOKEN: usize = 16;

// === impl Security ===

impl Security {
    /// Uses nothing. Only loopback addresses can be listened on and connected to.
    #[must_use]
    pub fn loopback_only() -> Self {
        Self(Kind::None)
    }

    /// Uses a secret that all nodes share. It proves that a node belongs to the cluster, but the
    /// connections are not encrypted: use it in a network that only trusted machines can read.
    ///
    /// # Errors
    ///
    /// If the token has less than 16 bytes, or characters that a header cannot have.
    pub fn token(token: impl Into<String>) -> Result<Self, ListenError> {
        let token = token.into();
        let is_visible = token.bytes().all(|byte| (0x21..0x7f).contains(&byte));
        match token.len() {
            length if length < LEAST_TOKEN => {
                Err(ListenError::WeakToken { length, least: LEAST_TOKEN })
            }
            _ if !is_visible => Err(ListenError::OddToken),
            _ => Ok(Self(Kind::Token(Token(token.into())))),
        }
    }

    /// Uses certificates: connections are encrypted, and both sides check that the other's certificate
    /// is signed by the cluster's authority.
    #[must_use]
    pub fn mtls(mtls: Mtls) -> Self {
        Self(Kind::Mtls(mtls))
    }

    /// Returns whether a node may listen on this address, or connect to it.
    pub(super) fn allows(&self, address: IpAddr) -> bool {
        match self.0 {
            Kind::None => address.to_canonical().is_loopback(),
            Kind::Token(_) | Kind::Mtls(_) => true,
        }
    }

    pub(super) fn bearer(&self) -> Option<&Token> {
        match &self.0 {
            Kind::Token(token) => Some(token),
            Kind::None | Kind::Mtls(_) => None,
        }
    }
}

// === impl Token ===

impl Token {
    pub(super) fn header(&self) -> String {
        format!("Bearer {}", self.0)
    }

    /// Compares in constant time, so that the time does not reveal how much of a guess is right.
    pub(super) fn matches(&self, header: &[u8]) -> bool {
        header.ct_eq(self.header().as_bytes()).into()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

// === impl Mtls ===

impl Mtls {
    /// Uses the files `ca.pem`, `cert.pem` and `key.pem` of a directory: the certificates of the
    /// authority, the certificate of this node with its chain, and its private key. They are read when
    /// the node begins to listen.
    #[must_use]
    pub fn dir(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into(), server_name: None }
    }

    /// Sets the name that the certificates of peers must contain. Default: the host of the address to
    /// which this node connects, which fits certificates with addresses or host names. Set it if all
    /// nodes share one name.
    ///
    /// ```
    /// use adieu_cluster::{Mtls, Security};
    ///
    /// let security = Security::mtls(Mtls::dir("/etc/shop/tls").server_name("nodes.shop.internal"));
    /// # drop(security);
    /// ```
    #[must_use]
    pub fn server_name(mut self, name: impl Into<String>) -> Self {
        self.server_name = Some(name.into());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s1205_short_tokens_are_rejected_and_tokens_are_not_shown() {
        let error = Security::token("short").unwrap_err().to_string();
        assert_eq!(error, "cluster token is too short: 5 bytes, at least 16 required");
        let security = Security::token("0123456789abcdef").unwrap();
        assert!(!format!("{security:?}").contains("0123"));
        let token = security.bearer().unwrap();
        assert!(token.matches(b"Bearer 0123456789abcdef"));
        for wrong in ["", "Bearer 0123456789abcdeX", "0123456789abcdef", "Bearer 0123456789abcdef0"]
        {
            assert!(!token.matches(wrong.as_bytes()), "{wrong}");
        }
    }

    #[test]
    fn only_loopback_needs_no_proof() {
        let open = Security::loopback_only();
        for (address, allowed) in [
            ("127.0.0.1", true),
            ("127.9.9.9", true),
            ("::1", true),
            ("::ffff:127.0.0.1", true),
            ("0.0.0.0", false),
            ("::", false),
            ("10.0.0.7", false),
        ] {
            assert_eq!(open.allows(address.parse().unwrap()), allowed, "{address}");
        }
    }
}
