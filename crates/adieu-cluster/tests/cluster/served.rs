//! Stores on real servers: the etcd that is installed, a current etcd, and Postgres.

/// Runs each test on each server, with a store of the server's kind.
macro_rules! on_every_server {
    ($make:path => $($test:ident,)*) => {
        crate::served::on_every_server! { @one etcd_installed EtcdInstalled $make => $($test,)* }
        crate::served::on_every_server! { @one etcd_current EtcdCurrent $make => $($test,)* }
        crate::served::on_every_server! { @one postgres Postgres $make => $($test,)* }
    };
    (@one $name:ident $kind:ident $make:path => $($test:ident,)*) => {
        #[cfg(all(feature = "etcd", feature = "postgres"))]
        mod $name {
            $(#[tokio::test]
            async fn $test() {
                super::$test($make(crate::served::Kind::$kind).await).await;
            })*
        }
    };
}

pub(crate) use on_every_server;

#[cfg(all(feature = "etcd", feature = "postgres"))]
pub(crate) use real::{Kind, Served, text};

#[cfg(all(feature = "etcd", feature = "postgres"))]
mod real {
    use std::error::Error;
    use std::path::PathBuf;
    use std::sync::Arc;

    use adieu_cluster::store::etcd_client::Client;
    use adieu_cluster::store::{Etcd, Postgres, Store};
    use adieu_testkit::servers::{Options, Server};

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Kind {
        EtcdInstalled,
        EtcdCurrent,
        Postgres,
    }

    /// A server, and how to connect a store to it.
    pub(crate) struct Served {
        pub(crate) kind: Kind,
        pub(crate) server: Server,
    }

    // === impl Kind ===

    impl Kind {
        /// Starts an etcd of this kind.
        pub(crate) fn etcd(self, args: &[&str]) -> Server {
            let options = Options::new().args(args.iter().copied());
            Server::etcd_with(options.program(self.program()))
        }

        /// Returns the program of an etcd of this kind.
        pub(crate) fn program(self) -> PathBuf {
            match self {
                Self::EtcdCurrent => current_etcd(),
                Self::EtcdInstalled => "etcd".into(),
                Self::Postgres => panic!("that is not an etcd"),
            }
        }
    }

    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    fn current_etcd() -> PathBuf {
        etcd_bin_vendored::etcd_bin_path().unwrap().to_owned()
    }

    #[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
    fn current_etcd() -> PathBuf {
        panic!("there is no current etcd for this platform: see the manifest")
    }

    // === impl Served ===

    impl Served {
        pub(crate) fn start(kind: Kind) -> Self {
            let server = match kind {
                Kind::EtcdInstalled | Kind::EtcdCurrent => kind.etcd(&[]),
                Kind::Postgres => Server::postgres(),
            };
            Self { kind, server }
        }

        pub(crate) async fn connect(&self) -> Arc<dyn Store> {
            self.connect_by(self.server.port()).await
        }

        /// Connects to another port, which must lead to the server.
        pub(crate) async fn connect_by(&self, port: u16) -> Arc<dyn Store> {
            match self.kind {
                Kind::EtcdInstalled | Kind::EtcdCurrent => {
                    Arc::new(Etcd::connect(&[url(port)]).await.unwrap())
                }
                Kind::Postgres => Arc::new(Postgres::connect(&config(port), "test").await.unwrap()),
            }
        }

        /// Makes the server forget all changes up to now.
        pub(crate) async fn compact(&self) {
            let port = self.server.port();
            if self.kind == Kind::Postgres {
                let postgres = Postgres::connect(&config(port), "test").await.unwrap();
                return postgres.compact().await.unwrap();
            }
            let mut client = Client::connect([url(port)], None).await.unwrap();
            let now = client.get("none", None).await.unwrap().header().unwrap().revision();
            // If the revision was compacted before, this is an error, and the goal is reached.
            let _ = client.compact(now, None).await;
        }
    }

    pub(crate) fn url(port: u16) -> String {
        format!("http://127.0.0.1:{port}")
    }

    pub(crate) fn config(port: u16) -> String {
        format!("host=127.0.0.1 port={port} user=postgres dbname=postgres")
    }

    /// An error with its causes.
    pub(crate) fn text(error: &dyn Error) -> String {
        let (mut text, mut error) = (error.to_string(), error);
        while let Some(cause) = error.source() {
            text = format!("{text}: {cause}");
            error = cause;
        }
        text
    }
}

#[cfg(all(feature = "etcd", feature = "postgres"))]
pub(crate) use real::{config, url};
