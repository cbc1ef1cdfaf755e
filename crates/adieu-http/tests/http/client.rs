//! A server under test, and a client that sees every byte.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use adieu_core::{Config, Reason, Report, Shutdown};
use adieu_http::{Listener, Serve};
use axum::Router;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// The limit on every wait, generous enough for a loaded machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A server under test, in this process.
pub(crate) struct Server {
    pub(crate) shutdown: Shutdown,
    pub(crate) addr: SocketAddr,
    serving: JoinHandle<()>,
}

impl Server {
    /// Serves `app` with the configuration of tests.
    pub(crate) async fn start(app: Router) -> Self {
        Self::start_with(app, Config::for_tests(), |serve| serve).await
    }

    pub(crate) async fn start_with<L: Listener, S: adieu_http::App>(
        app: S,
        config: Config,
        with: impl FnOnce(Serve<TcpListener, S>) -> Serve<L, S>,
    ) -> Self {
        let shutdown = Shutdown::configured(config).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Self::adopt(shutdown.clone(), listener, |listener| {
            with(adieu_http::serve(listener, app, &shutdown)).into_future()
        });
        shutdown.until_readiness(|readiness| readiness.is_ready()).await;
        server
    }

    /// Runs the server that `serve` makes, and does not wait until it is ready.
    pub(crate) fn adopt(
        shutdown: Shutdown,
        listener: TcpListener,
        serve: impl FnOnce(TcpListener) -> adieu_http::Serving,
    ) -> Self {
        let addr = listener.local_addr().unwrap();
        let serve = serve(listener);
        let serving = tokio::spawn(async { serve.await.unwrap() });
        Self { shutdown, addr, serving }
    }

    pub(crate) async fn connect(&self) -> Client {
        Client::new(TcpStream::connect(self.addr).await.unwrap())
    }

    /// Begins the shutdown, and waits until the listener is closed.
    pub(crate) async fn close(&self) {
        drop(self.shutdown.run(Reason::Unknown));
        let closed = async {
            while TcpStream::connect(self.addr).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, closed).await.expect("the listener should close");
    }

    /// Runs the shutdown to its end, and checks that the server ends with it.
    pub(crate) async fn end(self) -> Arc<Report> {
        let run = self.shutdown.run(Reason::Unknown);
        let Ok(report) = tokio::time::timeout(PATIENCE, run).await else {
            panic!("the shutdown should end, but waits: {:?}", self.shutdown.status());
        };
        let report = report.unwrap();
        tokio::time::timeout(PATIENCE, self.serving).await.expect("the server should end").unwrap();
        report
    }
}

/// A client of HTTP/1 that sees every byte.
pub(crate) struct Client {
    stream: TcpStream,
    read: Vec<u8>,
}

impl Client {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self { stream, read: Vec::new() }
    }

    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.unwrap();
    }

    /// Closes the client's side of the connection. The client still reads.
    pub(crate) async fn half_close(&mut self) {
        self.stream.shutdown().await.unwrap();
    }

    pub(crate) async fn get(&mut self, path: &str) -> String {
        self.request(path).await;
        self.response().await
    }

    pub(crate) async fn request(&mut self, path: &str) {
        self.send(format!("GET {path} HTTP/1.1\r\nhost: test\r\n\r\n")).await;
    }

    /// Reads until `end` has been seen; returns everything up to it.
    pub(crate) async fn until(&mut self, end: &str) -> String {
        let reading = async {
            loop {
                let found = self.read.windows(end.len()).position(|at| at == end.as_bytes());
                if let Some(at) = found {
                    let rest = self.read.split_off(at + end.len());
                    let whole = std::mem::replace(&mut self.read, rest);
                    return String::from_utf8_lossy(&whole).into_owned();
                }
                let read = self.stream.read_buf(&mut self.read).await.unwrap();
                assert!(read > 0, "ended after {:?}", String::from_utf8_lossy(&self.read));
            }
        };
        tokio::time::timeout(PATIENCE, reading).await.expect("the bytes should arrive")
    }

    /// Reads the next response, which must have a `Content-Length`.
    pub(crate) async fn response(&mut self) -> String {
        let head = self.until("\r\n\r\n").await.to_ascii_lowercase();
        let length = head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next());
        let length: usize = length.map_or(0, |length| length.trim().parse().unwrap());
        while self.read.len() < length {
            assert!(self.stream.read_buf(&mut self.read).await.unwrap() > 0, "{head}");
        }
        let rest = self.read.split_off(length);
        head + &String::from_utf8(std::mem::replace(&mut self.read, rest)).unwrap()
    }

    /// Reads this many bytes.
    pub(crate) async fn bytes(&mut self, count: usize) -> Vec<u8> {
        let reading = async {
            while self.read.len() < count {
                let read = self.stream.read_buf(&mut self.read).await.unwrap();
                assert!(read > 0, "ended after {} of {count} bytes", self.read.len());
            }
        };
        tokio::time::timeout(PATIENCE, reading).await.expect("the bytes should arrive");
        let rest = self.read.split_off(count);
        std::mem::replace(&mut self.read, rest)
    }

    pub(crate) async fn rest_bytes(&mut self) -> Vec<u8> {
        let reading = self.stream.read_to_end(&mut self.read);
        tokio::time::timeout(PATIENCE, reading)
            .await
            .expect("the server should close the connection")
            .unwrap();
        std::mem::take(&mut self.read)
    }

    /// Reads until the server closes the connection.
    pub(crate) async fn rest(&mut self) -> std::io::Result<String> {
        let reading = self.stream.read_to_end(&mut self.read);
        tokio::time::timeout(PATIENCE, reading)
            .await
            .expect("the server should close the connection")?;
        Ok(String::from_utf8_lossy(&std::mem::take(&mut self.read)).into_owned())
    }
}
