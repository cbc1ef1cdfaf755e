//! Certificates: both sides of a link prove that the cluster's authority has signed theirs.

use std::path::Path;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio_rustls::rustls::client::ClientConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::server::{ServerConfig, WebPkiClientVerifier};
use tokio_rustls::rustls::{RootCertStore, version};
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

use super::security::{ListenError, Mtls};

/// The two sides of TLS, from one set of files.
pub(super) struct Tls {
    acceptor: TlsAcceptor,
    connector: TlsConnector,
    /// The name that the certificates of peers must contain, in place of the host of their address.
    name: Option<ServerName<'static>>,
}

// === impl Tls ===

impl Tls {
    pub(super) fn read(mtls: &Mtls) -> Result<Self, ListenError> {
        let (ca, cert, key) =
            (mtls.dir.join("ca.pem"), mtls.dir.join("cert.pem"), mtls.dir.join("key.pem"));
        let mut roots = RootCertStore::empty();
        for authority in certificates(&ca)? {
            roots.add(authority).map_err(|error| problem(&ca, error))?;
        }
        let roots = Arc::new(roots);
        let chain = certificates(&cert)?;
        let private = PrivateKeyDer::from_pem_file(&key).map_err(|error| problem(&key, error))?;
        let provider = Arc::new(ring::default_provider());
        let versions = &[&version::TLS13];

        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider));
        let verifier = verifier.build().map_err(|error| problem(&ca, error))?;
        let server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(versions)
            .map_err(|error| problem(&cert, error))?;
        let mut server = server
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain.clone(), private.clone_key())
            .map_err(|error| problem(&cert, error))?;
        server.alpn_protocols = vec![b"h2".to_vec()];

        let client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .map_err(|error| problem(&cert, error))?;
        let mut client = client
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, private)
            .map_err(|error| problem(&cert, error))?;
        client.alpn_protocols = vec![b"h2".to_vec()];

        let name = mtls.server_name.clone().map(ServerName::try_from).transpose();
        let name = name.map_err(|error| problem(&mtls.dir, error))?;
        Ok(Self {
            acceptor: TlsAcceptor::from(Arc::new(server)),
            connector: TlsConnector::from(Arc::new(client)),
            name,
        })
    }

    pub(super) async fn accept(
        &self,
        stream: TcpStream,
    ) -> std::io::Result<server::TlsStream<TcpStream>> {
        self.acceptor.accept(stream).await
    }

    /// `host` is the host of the address to which the stream is connected.
    pub(super) async fn connect(
        &self,
        host: &str,
        stream: TcpStream,
    ) -> std::io::Result<client::TlsStream<TcpStream>> {
        let name = match &self.name {
            Some(name) => name.clone(),
            None => ServerName::try_from(host.to_owned()).map_err(std::io::Error::other)?,
        };
        self.connector.connect(name, stream).await
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, ListenError> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let read = read.map_err(|error| problem(path, error))?;
    if read.is_empty() {
        return Err(problem(path, "it contains no certificate in PEM format"));
    }
    Ok(read)
}

fn problem(path: &Path, problem: impl ToString) -> ListenError {
    ListenError::Certificate { path: path.to_owned(), problem: problem.to_string() }
}
