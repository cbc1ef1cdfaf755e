//! A backend with its server, for tests that inject faults.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use adieu_fleet::{Etcd, Files, LockBackend, Memory, Postgres, PostgresSession, Redis};
use adieu_testkit::servers::Server;

use crate::support::postgres_config;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Memory,
    File,
    Redis,
    Rows,
    Session,
    Etcd,
}

/// A backend with its server, and a folder for logs.
pub(crate) struct Stage {
    pub(crate) kind: Kind,
    pub(crate) server: Option<Server>,
    pub(crate) folder: tempfile::TempDir,
    pub(crate) memory: Memory,
}

impl Kind {
    pub(crate) fn parse(name: &str) -> Self {
        let all = [Self::Memory, Self::File, Self::Redis, Self::Rows, Self::Session, Self::Etcd];
        all.into_iter().find(|kind| format!("{kind:?}") == name).unwrap()
    }

    /// Returns a short time to live that a busy machine can keep.
    pub(crate) fn ttl(self) -> Duration {
        match self {
            Self::Etcd => Duration::from_secs(1),
            // Each connection is a process of the server.
            Self::Rows | Self::Session => Duration::from_millis(800),
            Self::Memory | Self::File | Self::Redis => Duration::from_millis(500),
        }
    }

    /// Returns how late the backend may end a lock.
    pub(crate) fn late(self) -> Duration {
        match self {
            Self::Etcd => Duration::from_secs(2),
            Self::Memory | Self::File | Self::Redis | Self::Rows | Self::Session => Duration::ZERO,
        }
    }

    /// Connects as another replica, to a folder or to a port of this machine.
    pub(crate) async fn connect(self, place: &str) -> Arc<dyn LockBackend> {
        self.try_connect(place).await.unwrap()
    }

    pub(crate) async fn try_connect(self, place: &str) -> Option<Arc<dyn LockBackend>> {
        let postgres = || postgres_config(place.parse().unwrap());
        Some(match self {
            Self::Memory => panic!("not accessible to other processes"),
            Self::File => Arc::new(Files::open(place).ok()?),
            Self::Redis => {
                Arc::new(Redis::connect(&format!("redis://127.0.0.1:{place}/")).await.ok()?)
            }
            Self::Rows => Arc::new(Postgres::new(&postgres()).ok()?),
            Self::Session => Arc::new(PostgresSession::new(&postgres()).ok()?),
            Self::Etcd => {
                Arc::new(Etcd::connect(&[format!("http://127.0.0.1:{place}")]).await.ok()?)
            }
        })
    }
}

impl Stage {
    pub(crate) fn new(kind: Kind) -> Self {
        let server = match kind {
            Kind::Memory | Kind::File => None,
            Kind::Redis => Some(Server::redis()),
            Kind::Rows | Kind::Session => Some(Server::postgres()),
            Kind::Etcd => Some(Server::etcd()),
        };
        Self { kind, server, folder: tempfile::tempdir().unwrap(), memory: Memory::new() }
    }

    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.server.as_ref().map(Server::address)
    }

    /// Returns the port or folder to connect to.
    pub(crate) fn place(&self) -> String {
        match &self.server {
            Some(server) => server.port().to_string(),
            None => self.path("locks").to_str().unwrap().to_owned(),
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}
