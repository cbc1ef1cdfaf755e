//! A process that has used up its file descriptors.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Barrier;

use adieu_core::{Config, Shutdown};
use adieu_http::Admin;
use axum::Router;
use axum::routing::get;

use super::client::PATIENCE;

fn answer(addr: SocketAddr, request: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(addr)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// A child process without free file descriptors.
struct Exhausted {
    child: std::process::Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
    app: SocketAddr,
    admin: SocketAddr,
}

impl Exhausted {
    fn start() -> Self {
        let me = std::env::current_exe().unwrap();
        let mut child = Command::new("sh")
            .args([
                "-c",
                "ulimit -n 64; exec \"$0\" --exact descriptors::exhausted --ignored --nocapture",
            ])
            .arg(me)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let unknown = SocketAddr::from(([0, 0, 0, 0], 0));
        let mut exhausted = Self { child, lines, app: unknown, admin: unknown };
        exhausted.app = exhausted.next("app ").parse().unwrap();
        exhausted.admin = exhausted.next("admin ").parse().unwrap();
        exhausted.next("full");
        exhausted
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

    fn stop(&self) {
        let stop = "POST /shutdown HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
        assert!(answer(self.admin, stop).unwrap().starts_with("HTTP/1.1 202"));
    }

    fn end(mut self) {
        assert_eq!(self.next("is_clean "), "true");
        assert!(self.child.wait().unwrap().success());
    }
}

#[test]
fn s216_without_file_descriptors_the_admin_port_answers() {
    let process = Exhausted::start();
    for _ in 0..3 {
        let request = "GET /livez HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
        assert!(answer(process.admin, request).unwrap().ends_with("alive"));
    }
    process.stop();
    process.end();
}

/// A server that finds out only now that there are no descriptors must not take the one that the admin
/// port has released. The order of the two is up to the kernel, so several processes try it.
#[test]
fn s216_the_admin_port_answers_while_a_server_runs_out_of_descriptors() {
    for _ in 0..12 {
        let process = Exhausted::start();
        let both = Barrier::new(2);
        let queued = std::thread::scope(|scope| {
            let queued = scope.spawn(|| {
                both.wait();
                TcpStream::connect(process.app).unwrap()
            });
            both.wait();
            let request = "GET /livez HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
            let answer = answer(process.admin, request);
            assert!(answer.unwrap().ends_with("alive"));
            queued.join().unwrap()
        });
        drop(queued);
        process.stop();
        process.end();
    }
}

#[test]
fn s373_without_file_descriptors_queued_connections_are_refused_with_503() {
    let mut process = Exhausted::start();
    // They stay in the kernel's queue, because the process cannot accept them.
    let queued: Vec<_> = (0..5)
        .map(|_| {
            let mut stream = TcpStream::connect(process.app).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
            stream
        })
        .collect();
    process.stop();
    for mut stream in queued {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("the connection is not reset");
        assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("draining"), "{answer:?}");
        assert!(answer.contains("connection: close"), "{answer:?}");
    }
    let logged = process.next("queued connections refused");
    assert!(logged.contains("connections=5"), "{logged}");
    process.end();
}

/// The child process, which the tests start with few file descriptors.
#[test]
#[ignore = "the tests above start it in a child process"]
fn exhausted() {
    tracing_subscriber::fmt().with_ansi(false).init();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.unwrap().block_on(async {
        let shutdown = Shutdown::configured(Config::for_tests()).unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        println!("app {}", listener.local_addr().unwrap());
        let app = Router::new().route("/", get(async || "hello"));
        let serving = tokio::spawn(adieu_http::serve(listener, app, &shutdown).into_future());
        let admin = Admin::new(&shutdown).bind("127.0.0.1:0").unwrap().start().unwrap();
        println!("admin {}", admin.local_addr());
        shutdown.until_readiness(|readiness| readiness.is_ready()).await;
        // When the admin port answers, its thread has opened all descriptors that it needs.
        let addr = admin.local_addr();
        let probe = move || answer(addr, "GET /livez HTTP/1.0\r\n\r\n").unwrap();
        tokio::task::spawn_blocking(probe).await.unwrap();
        let mut all = Vec::new();
        let mut is_full_for = 0;
        // Takes descriptors that become free a little later, too.
        while is_full_for < 20 {
            match std::fs::File::open("/dev/null") {
                Ok(file) => all.push(file),
                Err(_) => {
                    is_full_for += 1;
                    tokio::time::sleep(std::time::Duration::from_millis(10)).await;
                }
            }
        }
        println!("full {}", all.len());
        serving.await.unwrap().unwrap();
        println!("is_clean {}", shutdown.completed().await.unwrap().is_clean());
        drop(all);
        drop(admin);
    });
}
