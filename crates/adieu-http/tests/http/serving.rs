//! The connections of a server, before and during its shutdown.

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

/// An application whose page `/slow` is answered when its sender in the channel is used.
fn slow() -> (Router, std::sync::mpsc::Receiver<oneshot::Sender<()>>) {
    let (called, calls) = std::sync::mpsc::sync_channel(9);
    let handler = async move || {
        let (release, wait) = oneshot::channel();
        called.send(release).unwrap();
        let _ = wait.await;
        "done"
    };
    (hello().route("/slow", get(handler)), calls)
}

/// A lame duck that lasts longer than the test.
fn lame_duck() -> Config {
    Config::for_tests().lame_duck(Duration::from_secs(60)).lame_duck_min(Duration::from_secs(60))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s86_during_the_lame_duck_responses_carry_connection_close() {
    let server = Server::start_with(hello(), lame_duck(), |serve| serve).await;
    let mut idle = server.connect().await;
    assert!(!idle.get("/").await.contains("connection: close"));
    drop(server.shutdown.run(Reason::Unknown));
    let is_draining = |readiness| readiness == Readiness::Draining;
    server.shutdown.until_readiness(is_draining).await;
    winding_down(&server).await;

    let kept = idle.get("/").await;
    assert!(kept.starts_with("http/1.1 200") && kept.contains("connection: close"), "{kept}");
    assert_eq!(idle.rest().await.unwrap(), "", "the connection is closed after the response");
    let new = server.connect().await.get("/").await;
    assert!(new.starts_with("http/1.1 200") && new.contains("connection: close"), "{new}");
    server.shutdown.shorten(Duration::from_secs(2));
    server.end().await;
}

/// Waits until responses carry `Connection: close`.
async fn winding_down(server: &Server) {
    while !server.connect().await.get("/").await.contains("connection: close") {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s367_an_http2_connection_gets_goaway_and_its_open_requests_finish() {
    let (app, calls) = slow();
    let server = Server::start_with(app, lame_duck(), |serve| serve).await;
    let stream = TcpStream::connect(server.addr).await.unwrap();
    let io = hyper_util::rt::TokioIo::new(stream);
    let executor = hyper_util::rt::TokioExecutor::new();
    let (mut requests, connection) =
        hyper::client::conn::http2::handshake(executor, io).await.unwrap();
    let connection = tokio::spawn(connection);
    let request = http::Request::get("http://test/slow").body(String::new()).unwrap();
    let response = tokio::spawn(requests.send_request(request));
    let release = tokio::task::block_in_place(|| calls.recv()).unwrap();
    drop(server.shutdown.run(Reason::Unknown));
    winding_down(&server).await;
    release.send(()).unwrap();
    assert_eq!(response.await.unwrap().unwrap().status(), 200);
    // GOAWAY arrives without another request, and ends the connection.
    tokio::time::timeout(PATIENCE, connection)
        .await
        .expect("GOAWAY should arrive")
        .unwrap()
        .unwrap();
    server.shutdown.shorten(Duration::from_secs(2));
    server.end().await;
}

/// A server whose gate is closed while one request is inside.
struct Draining {
    server: Server,
    /// The client of the request.
    busy: Client,
    /// A client with an open connection.
    idle: Client,
    /// Makes the request's handler answer.
    release: oneshot::Sender<()>,
}

impl Draining {
    async fn start() -> Self {
        let (app, calls) = slow();
        let server = Server::start(app).await;
        let (mut busy, mut idle) = (server.connect().await, server.connect().await);
        idle.get("/").await;
        busy.request("/slow").await;
        let release = tokio::task::block_in_place(|| calls.recv()).unwrap();
        server.close().await;
        Self { server, busy, idle, release }
    }

    async fn end(mut self) {
        self.release.send(()).unwrap();
        assert!(self.busy.response().await.ends_with("done"));
        assert!(self.server.end().await.is_clean());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s87_an_admitted_request_finishes() {
    Draining::start().await.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s368_a_late_request_on_an_open_connection_is_refused_and_not_reset() {
    let mut draining = Draining::start().await;
    let late = draining.idle.get("/").await;
    assert!(late.starts_with("http/1.1 503") && late.contains("retry-after: 1"), "{late}");
    assert!(late.contains("connection: close") && late.contains(r#""error":"draining""#));
    assert_eq!(draining.idle.rest().await.unwrap(), "");
    draining.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s360_a_connection_without_a_request_holds_no_pass() {
    let server = Server::start(hello()).await;
    let mut idle = server.connect().await;
    idle.get("/").await;
    assert_eq!(server.shutdown.gates()[0].in_flight(), 0);
    assert!(server.end().await.is_clean());
}

#[test]
fn s88_connections_in_the_kernels_queue_are_served() {
    serves_the_queue(|serve, _| serve);
}

#[test]
fn s88_connections_in_the_kernels_queue_are_served_with_a_shared_gate() {
    serves_the_queue(|serve, shutdown| {
        let gate = shutdown.add_gate("api").unwrap();
        shutdown.drain(&gate).unwrap();
        serve.gate(&gate)
    });
}

type Serving = adieu_http::Serve<tokio::net::TcpListener, Router>;

fn serves_the_queue(with: impl FnOnce(Serving, &adieu_core::Shutdown) -> Serving + Send + 'static) {
    // A current-thread runtime, which is blocked while clients connect, so that all of them are in
    // the kernel's queue.
    let (addr_tx, addr_rx) = std::sync::mpsc::channel();
    let (release, blocked) = std::sync::mpsc::channel::<()>();
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
            blocked.recv().unwrap(); // Blocks the only thread, so that no connection is accepted.
            assert!(server.end().await.is_clean());
        });
    });
    let addr = addr_rx.recv().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut clients = Vec::new();
        for at in 0..20 {
            let mut client = Client::new(TcpStream::connect(addr).await.unwrap());
            // Half of them have not sent a request yet.
            if at % 2 == 0 {
                client.request("/").await;
            }
            clients.push(client);
        }
        release.send(()).unwrap();
        for (at, client) in clients.iter_mut().enumerate() {
            if at % 2 == 1 {
                client.request("/").await;
            }
            let response = client.response().await;
            assert!(response.starts_with("http/1.1 200"), "client {at}: {response}");
        }
    });
    serving.join().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s89_the_drain_ends_with_its_window_regardless_of_clients() {
    let big = Router::new()
        .route("/big", get(async || vec![7u8; 64 << 20]))
        .route("/upload", post(async |body: axum::body::Bytes| body.len().to_string()));
    let config = Config::for_tests()
        .phase_timeout(Phase::SERVICE_REQUESTS_DONE, Duration::from_millis(1_200));
    let server = Server::start_with(big, config, |serve| serve).await;
    // An idle client, half a head, half a body, and a client that does not read.
    let _idle = server.connect().await;
    let mut slow_head = server.connect().await;
    slow_head.send("GET / HTTP/1.1\r\nx-slow: ").await;
    let mut upload = server.connect().await;
    upload.send("POST /upload HTTP/1.1\r\nhost: x\r\ncontent-length: 99\r\n\r\nhalf").await;
    let mut stalled = server.connect().await;
    stalled.request("/big").await;
    stalled.until("\r\n\r\n").await;
    // The server has read all of it.
    tokio::time::sleep(Duration::from_millis(50)).await;
    let began = std::time::Instant::now();
    let shutdown = server.shutdown.clone();
    let report = server.end().await;
    assert!(began.elapsed() < Duration::from_secs(8), "took {:?}", began.elapsed());
    let detail = |name: &str| {
        let mut tasks = report.phases.iter().flat_map(|phase| &phase.tasks);
        tasks.find(|task| &*task.name == name).unwrap().detail.clone().unwrap_or_default()
    };
    let inside = detail("drain http");
    assert!(inside.starts_with("1 in flight") && inside.ends_with("POST /upload"), "{inside}");
    // The refusal of the upload may be unread, too.
    let unread = detail("finish http connections");
    // Idle connections may have been closed by then, so their number is not checked.
    assert!(unread.contains(" connections, unread: ") && unread.contains("GET /big"), "{unread}");
    // The upload had no response yet, and gets the refusal.
    assert!(upload.response().await.starts_with("http/1.1 503"));
    assert!(stalled.rest().await.map_or(true, |rest| rest.len() < 64 << 20), "the answer is cut");
    drop(shutdown);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s215_a_client_that_stops_reading_is_disconnected_and_one_that_reads_is_not() {
    const SIZE: usize = 32 << 20;
    let app = Router::new().route("/big", get(async || vec![b'x'; SIZE]));
    let server = Server::start_with(app, Config::for_tests(), |serve| {
        serve.stall_timeout(Duration::from_secs(2))
    })
    .await;
    let (mut reader, mut stalled) = (server.connect().await, server.connect().await);
    for client in [&mut reader, &mut stalled] {
        client.request("/big").await;
        client.until("\r\n\r\n").await;
    }
    // The handlers are done and their passes released. Most of the bytes have not been sent.
    let ended = tokio::spawn(server.end());
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(reader.rest().await.unwrap().len(), SIZE);
    let report = ended.await.unwrap();
    assert!(report.took < Duration::from_secs(8), "the other client is disconnected: {report}");
    assert!(stalled.rest().await.map_or(true, |rest| rest.len() < SIZE));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s369_a_client_that_is_still_sending_can_read_its_refusal() {
    let mut draining = Draining::start().await;
    let upload = &mut draining.idle;
    upload.send("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 400000\r\n\r\n").await;
    for _ in 0..40 {
        upload.send(vec![7; 10_000]).await; // Fails if the connection has been reset.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(upload.response().await.starts_with("http/1.1 503"));
    draining.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s377_a_server_that_is_started_after_the_shutdown_has_begun_returns_at_once() {
    let shutdown = adieu_core::Shutdown::configured(Config::for_tests()).unwrap();
    assert!(shutdown.run(Reason::Unknown).await.unwrap().is_clean());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    adieu_http::serve(listener, hello(), &shutdown).await.unwrap();
    assert!(TcpStream::connect(addr).await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s376_a_dropped_server_makes_the_process_unavailable() {
    let shutdown = adieu_core::Shutdown::configured(Config::for_tests()).unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let serving = tokio::spawn(adieu_http::serve(listener, hello(), &shutdown).into_future());
    shutdown.until_readiness(|readiness| readiness.is_ready()).await;
    serving.abort();
    let _ = serving.await;
    assert_eq!(shutdown.readiness(), Readiness::Unavailable);
    assert!(shutdown.run(Reason::Unknown).await.unwrap().is_clean());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s90_the_process_is_not_ready_before_each_server_listens() {
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
async fn s91_unix_sockets_are_served_and_drained() {
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
async fn s217_during_the_lame_duck_probes_and_http10_clients_get_connection_close() {
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
    assert_eq!(client.rest().await.unwrap(), "", "the connection is closed");
    server.shutdown.shorten(Duration::from_secs(2));
    server.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn s218_a_request_that_blocks_its_thread_is_listed() {
    let (called, calls) = std::sync::mpsc::sync_channel(1);
    let (release, blocked) = std::sync::mpsc::channel::<()>();
    let blocked = std::sync::Arc::new(std::sync::Mutex::new(blocked));
    let block = async move || {
        called.send(()).unwrap();
        blocked.lock().unwrap().recv().unwrap();
        "done"
    };
    let server = Server::start(Router::new().route("/block", get(block))).await;
    let mut client = server.connect().await;
    client.request("/block?token=1").await;
    tokio::task::block_in_place(|| calls.recv()).unwrap();
    server.close().await;
    let waiting = server.shutdown.gates()[0].summary();
    assert!(waiting.starts_with("1 in flight") && waiting.ends_with("GET /block"), "{waiting}");
    release.send(()).unwrap();
    assert!(client.response().await.ends_with("done"));
    assert!(server.end().await.is_clean());
}
