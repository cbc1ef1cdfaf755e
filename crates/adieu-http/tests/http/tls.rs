//! Connections over TLS.

use std::sync::Arc;
use std::time::Duration;

use adieu_core::Config;
use adieu_http::rustls;
use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::routing::get;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::client::{PATIENCE, Server};

/// A server that answers with the client's address, and a connector that trusts it.
async fn start() -> (Server, tokio_rustls::TlsConnector) {
    let peer = async |ConnectInfo(peer): ConnectInfo<std::net::SocketAddr>| peer.ip().to_string();
    start_with(Router::new().route("/", get(peer)), Config::for_tests()).await
}

/// A server of this application, and a connector that trusts it.
async fn start_with(app: Router, config: Config) -> (Server, tokio_rustls::TlsConnector) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let cert = made.cert.der().clone();
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert.clone()], key)
        .unwrap();
    let server = Server::start_with(app, config, |serve| serve.tls(tls).connect_info()).await;

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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1704_a_cut_body_that_ends_with_a_tls_connection_is_reset() {
    let body = || {
        let chunk = || Ok::<_, std::io::Error>(bytes::Bytes::from_static(&[b'x'; 16 * 1024]));
        Body::from_stream(tokio_stream::iter(std::iter::repeat_with(chunk)))
    };
    let app = Router::new().route("/endless", get(async move || body()));
    let config = Config::for_tests().drain_timeout(Duration::from_secs(1));
    let (server, connector) = start_with(app, config).await;
    let name = rustls::pki_types::ServerName::try_from("localhost").unwrap();
    let tcp = TcpStream::connect(server.addr).await.unwrap();
    let mut tls = connector.connect(name, tcp).await.unwrap();
    tls.write_all(b"GET /endless HTTP/1.0\r\n\r\n").await.unwrap();
    let mut buf = vec![0; 64 * 1024];
    assert!(tls.read(&mut buf).await.unwrap() > 0);
    let ending = tokio::spawn(server.end());
    let reading = async {
        loop {
            match tls.read(&mut buf).await {
                Ok(0) => return None,
                Ok(_) => {}
                Err(error) => return Some(error.kind()),
            }
        }
    };
    let ended = tokio::time::timeout(PATIENCE, reading).await.expect("the body should be cut");
    // Without the reset this is `UnexpectedEof`, which tolerant clients take for the end of the body.
    assert_eq!(ended, Some(std::io::ErrorKind::ConnectionReset));
    assert!(!ending.await.unwrap().is_clean());
}
