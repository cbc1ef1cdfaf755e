//! A process that has used up its file descriptors.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};

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

#[test]
fn s216_without_descriptors_the_admin_port_answers_and_the_queue_is_refused() {
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
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = |prefix: &str| loop {
        let line = lines.next().expect("the child says more").unwrap();
        if let Some((_, rest)) = line.split_once(prefix) {
            return rest.to_owned();
        }
    };
    let app: SocketAddr = next("app ").parse().unwrap();
    let admin: SocketAddr = next("admin ").parse().unwrap();
    next("full");
    // They are queued in the kernel, because nobody can accept them.
    let queued: Vec<_> = (0..5)
        .map(|_| {
            let mut stream = TcpStream::connect(app).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
            stream
        })
        .collect();
    for _ in 0..3 {
        let alive = answer(admin, "GET /livez HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        assert!(alive.unwrap().ends_with("alive"));
    }
    let stop = "POST /shutdown HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    assert!(answer(admin, stop).unwrap().starts_with("HTTP/1.1 202"));
    for mut stream in queued {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it is not reset");
        assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("draining"), "{answer:?}");
        assert!(answer.contains("connection: close"), "{answer:?}");
    }
    assert_eq!(next("clean "), "true");
    assert!(child.wait().unwrap().success());
}

/// The process, to be started by the test with few descriptors.
#[test]
#[ignore = "the test above starts it"]
fn exhausted() {
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
        // The thread of the admin port has opened all it needs when it answers.
        let addr = admin.local_addr();
        let ask = move || answer(addr, "GET /livez HTTP/1.0\r\n\r\n").unwrap();
        tokio::task::spawn_blocking(ask).await.unwrap();
        let mut all = Vec::new();
        let mut is_full_for = 0;
        // Also those that become free a little later.
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
        println!("clean {}", shutdown.completed().await.unwrap().is_clean());
        drop(all);
        drop(admin);
    });
}
