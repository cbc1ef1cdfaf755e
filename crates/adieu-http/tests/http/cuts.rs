//! Requests that are cut: each is counted once, and named.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use adieu_core::{Config, Format, Gate, Phase, Reason, Report};
use adieu_http::GateLayer;
use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http_body_util::BodyExt;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};
use tokio_stream::StreamExt;

use super::answers::{Log, get_request, http2, problems};
use super::client::{Client, Server};

/// Handlers that never answer, and responses that never end.
fn stuck() -> Router {
    let drip = async || {
        let chunk = || Ok::<_, std::io::Error>(bytes::Bytes::from_static(b"tick\n"));
        let ticks = tokio_stream::iter(std::iter::repeat_with(chunk));
        Body::from_stream(ticks.throttle(Duration::from_millis(20)))
    };
    Router::new()
        .route("/wait/{n}", get(async || pending::<String>().await))
        .route("/drip/{n}", get(drip))
}

fn window(window: Duration) -> Config {
    Config::for_tests().drain_timeout(window)
}

async fn inside(gate: &Gate, count: usize) {
    while gate.in_flight() < count {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn run(server: &Server) -> Arc<Report> {
    server.shutdown.run(Reason::Unknown).await.unwrap()
}

/// Has `2 * each` requests over HTTP/1 and as many over HTTP/2 cut. Returns their paths, the report
/// and how many the gate has counted.
async fn cut(each: usize, config: Config) -> (Vec<String>, Arc<Report>, u64) {
    let server = Server::start_with(stuck(), config, |serve| serve).await;
    let gate = server.shutdown.gates()[0].clone();
    let paths =
        |first| (first..first + each).flat_map(|n| [format!("/wait/{n}"), format!("/drip/{n}")]);
    let (one, two): (Vec<_>, Vec<_>) = (paths(1_000).collect(), paths(2_000).collect());
    let mut clients = Vec::new();
    for path in &one {
        let mut client = server.connect().await;
        client.request(path).await;
        clients.push(client);
    }
    let (requests, connection) = http2(TcpStream::connect(server.addr).await.unwrap()).await;
    let mut reading = tokio::task::JoinSet::new();
    for path in &two {
        let response = requests.clone().send_request(get_request(path));
        reading.spawn(async move {
            let mut body = response.await.ok()?.into_body();
            while body.frame().await?.is_ok() {}
            None::<()>
        });
    }
    inside(&gate, 4 * each).await;
    let report = run(&server).await;
    drop((clients, requests, connection, reading));
    (one.into_iter().chain(two).collect(), report, gate.cut_off())
}

// On one thread, because a default subscriber is the subscriber of one thread.
#[tokio::test]
async fn s464_every_request_that_is_cut_is_named_in_the_log() {
    let log = Log::default();
    let _guard = tracing::subscriber::set_default(log.subscriber());
    let (paths, report, counted) = cut(10, window(Duration::from_millis(500))).await;
    let text = log.text();
    let lines: Vec<_> = text.lines().filter(|line| line.contains("response cut")).collect();
    for path in &paths {
        let named = lines.iter().filter(|line| line.contains(&format!("GET {path}\""))).count();
        assert_eq!(named, 1, "{path} in\n{text}");
    }
    assert_eq!((lines.len(), counted), (40, 40));
    let problems = problems(&report);
    assert!(problems.contains("40 responses cut: GET /"), "{problems}");
    assert!(problems.contains(" and 20 more"), "{problems}");
    assert!(problems.contains("(not finished when the window ended)"), "{problems}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s465_a_request_that_is_cut_counts_once() {
    for window in [Duration::ZERO, Duration::from_millis(300)] {
        let config = Config::for_tests().drain_timeout(window);
        let (_, report, counted) = cut(5, config).await;
        assert!(problems(&report).contains("20 responses cut"), "{report}");
        assert_eq!(counted, 20, "with a window of {window:?}");
    }
}

/// Serves routes with a window of their own on the server's gate.
async fn with_route_window(route: Duration, gate_window: Duration) -> (Server, Gate) {
    let gate = Gate::new("api");
    let app = stuck().layer(GateLayer::new(&gate).window(route));
    let server = Server::start_with(app, window(gate_window), |serve| serve.gate(&gate)).await;
    (server, gate)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s466_a_request_on_a_route_with_a_window_counts_once_and_gets_the_refusal() {
    let (server, gate) =
        with_route_window(Duration::from_secs(10), Duration::from_millis(300)).await;
    let mut client = server.connect().await;
    client.request("/wait/1").await;
    inside(&gate, 1).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let summary = gate.summary();
    assert!(summary.starts_with("1 in flight"), "{summary}");
    assert_eq!(summary.matches("/wait/1").count(), 1, "{summary}");
    let report = run(&server).await;
    assert!(client.response().await.starts_with("http/1.1 503"));
    let problems = problems(&report);
    assert!(problems.contains("1 response cut: GET /wait/1"), "{problems}");
    assert_eq!(gate.cut_off(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s226_a_request_is_named_if_both_windows_end_at_once() {
    const WINDOW: Duration = Duration::from_millis(300);
    for _ in 0..10 {
        let (server, gate) = with_route_window(WINDOW, WINDOW).await;
        let (mut wait, mut drip) = (server.connect().await, server.connect().await);
        wait.request("/wait/1").await;
        drip.request("/drip/2").await;
        drip.until("tick\n").await;
        inside(&gate, 2).await;
        let report = run(&server).await;
        let problems = problems(&report);
        assert!(problems.contains("GET /wait/1") && problems.contains("GET /drip/2"), "{problems}");
        assert_eq!(gate.cut_off(), 2, "{problems}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s467_a_request_is_listed_with_its_age_even_if_it_has_never_waited() {
    let block = async || std::thread::sleep(Duration::from_secs(2));
    let app = Router::new().route("/block", get(block));
    let server = Server::start(app).await;
    let gate = server.shutdown.gates()[0].clone();
    let mut idle = server.connect().await;
    idle.get("/none").await;
    let mut block = Client::new(TcpStream::connect(server.addr).await.unwrap());
    block.request("/block").await;
    // Not through the runtime, whose timers may wait for the thread that is blocked.
    while gate.in_flight() == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(Duration::from_millis(1_500));
    let oldest = gate.oldest(1);
    let age = oldest.first().expect("the request is listed").age;
    assert!(age > Duration::from_millis(1_400) && age < Duration::from_millis(2_600), "{age:?}");
    block.response().await;
}

#[tokio::test]
async fn s780_an_answer_that_was_not_sent_is_in_the_report_without_the_phases_of_its_server() {
    let app = Router::new().route("/large", get(async || vec![b'x'; 64 << 20]));
    let server = Server::start_with(app, Config::for_tests(), |serve| serve).await;
    let mut client = TcpStream::connect(server.addr).await.unwrap();
    client.write_all(b"GET /large HTTP/1.1\r\nhost: test\r\n\r\n").await.unwrap();
    // The client reads nothing, and no buffer holds the rest of the response.
    client.readable().await.unwrap();
    let running = server.shutdown.run_from(Phase::CLOSE_RESOURCES, Reason::Unknown).unwrap();
    let report = running.await.unwrap();
    assert!(!report.is_clean(), "{report}");
    assert!(report.to_string().contains("1 answer not sent: GET /large"), "{report}");
}

/// Handlers and bodies that fail when the gate has closed, or at once.
fn failing(gate: &Gate) -> Router {
    let closed = |gate: &Gate| gate.closed_token();
    let (handler, body) = (closed(gate), closed(gate));
    let panics = async move || -> String {
        handler.cancelled().await;
        panic!("on purpose");
    };
    let breaks = async move || {
        let first = tokio_stream::once(Ok(bytes::Bytes::from_static(b"some")));
        let failed = async move {
            body.cancelled().await;
            Err(std::io::Error::other("disk gone"))
        };
        let failed = futures_util::stream::once(failed);
        Body::from_stream(futures_util::StreamExt::chain(first, failed))
    };
    let answers_500 = {
        let closed = gate.closed_token();
        async move || {
            closed.cancelled().await;
            http::StatusCode::INTERNAL_SERVER_ERROR
        }
    };
    Router::new()
        .route("/panics", get(panics))
        .route("/breaks", get(breaks))
        .route("/answers-500", get(answers_500))
        .route("/panics-now", get(async || -> String { panic!("on purpose") }))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1412_requests_that_the_application_fails_in_the_drain_are_named() {
    for is_layered in [false, true] {
        let gate = Gate::new("api");
        let app = failing(&gate);
        let app = if is_layered { app.layer(GateLayer::new(&gate)) } else { app };
        let config = window(Duration::from_secs(20));
        let server = Server::start_with(app, config, |serve| serve.gate(&gate)).await;
        // Panics before the shutdown are ordinary failures.
        let mut before = server.connect().await;
        before.request("/panics-now").await;
        let mut clients = Vec::new();
        for path in ["/panics", "/breaks", "/answers-500"] {
            let mut client = server.connect().await;
            client.request(path).await;
            clients.push(client);
        }
        let (requests, connection) = http2(TcpStream::connect(server.addr).await.unwrap()).await;
        let mut reading = tokio::task::JoinSet::new();
        for path in ["/panics?2", "/breaks?2", "/answers-500?2"] {
            let response = requests.clone().send_request(get_request(path));
            reading.spawn(async move {
                let mut body = response.await.ok()?.into_body();
                while body.frame().await?.is_ok() {}
                None::<()>
            });
        }
        while gate.in_flight() != 6 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let report = run(&server).await;
        let problems = problems(&report);
        assert!(!report.is_clean() && problems.contains("4 cut off: "), "{problems}");
        for named in ["GET /panics panicked", "GET /breaks failed: disk gone"] {
            assert!(problems.contains(named), "{named} in {problems}");
        }
        assert!(!problems.contains("500") && !problems.contains("now"), "{problems}");
        drop((before, clients, connection, reading));
    }
}

/// Ends a server to which a client has connected without having sent a request. Returns the report, or
/// `None` if that took so long that the connection was no longer new.
async fn with_new_connection(toml: &str) -> Option<Arc<Report>> {
    let config = Config::parse(toml, Format::Toml).unwrap();
    let server = Server::start_with(stuck(), config, |serve| serve).await;
    let connecting = Instant::now();
    let client = server.connect().await;
    let report = run(&server).await;
    drop(client);
    (connecting.elapsed() < Duration::from_millis(450)).then_some(report)
}

#[tokio::test]
async fn s1009_new_connections_that_no_phase_has_waited_for_are_reported() {
    let toml = "lame-duck = \"0s\"\n[phases.service-requests-done]\nenabled = false\n";
    for _ in 0..20 {
        let Some(report) = with_new_connection(toml).await else { continue };
        assert!(!report.is_clean(), "{report}");
        assert!(report.to_string().contains("1 cut off: a new connection"), "{report}");
        return;
    }
    panic!("the machine is too busy");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1705_a_request_that_is_dropped_in_the_drain_because_its_client_closed_is_named() {
    let gate = Gate::new("api");
    let server =
        Server::start_with(stuck(), window(Duration::from_secs(20)), |serve| serve.gate(&gate))
            .await;
    // Before the shutdown, that is the end of an ordinary request.
    let mut before = server.connect().await;
    before.request("/wait/1").await;
    inside(&gate, 1).await;
    before.half_close().await;
    while gate.in_flight() > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let (mut wait, mut drip) = (server.connect().await, server.connect().await);
    wait.request("/wait/2").await;
    drip.request("/drip/3").await;
    drip.until("tick\n").await;
    inside(&gate, 2).await;
    let run = server.shutdown.run(Reason::Unknown);
    gate.closed_token().cancelled().await;
    wait.half_close().await;
    drip.half_close().await;
    let report = run.await.unwrap();
    let problems = problems(&report);
    assert!(!report.is_clean() && problems.contains("2 cut off: "), "{problems}");
    for named in ["GET /wait/2 (its client closed", "GET /drip/3 (its client closed"] {
        assert!(problems.contains(named), "{named} in {problems}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1705_a_request_that_is_answered_after_its_client_has_half_closed_is_finished() {
    let gate = Gate::new("api");
    let closed = gate.closed_token();
    let app = Router::new().route(
        "/slow",
        get(async move || {
            closed.cancelled().await;
            tokio::time::sleep(Duration::from_millis(300)).await;
            "answer"
        }),
    );
    let server = Server::start_with(app, window(Duration::from_secs(20)), |serve| {
        serve.gate(&gate).http1_half_close(true)
    })
    .await;
    let mut client = server.connect().await;
    client.request("/slow").await;
    inside(&gate, 1).await;
    client.half_close().await;
    let report = run(&server).await;
    assert!(client.rest().await.unwrap().ends_with("answer"));
    assert!(report.is_clean(), "{}", problems(&report));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1706_a_panic_before_the_first_poll_of_a_handler_is_named() {
    // In the call itself, not in the future that it returns.
    let app = tower::service_fn(|_: http::Request<hyper::body::Incoming>| {
        if std::hint::black_box(true) {
            panic!("on purpose");
        }
        std::future::ready(Ok::<_, std::convert::Infallible>(http::Response::new(Body::empty())))
    });
    for _ in 0..20 {
        let server = Server::start_with(app, window(Duration::from_secs(20)), |serve| serve).await;
        let gate = server.shutdown.gates()[0].clone();
        let connecting = Instant::now();
        // The first request of a new connection is admitted after the gate has closed.
        let mut client = server.connect().await;
        let run = server.shutdown.run(Reason::Unknown);
        gate.closed_token().cancelled().await;
        client.request("/first").await;
        let report = run.await.unwrap();
        if connecting.elapsed() > Duration::from_millis(450) && report.is_clean() {
            continue; // The connection was no longer new.
        }
        let problems = problems(&report);
        assert!(problems.contains("1 cut off: GET /first panicked"), "{problems}");
        assert!(!problems.contains("work panicked"), "{problems}");
        return;
    }
    panic!("the machine is too busy");
}

#[tokio::test]
async fn s1707_a_server_that_was_rejected_has_lost_no_requests() {
    let toml = "strict = true\nkill-after = \"20s\"\nlame-duck = \"0s\"\n";
    let config = Config::parse(toml, Format::Toml).unwrap();
    let shutdown = adieu_core::Shutdown::configured(config).unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    // Its first tasks fit into the budget, the last one does not.
    let serve = adieu_http::serve(listener, Router::new(), &shutdown);
    let error = serve.hard_stop(Duration::from_secs(60)).await.unwrap_err();
    assert!(matches!(error, adieu_http::ServeError::AddTask { .. }), "{error:?}");
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    assert!(report.is_clean(), "{}", problems(&report));
}

/// Returns the frames of HTTP/2 requests for `path`, on the streams with these numbers.
fn http2_requests(path: &str, numbers: std::ops::Range<u32>) -> Vec<u8> {
    let mut frames = Vec::new();
    for number in numbers {
        // HPACK: GET and http by index; the path and the authority as literals.
        let head =
            [&[0x82, 0x86, 0x04, path.len() as u8], path.as_bytes(), b"\x01\x04test"].concat();
        frames.extend([0, 0, head.len() as u8, 1, 5]);
        frames.extend((2 * number + 1).to_be_bytes());
        frames.extend(head);
    }
    frames
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1770_an_open_request_is_named_after_a_thousand_unread_responses() {
    let answered = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&answered);
    let quick = get(async move || {
        count.fetch_add(1, Ordering::SeqCst);
        "x"
    });
    let app = stuck().route("/quick", quick);
    let server = Server::start_with(app, window(Duration::from_millis(300)), |serve| serve).await;
    let gate = server.shutdown.gates()[0].clone();
    // A client whose kernel acknowledges next to nothing, because the client reads nothing.
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(1).unwrap();
    let mut client = socket.connect(server.addr).await.unwrap();
    client.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    client.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await.unwrap(); // SETTINGS.
    client.write_all(&http2_requests("/wait/1", 0..1)).await.unwrap();
    inside(&gate, 1).await;
    // Fewer at once than a client may have open.
    for first in (0..3_000).step_by(50) {
        client.write_all(&http2_requests("/quick", first + 1..first + 51)).await.unwrap();
        while answered.load(Ordering::SeqCst) < first + 50 || gate.in_flight() > 1 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    let open: Vec<_> = gate.oldest(10).into_iter().map(|work| work.label).collect();
    assert_eq!(open, ["GET /wait/1"]);
    let log = run(&server).await.to_string();
    assert!(log.contains("GET /wait/1"), "{log}");
}
