//! Settings of servers and layers, and the metrics of the admin port.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use adieu_core::{Config, Phase, Reason};
use adieu_http::{Admin, GateLayer};
use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http::header::HeaderValue;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::client::{Client, PATIENCE, Server};

fn hello() -> Router {
    Router::new().route("/", get(async || "hello"))
}

fn window(window: Duration) -> Config {
    Config::for_tests().phase_timeout(Phase::SERVICE_REQUESTS_DONE, window)
}

async fn metrics(admin: SocketAddr, query: &str) -> String {
    let mut client = Client::new(TcpStream::connect(admin).await.unwrap());
    client.send(format!("GET /metrics{query} HTTP/1.0\r\n\r\n")).await;
    client.rest().await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s222_metrics_show_readiness_and_each_gate_from_the_start() {
    let server = Server::start_with(hello(), Config::for_tests(), |serve| serve).await;
    let admin = Admin::new(&server.shutdown).bind("127.0.0.1:0").unwrap().start().unwrap();
    let addr = admin.local_addr();
    let first = metrics(addr, "").await;
    for line in [
        "# TYPE adieu_ready gauge",
        "adieu_ready 1",
        "adieu_readiness{state=\"ready\"} 1",
        "adieu_readiness{state=\"draining\"} 0",
        "# TYPE adieu_in_flight gauge",
        "adieu_in_flight{gate=\"http\"} 0",
        "# TYPE adieu_refused_total counter",
        "adieu_refused_total{gate=\"http\"} 0",
        "adieu_cut_off_total{gate=\"http\"} 0",
    ] {
        assert!(first.lines().any(|have| have == line), "{line} is missing:\n{first}");
    }
    drop(admin);
    assert!(server.end().await.is_clean());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s395_metrics_until_over_are_the_last_values() {
    let wait = async || std::future::pending::<&str>().await;
    let app = hello().route("/wait", get(wait));
    let server = Server::start_with(app, window(Duration::from_millis(500)), |serve| serve).await;
    let admin = Admin::new(&server.shutdown).bind("127.0.0.1:0").unwrap().start().unwrap();
    let addr = admin.local_addr();
    let (mut busy, mut late) = (server.connect().await, server.connect().await);
    late.get("/").await;
    busy.request("/wait").await;
    while !metrics(addr, "").await.contains("adieu_in_flight{gate=\"http\"} 1") {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let last = tokio::spawn(async move { metrics(addr, "?until=over").await });
    server.close().await;
    assert!(late.get("/").await.starts_with("http/1.1 503"));
    assert!(!server.end().await.is_clean());
    let last = last.await.unwrap();
    for line in [
        "adieu_ready 0",
        "adieu_readiness{state=\"stopping\"} 1",
        "adieu_in_flight{gate=\"http\"} 0",
        "adieu_refused_total{gate=\"http\"} 1",
        "adieu_cut_off_total{gate=\"http\"} 1",
    ] {
        assert!(last.lines().any(|have| have == line), "{line} is missing:\n{last}");
    }
    drop(admin);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s223_connections_beyond_the_limit_wait_in_the_queue() {
    let server =
        Server::start_with(hello(), Config::for_tests(), |serve| serve.max_connections(1)).await;
    let mut first = server.connect().await;
    first.get("/").await;
    let mut second = server.connect().await;
    second.request("/").await;
    let early = tokio::time::timeout(Duration::from_millis(200), second.response()).await;
    assert!(early.is_err(), "the first connection is still open");
    drop(first);
    assert!(second.response().await.ends_with("hello"));
    // A connection that is queued when the listener closes is served.
    let mut third = server.connect().await;
    third.request("/").await;
    let (report, answer) = tokio::join!(server.end(), third.response());
    assert!(answer.ends_with("hello"), "{answer}");
    assert!(report.is_clean(), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s224_limits_on_heads_and_streams_can_be_set() {
    let server = Server::start_with(hello(), Config::for_tests(), |serve| {
        serve
            .http1_max_head(5, 8_192)
            .http2_max_concurrent_streams(7)
            .http2_max_header_list_size(2_000)
    })
    .await;
    let many: String = (0..9).map(|at| format!("x-{at}: y\r\n")).collect();
    for head in [many, format!("x: {}\r\n", "y".repeat(10_000))] {
        let mut client = server.connect().await;
        client.send(format!("GET / HTTP/1.1\r\nhost: x\r\n{head}\r\n")).await;
        assert!(client.response().await.starts_with("http/1.1 431"));
    }
    // The SETTINGS frame that an HTTP/2 server sends first: 3 is the limit on streams, 6 the one on
    // the header list.
    let mut http2 = TcpStream::connect(server.addr).await.unwrap();
    http2.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    let mut head = [0; 9];
    http2.read_exact(&mut head).await.unwrap();
    let mut settings = vec![0; usize::from(head[2])];
    http2.read_exact(&mut settings).await.unwrap();
    let setting = |id: u8| {
        let mut all = settings.chunks(6);
        let found = all.find(|setting| setting[1] == id).unwrap();
        u32::from_be_bytes([found[2], found[3], found[4], found[5]])
    };
    assert_eq!((setting(3), setting(6)), (7, 2_000));
    drop(http2);
    assert!(server.end().await.is_clean());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s375_with_half_close_a_client_that_closes_its_side_gets_its_answer() {
    for is_answered in [true, false] {
        let slow = async || {
            tokio::time::sleep(Duration::from_millis(100)).await;
            "slow"
        };
        let app = Router::new().route("/slow", get(slow));
        let config = Config::for_tests();
        let server =
            Server::start_with(app, config, |serve| serve.http1_half_close(is_answered)).await;
        let mut client = TcpStream::connect(server.addr).await.unwrap();
        client.write_all(b"GET /slow HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        client.shutdown().await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert_eq!(answer.ends_with("slow"), is_answered, "{answer}");
        assert!(server.end().await.is_clean());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s363_a_server_can_refuse_with_429() {
    let server =
        Server::start_with(hello(), Config::for_tests(), |serve| serve.too_many_requests()).await;
    server.shutdown.cordon();
    assert!(server.connect().await.get("/").await.starts_with("http/1.1 429"));
    assert!(server.end().await.is_clean());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s225_a_server_can_set_the_body_of_its_refusals() {
    let page = "<h1>back in a minute</h1>";
    let server = Server::start_with(hello(), Config::for_tests(), |serve| {
        serve.refusal_body(HeaderValue::from_static("text/html"), page)
    })
    .await;
    server.shutdown.cordon();
    let refused = server.connect().await.get("/").await;
    assert!(refused.starts_with("http/1.1 503") && refused.ends_with(page), "{refused}");
    assert!(refused.contains("content-type: text/html") && refused.contains("retry-after: 1"));
    assert!(server.shutdown.uncordon());
    assert!(server.end().await.is_clean());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s226_requests_are_cut_off_at_the_end_of_the_window_of_their_route() {
    let gate = adieu_core::Gate::new("api");
    let (wait, chunk) = (
        async || std::future::pending::<&str>().await,
        || Ok::<_, std::io::Error>(bytes::Bytes::from_static(b"tick\n")),
    );
    let ticks = async move || {
        let ticks = tokio_stream::iter(std::iter::repeat_with(chunk));
        let pause = Duration::from_millis(20);
        Body::from_stream(tokio_stream::StreamExt::throttle(ticks, pause))
    };
    let short = GateLayer::new(&gate).window(Duration::from_millis(300));
    let app = Router::new().route("/poll", get(wait)).route("/ticks", get(ticks)).layer(short);
    let slow = async || {
        tokio::time::sleep(Duration::from_secs(1)).await;
        "done"
    };
    let app = app.route("/slow", get(slow));
    let server =
        Server::start_with(app, window(Duration::from_secs(20)), |serve| serve.gate(&gate)).await;
    let mut clients = [server.connect().await, server.connect().await, server.connect().await];
    for (client, path) in clients.iter_mut().zip(["/poll", "/ticks", "/slow"]) {
        client.request(path).await;
    }
    let [mut poll, mut ticks, mut slow] = clients;
    ticks.until("tick\n").await;
    while gate.in_flight() < 3 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let began = Instant::now();
    let run = server.shutdown.run(Reason::Unknown);
    assert!(poll.response().await.starts_with("http/1.1 503"));
    assert!(began.elapsed() < Duration::from_millis(900), "took {:?}", began.elapsed());
    assert!(!ticks.rest().await.unwrap_or_default().ends_with("0\r\n\r\n"), "the body is cut");
    assert!(slow.response().await.ends_with("done"), "other routes have the whole window");
    let report = tokio::time::timeout(PATIENCE, run).await.unwrap().unwrap();
    assert!(!report.is_clean(), "{report}");
    let text = report.to_string();
    assert!(text.contains("GET /poll") && text.contains("GET /ticks"), "{text}");
}
