//! Behind a real nginx, which by default speaks HTTP/1.0 to its upstream servers.

use std::fmt::Display;
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use adieu_core::{Config, Phase, Reason, Shutdown};
use axum::Router;
use axum::body::Body;
use axum::routing::get;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::answers::problems;
use super::client::{PATIENCE, Server};

struct Nginx {
    child: Child,
    addr: SocketAddr,
    _folder: tempfile::TempDir,
}

impl Nginx {
    async fn start(upstream: impl Display) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().display();
        let addr = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let config = folder.path().join("nginx.conf");
        let text = format!(
            "daemon off; master_process off; user root; pid {at}/pid; error_log {at}/error.log;
events {{ worker_connections 64; }}
http {{
  access_log off;
  client_body_temp_path {at}/body; proxy_temp_path {at}/proxy; fastcgi_temp_path {at}/fastcgi;
  uwsgi_temp_path {at}/uwsgi; scgi_temp_path {at}/scgi;
  server {{ listen {addr}; location / {{ proxy_pass http://{upstream}; }} }}
}}"
        );
        std::fs::write(&config, text).unwrap();
        let mut command = Command::new("nginx");
        command.arg("-c").arg(&config).arg("-p").arg(folder.path()).stderr(Stdio::null());
        let child = command.spawn();
        let child = child.expect("nginx, from the package of that name");
        let nginx = Self { child, addr, _folder: folder };
        let listening = async {
            while TcpStream::connect(addr).await.is_err() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(PATIENCE, listening).await.expect("nginx should listen");
        nginx
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn endless() -> Router {
    let chunk = || Ok::<_, std::io::Error>(bytes::Bytes::from_static(&[b'x'; 16 * 1024]));
    let body = move || Body::from_stream(tokio_stream::iter(std::iter::repeat_with(chunk)));
    Router::new().route("/endless", get(async move || body()))
}

fn window() -> Config {
    let window = Duration::from_millis(500);
    Config::for_tests().phase_timeout(Phase::SERVICE_REQUESTS_DONE, window)
}

/// Has a body cut that nginx passes on. Checks that its client can recognise the cut, and that the
/// report names it.
async fn cut_behind(nginx: &Nginx, shutdown: &Shutdown) {
    let mut client = TcpStream::connect(nginx.addr).await.unwrap();
    client
        .write_all(b"GET /endless HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n")
        .await
        .unwrap();
    let (mut buf, mut read) = (vec![0; 1 << 16], Vec::<u8>::new());
    let count = client.read(&mut buf).await.unwrap();
    assert!(count > 0);
    let run = shutdown.run(Reason::Unknown);
    let reading = async {
        while let Ok(count @ 1..) = client.read(&mut buf).await {
            read.extend(&buf[..count]);
            let kept = read.len().saturating_sub(16);
            read.drain(..kept);
        }
    };
    tokio::time::timeout(PATIENCE, reading).await.expect("nginx should end the response");
    assert!(!read.ends_with(b"\r\n0\r\n\r\n"), "nginx took the cut body for a complete one");
    let problems = problems(&run.await.unwrap());
    assert!(problems.contains("1 response cut: GET /endless"), "{problems}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s213_a_cut_body_does_not_look_complete_behind_nginx() {
    let server = Server::start_with(endless(), window(), |serve| serve).await;
    cut_behind(&Nginx::start(server.addr).await, &server.shutdown).await;
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s530_a_cut_body_over_a_unix_socket_does_not_look_complete_behind_nginx() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.sock");
    let shutdown = Shutdown::configured(window()).unwrap();
    let listener = tokio::net::UnixListener::bind(&path).unwrap();
    let serving = tokio::spawn(adieu_http::serve(listener, endless(), &shutdown).into_future());
    shutdown.until_readiness(|readiness| readiness.is_ready()).await;
    let nginx = Nginx::start(format_args!("unix:{}:", path.display())).await;
    cut_behind(&nginx, &shutdown).await;
    serving.await.unwrap().unwrap();
}
