//! Responses of a process that ends in the middle of them.

use std::future::pending;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use adieu_core::{Phase, Runner, Shutdown};
use axum::Router;
use axum::body::Body;
use axum::routing::get;
use tokio_stream::StreamExt;

use super::client::{PATIENCE, Server};

/// The workers of the child's runtime.
const WORKERS: usize = 2;

/// A child process that serves.
struct Service {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
    addr: SocketAddr,
}

impl Service {
    fn start(kill_after: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "killed::served", "--ignored", "--nocapture"])
            .envs([("ADIEU__KILL_AFTER", kill_after), ("ADIEU__LAME_DUCK", "0s")])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut service = Self { child, lines, addr: SocketAddr::from(([0, 0, 0, 0], 0)) };
        service.addr = service.next("serving ").parse().unwrap();
        service
    }

    /// Returns the rest of the next line that contains `prefix`.
    fn next(&mut self, prefix: &str) -> String {
        loop {
            let line = self.lines.next().expect("the child prints another line").unwrap();
            if let Some((_, rest)) = line.split_once(prefix) {
                return rest.to_owned();
            }
        }
    }

    fn request(&self, path: &str, version: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.addr).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(stream, "GET {path} HTTP/{version}\r\nhost: test\r\n\r\n").unwrap();
        stream
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads until the body has begun.
fn read_first(stream: &mut TcpStream) {
    let mut read = Vec::new();
    let mut buf = [0; 4096];
    while !String::from_utf8_lossy(&read).contains("tick") {
        let count = stream.read(&mut buf).unwrap();
        assert!(count > 0, "the body has no end");
        read.extend(&buf[..count]);
    }
}

/// Reads to the end, and returns the error if the connection was reset.
fn read_to_end(stream: &mut TcpStream) -> Result<(), ErrorKind> {
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).map(drop).map_err(|error| error.kind())
}

#[test]
fn s1800_a_body_that_ends_with_the_connection_is_reset_when_a_signal_ends_the_process() {
    let mut service = Service::start("none");
    let mut streams: Vec<_> = (0..5).map(|_| service.request("/drip", "1.0")).collect();
    streams.iter_mut().for_each(read_first);
    let ended = loop {
        if let Some(ended) = service.child.try_wait().unwrap() {
            break ended;
        }
        service.signal("INT");
        std::thread::sleep(Duration::from_millis(50)); // Signals at a shorter distance count once.
    };
    assert_eq!(ended.code(), Some(130));
    for stream in &mut streams {
        assert_eq!(read_to_end(stream), Err(ErrorKind::ConnectionReset));
    }
}

#[test]
fn s1800_a_body_that_ends_with_the_connection_is_reset_when_a_process_with_blocked_workers_ends() {
    let mut service = Service::start("1s");
    let mut streams: Vec<_> = (0..5).map(|_| service.request("/drip", "1.0")).collect();
    streams.iter_mut().for_each(read_first);
    let _blocking: Vec<_> = (0..WORKERS).map(|_| service.request("/block", "1.1")).collect();
    let _ = service.next("all workers are blocked");
    service.signal("TERM");
    let ended = service.child.wait().unwrap();
    // Whether `main` or the watchdog is first depends on the machine.
    assert!(matches!(ended.code(), Some(70 | 72)), "{ended}");
    for stream in &mut streams {
        assert_eq!(read_to_end(stream), Err(ErrorKind::ConnectionReset));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1800_a_complete_body_that_ends_with_the_connection_reaches_a_slow_client() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    const SIZE: usize = 60_000;
    let chunks = || (0..SIZE / 1_000).map(|_| Ok::<_, std::io::Error>(vec![b'x'; 1_000]));
    let body = move || Body::from_stream(tokio_stream::iter(chunks()));
    let server = Server::start(Router::new().route("/", get(async move || body()))).await;
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    // So most of the response waits in the server's send buffer when the server closes.
    socket.set_recv_buffer_size(2_048).unwrap();
    let mut client = socket.connect(server.addr).await.unwrap();
    client.write_all(b"GET / HTTP/1.0\r\n\r\n").await.unwrap();
    client.readable().await.unwrap();
    let served = async {
        while server.shutdown.gates()[0].in_flight() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, served).await.expect("the body should end");
    let mut read = Vec::new();
    client.read_to_end(&mut read).await.expect("the connection is not reset");
    assert!(read.ends_with(&[b'x'; 1_000]) && read.len() > SIZE, "{} bytes", read.len());
    assert!(server.end().await.is_clean());
}

/// The child process.
#[test]
#[ignore = "the tests above start it in a child process"]
fn served() {
    let code = Runner::new().worker_threads(WORKERS).run(async |shutdown: Shutdown| {
        let drip = async || {
            let chunk = || Ok::<_, std::io::Error>(bytes::Bytes::from_static(b"tick\n"));
            let ticks = tokio_stream::iter(std::iter::repeat_with(chunk));
            Body::from_stream(ticks.throttle(Duration::from_millis(20)))
        };
        let blocked: &'static AtomicUsize = Box::leak(Box::default());
        let block = async move || -> String {
            if blocked.fetch_add(1, Ordering::Relaxed) + 1 == WORKERS {
                println!("all workers are blocked");
            }
            loop {
                std::thread::sleep(Duration::from_secs(60));
            }
        };
        let app = Router::new().route("/drip", get(drip)).route("/block", get(block));
        // So the process does not exit before the signals that follow.
        shutdown.add_task(Phase::CLOSE_RESOURCES, "hang", async |_| pending::<()>().await)?;
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        println!("serving {}", listener.local_addr()?);
        adieu_http::serve(listener, app, &shutdown).await?;
        Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    });
    assert_eq!(code, ExitCode::SUCCESS);
}
