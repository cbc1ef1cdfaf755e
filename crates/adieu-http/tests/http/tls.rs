//! Connections over TLS.

use std::sync::Arc;
use std::time::Duration;

use adieu_core::Config;
use adieu_http::rustls;
use axum::Router;
use axum::extract::ConnectInfo;
use axum::routing::get;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::client::Server;

/// A server that answers with the client's address, and a connector that trusts it.
async fn start() -> (Server, tokio_rustls::TlsConnector) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let cert = made.cert.der().clone();
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert.clone()], key)
        .unwrap();
    let peer = async |ConnectInfo(peer): ConnectInfo<std::net::SocketAddr>| peer.ip().to_string();
    let app = Router::new().route("/", get(peer));
    let server =
        Server::start_with(app, Config::for_tests(), |serve| serve.tls(config).connect_info())
            .await;

    let mut roots = rustls::RootCertStore::empty();
    roots.add(cert).unwrap();
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    (server, tokio_rustls::TlsConnector::from(Arc::new(config)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s91_tls_connections_are_served_and_drained() {
    let (server, connector) = start().await;
    let name = rustls::pki_types::ServerName::try_from("localhost").unwrap();
    let connect = async |server: &Server| {
        let tcp = TcpStream::connect(server.addr).await.unwrap();
        connector.connect(name.clone(), tcp).await.unwrap()
    };

    let tls = connect(&server).await;
    assert_eq!(tls.get_ref().1.alpn_protocol(), Some(&b"h2"[..]), "HTTP/2 is offered");
    let io = hyper_util::rt::TokioIo::new(tls);
    let executor = hyper_util::rt::TokioExecutor::new();
    let (mut requests, connection) =
        hyper::client::conn::http2::handshake(executor, io).await.unwrap();
    let connection = tokio::spawn(connection);
    let request = http::Request::get("https://localhost/").body(String::new()).unwrap();
    assert_eq!(requests.send_request(request).await.unwrap().status(), 200);

    let mut idle = connect(&server).await;
    idle.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let mut answer = vec![0; 4096];
    let read = idle.read(&mut answer).await.unwrap();
    assert!(String::from_utf8_lossy(&answer[..read]).ends_with("127.0.0.1"));
    assert!(server.end().await.is_clean());
    connection.await.unwrap().unwrap();
    // Without close_notify this would be an error.
    assert_eq!(idle.read(&mut answer).await.unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s378_an_unfinished_tls_handshake_does_not_delay_the_shutdown() {
    let (server, _) = start().await;
    let _silent = TcpStream::connect(server.addr).await.unwrap();
    let report = server.end().await;
    assert!(report.is_clean(), "{report}");
    assert!(report.took < Duration::from_secs(3), "{report}");
}
