//! A server's connections, through its shutdown.

use std::time::Duration;

use adieu_core::{Config, Phase, Readiness, Reason};
use axum::Router;
use axum::routing::{get, post};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use super::client::{Client, PATIENCE, Server};

fn hello() -> Router {
    Router::new().route("/", get(async || "hello"))
}

/// Answers when it is let.
fn slow() -> (Router, std::sync::mpsc::Receiver<oneshot::Sender<()>>) {
    let (asked, asks) = std::sync::mpsc::sync_channel(9);
    let handler = async move || {
        let (let_go, wait) = oneshot::channel();
        asked.send(let_go).unwrap();
        let _ = wait.await;
        "done"
    };
    (hello().route("/slow", get(handler)), asks)
}

/// Long enough to look around in.
fn lame_duck() -> Config {
    Config::for_tests().lame_duck(Duration::from_secs(60)).lame_duck_min(Duration::from_secs(60))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s86_in_the_lame_duck_all_are_served_and_sent_away() {
    let server = Server::start_with(hello(), lame_duck(), |serve| serve).await;
    let mut idle = server.connect().await;
    assert!(!idle.get("/").await.contains("connection: close"));
    drop(server.shutdown.run(Reason::Unknown));
    let is_draining = |readiness| readiness == Readiness::Draining;
    server.shutdown.until_readiness(is_draining).await;
    winding_down(&server).await;

    let kept = idle.get("/").await;
    assert!(kept.starts_with("http/1.1 200") && kept.contains("connection: close"), "{kept}");
    assert_eq!(idle.rest().await.unwrap(), "", "it is closed by being used");
    let new = server.connect().await.get("/").await;
    assert!(new.starts_with("http/1.1 200") && new.contains("connection: close"), "{new}");
    server.shutdown.shorten(Duration::from_secs(2));
    server.end().await;
}

/// Waits until answers say so.
async fn winding_down(server: &Server) {
    while !server.connect().await.get("/").await.contains("connection: close") {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s86_http2_is_sent_away_with_goaway_and_loses_nothing() {
    let server = Server::start_with(hello(), lame_duck(), |serve| serve).await;
    let stream = TcpStream::connect(server.addr).await.unwrap();
    let io = hyper_util::rt::TokioIo::new(stream);
    let executor = hyper_util::rt::TokioExecutor::new();
    let (mut requests, connection) =
        hyper::client::conn::http2::handshake(executor, io).await.unwrap();
    let connection = tokio::spawn(connection);
    let request = || http::Request::get("http://test/").body(String::new()).unwrap();
    assert_eq!(requests.send_request(request()).await.unwrap().status(), 200);
    drop(server.shutdown.run(Reason::Unknown));
    // GOAWAY comes without our asking for anything, and ends the connection.
    tokio::time::timeout(PATIENCE, connection).await.expect("GOAWAY should come").unwrap().unwrap();
    server.shutdown.shorten(Duration::from_secs(2));
    server.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s87_what_got_in_finishes_and_what_comes_later_is_answered_not_reset() {
    let (app, asks) = slow();
    let server = Server::start(app).await;
    let (mut busy, mut idle) = (server.connect().await, server.connect().await);
    idle.get("/").await;
    busy.ask("/slow").await;
    let let_go = tokio::task::block_in_place(|| asks.recv()).unwrap();
    server.close().await;

    let late = idle.get("/").await;
    assert!(late.starts_with("http/1.1 503") && late.contains("retry-after: 1"), "{late}");
    assert!(late.contains("connection: close") && late.contains(r#""error":"draining""#));
    assert_eq!(idle.rest().await.unwrap(), "");
    let_go.send(()).unwrap();
    assert!(busy.response().await.ends_with("done"));
    assert!(server.end().await.is_clean());
}

#[test]
fn s88_who_is_in_the_kernels_queue_is_served() {
    queued(|serve, _| serve);
}

#[test]
fn s88_also_if_the_gate_is_drained_for_others_too() {
    queued(|serve, shutdown| {
        let gate = shutdown.gate("api").unwrap();
        shutdown.drain(&gate).unwrap();
        serve.gate(&gate)
    });
}

type Serving = adieu_http::Serve<tokio::net::TcpListener, Router>;

fn queued(with: impl FnOnce(Serving, &adieu_core::Shutdown) -> Serving + Send + 'static) {
    // A current-thread runtime, which is held up while clients connect: they are then in the
    // kernel's queue and nowhere else.
    let (addr_tx, addr_rx) = std::sync::mpsc::channel();
    let (let_go, held) = std::sync::mpsc::channel::<()>();
    let serving = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let shutdown = adieu_core::Shutdown::configured(Config::for_tests()).unwrap();
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let server = Server::adopt(shutdown.clone(), listener, |listener| {
                with(adieu_http::serve(listener, hello(), &shutdown), &shutdown).into_future()
            });
            shutdown.until_readiness(|readiness| readiness.is_ready()).await;
            addr_tx.send(server.addr).unwrap();
            held.recv().unwrap(); // Blocks the only thread: nobody accepts.
            assert!(server.end().await.is_clean());
        });
    });
    let addr = addr_rx.recv().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut clients = Vec::new();
        for at in 0..20 {
            let mut client = Client::new(TcpStream::connect(addr).await.unwrap());
            // Half of them have not even asked yet.
            if at % 2 == 0 {
                client.ask("/").await;
            }
            clients.push(client);
        }
        let_go.send(()).unwrap();
        for (at, client) in clients.iter_mut().enumerate() {
            if at % 2 == 1 {
                client.ask("/").await;
            }
            let response = client.response().await;
            assert!(response.starts_with("http/1.1 200"), "client {at}: {response}");
        }
    });
    serving.join().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s89_nobody_holds_the_drain_beyond_its_window() {
    let big = Router::new()
        .route("/big", get(async || vec![7u8; 64 << 20]))
        .route("/upload", post(async |body: axum::body::Bytes| body.len().to_string()));
    let config = Config::for_tests()
        .phase_timeout(Phase::SERVICE_REQUESTS_DONE, Duration::from_millis(1_200));
    let server = Server::start_with(big, config, |serve| serve).await;
    // Idle; half a head; half a body; one that does not read.
    let _idle = server.connect().await;
    let mut loris = server.connect().await;
    loris.send("GET / HTTP/1.1\r\nx-slow: ").await;
    let mut upload = server.connect().await;
    upload.send("POST /upload HTTP/1.1\r\nhost: x\r\ncontent-length: 99\r\n\r\nhalf").await;
    let mut deaf = server.connect().await;
    deaf.ask("/big").await;
    deaf.until("\r\n\r\n").await;
    // All of them have been heard.
    tokio::time::sleep(Duration::from_millis(50)).await;
    let began = std::time::Instant::now();
    let shutdown = server.shutdown.clone();
    let report = server.end().await;
    assert!(began.elapsed() < Duration::from_secs(8), "took {:?}", began.elapsed());
    let left = |name: &str| {
        let mut tasks = report.phases.iter().flat_map(|phase| &phase.tasks);
        tasks.find(|task| &*task.name == name).unwrap().detail.clone().unwrap_or_default()
    };
    let inside = left("drain http");
    assert!(inside.starts_with("1 in flight") && inside.ends_with("POST /upload"), "{inside}");
    // The refusal of the upload may be on its way, too.
    let unread = left("finish http connections");
    assert!(unread.starts_with("4 connections, unread: "), "{unread}");
    assert!(unread.contains("GET /big"), "{unread}");
    // What had no answer yet has got one.
    assert!(upload.response().await.starts_with("http/1.1 503"));
    assert!(deaf.rest().await.map_or(true, |rest| rest.len() < 64 << 20), "broken off");
    drop(shutdown);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s89_an_answer_is_sent_to_its_last_byte_to_whoever_goes_on_reading() {
    const SIZE: usize = 32 << 20;
    let app = Router::new().route("/big", get(async || vec![b'x'; SIZE]));
    let server = Server::start(app).await;
    let (mut reader, mut deaf) = (server.connect().await, server.connect().await);
    for client in [&mut reader, &mut deaf] {
        client.ask("/big").await;
        client.until("\r\n\r\n").await;
    }
    // The handlers are done, their passes are gone; most of the bytes are still here.
    let ended = tokio::spawn(server.end());
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(reader.rest().await.unwrap().len(), SIZE);
    let report = ended.await.unwrap();
    assert!(report.took < Duration::from_secs(8), "who reads nothing is given up: {report}");
    assert!(deaf.rest().await.map_or(true, |rest| rest.len() < SIZE));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s87_who_is_still_sending_gets_to_read_its_refusal() {
    let (app, asks) = slow();
    let server = Server::start(app).await;
    let (mut busy, mut upload) = (server.connect().await, server.connect().await);
    upload.get("/").await;
    busy.ask("/slow").await;
    let let_go = tokio::task::block_in_place(|| asks.recv()).unwrap();
    server.close().await;
    upload.send("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 400000\r\n\r\n").await;
    for _ in 0..40 {
        upload.send(vec![7; 10_000]).await; // Fails if the connection has been reset.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(upload.response().await.starts_with("http/1.1 503"));
    let_go.send(()).unwrap();
    assert!(busy.response().await.ends_with("done"));
    assert!(server.end().await.is_clean());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s90_told_to_stop_while_starting_up_it_serves_nothing_and_nothing_is_wrong() {
    let shutdown = adieu_core::Shutdown::configured(Config::for_tests()).unwrap();
    assert!(shutdown.run(Reason::Unknown).await.unwrap().is_clean());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    adieu_http::serve(listener, hello(), &shutdown).await.unwrap();
    assert!(TcpStream::connect(addr).await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s90_a_server_that_is_dropped_does_not_hold_up_the_shutdown() {
    let shutdown = adieu_core::Shutdown::configured(Config::for_tests()).unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let serving = tokio::spawn(adieu_http::serve(listener, hello(), &shutdown).into_future());
    shutdown.until_readiness(|readiness| readiness.is_ready()).await;
    serving.abort();
    let _ = serving.await;
    assert_eq!(shutdown.readiness(), Readiness::Unavailable, "nobody serves any more");
    assert!(shutdown.run(Reason::Unknown).await.unwrap().is_clean());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s90_of_several_servers_none_makes_the_process_ready_alone() {
    let shutdown = adieu_core::Shutdown::configured(Config::for_tests()).unwrap();
    let bind = async || tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let first = adieu_http::serve(bind().await, hello(), &shutdown).into_future();
    let second = adieu_http::serve(bind().await, hello(), &shutdown).name("intern").into_future();
    let first = tokio::spawn(first);
    tokio::time::sleep(Duration::from_millis(30)).await;
    assert_eq!(shutdown.readiness(), Readiness::Starting, "the second does not listen yet");
    let second = tokio::spawn(second);
    shutdown.until_readiness(|readiness| readiness.is_ready()).await;
    assert!(shutdown.run(Reason::Unknown).await.unwrap().is_clean());
    first.await.unwrap().unwrap();
    second.await.unwrap().unwrap();
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s91_a_unix_socket_serves_as_well() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.sock");
    let shutdown = adieu_core::Shutdown::configured(Config::for_tests()).unwrap();
    let listener = tokio::net::UnixListener::bind(&path).unwrap();
    let serving = tokio::spawn(adieu_http::serve(listener, hello(), &shutdown).into_future());
    let mut client = tokio::net::UnixStream::connect(&path).await.unwrap();
    client.write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    assert!(answer.ends_with("hello"), "{answer}");
    assert!(shutdown.run(Reason::Unknown).await.unwrap().is_clean());
    serving.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s217_in_the_lame_duck_probes_and_http10_clients_are_sent_away() {
    let config = lame_duck();
    let shutdown = adieu_core::Shutdown::configured(config).unwrap();
    let probes = adieu_http::Probes::new(&shutdown);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = Server::adopt(shutdown.clone(), listener, |listener| {
        let app = hello().route("/closes", get(async || ([("connection", "close")], "bye")));
        adieu_http::serve(listener, app, &shutdown).probes(probes).into_future()
    });
    shutdown.until_readiness(|readiness| readiness.is_ready()).await;
    let mut prober = server.connect().await;
    assert!(!prober.get("/readyz").await.contains("connection: close"));
    let old = "GET / HTTP/1.0\r\nconnection: keep-alive\r\n\r\n";
    let mut before = server.connect().await;
    before.send(old).await;
    assert!(before.response().await.contains("connection: keep-alive"));
    let mut refused = server.connect().await;
    refused.send("GET /closes HTTP/1.0\r\nconnection: keep-alive\r\n\r\n").await;
    let head = refused.response().await;
    assert!(head.contains("connection: close") && !head.contains("keep-alive"), "{head}");
    drop(server.shutdown.run(Reason::Unknown));
    winding_down(&server).await;

    let probed = prober.get("/readyz").await;
    assert!(probed.starts_with("http/1.1 503") && probed.contains("connection: close"), "{probed}");
    assert_eq!(prober.rest().await.unwrap(), "");
    let mut client = server.connect().await;
    client.send(old).await;
    let head = client.response().await;
    assert!(head.contains("connection: close") && !head.contains("keep-alive"), "{head}");
    assert_eq!(client.rest().await.unwrap(), "", "it is closed");
    server.shutdown.shorten(Duration::from_secs(2));
    server.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn s218_a_request_that_blocks_its_thread_is_named() {
    let (asked, asks) = std::sync::mpsc::sync_channel(1);
    let (let_go, held) = std::sync::mpsc::channel::<()>();
    let held = std::sync::Arc::new(std::sync::Mutex::new(held));
    let block = async move || {
        asked.send(()).unwrap();
        held.lock().unwrap().recv().unwrap();
        "done"
    };
    let server = Server::start(Router::new().route("/block", get(block))).await;
    let mut client = server.connect().await;
    client.ask("/block?token=1").await;
    tokio::task::block_in_place(|| asks.recv()).unwrap();
    server.close().await;
    let waiting = server.shutdown.gates()[0].summary();
    assert!(waiting.starts_with("1 in flight") && waiting.ends_with("GET /block"), "{waiting}");
    let_go.send(()).unwrap();
    assert!(client.response().await.ends_with("done"));
    assert!(server.end().await.is_clean());
}
