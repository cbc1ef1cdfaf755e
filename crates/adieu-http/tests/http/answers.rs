//! Responses that clients read slowly, or not at all.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use adieu_core::{Config, Phase, Reason, Report};
use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use super::client::{PATIENCE, Server};

pub(crate) const MB: usize = 1_000_000;

pub(crate) fn big(size: usize) -> Router {
    Router::new().route("/big", get(async move || vec![b'x'; size]))
}

/// A body of unknown length that never ends.
fn endless() -> Router {
    let chunk = || Ok::<_, std::io::Error>(bytes::Bytes::from_static(&[b'x'; 16 * 1024]));
    let body = move || Body::from_stream(tokio_stream::iter(std::iter::repeat_with(chunk)));
    Router::new().route("/endless", get(async move || body()))
}

pub(crate) fn window(seconds: u64) -> Config {
    Config::for_tests().phase_timeout(Phase::SERVICE_REQUESTS_DONE, Duration::from_secs(seconds))
}

/// Connects a client whose kernel buffers little more than the client has read.
async fn connect(server: &Server) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(64 * 1024).unwrap();
    socket.connect(server.addr).await.unwrap()
}

/// Reads to the end, at `rate` bytes per second, and counts the bytes.
async fn read_at(mut stream: TcpStream, rate: usize, count: Arc<AtomicUsize>) {
    let mut buf = vec![0; rate / 20];
    loop {
        let read = stream.read(&mut buf).await.unwrap();
        if read == 0 {
            return;
        }
        count.fetch_add(read, Ordering::SeqCst);
        let pause = Duration::from_secs_f64(read as f64 / rate as f64);
        tokio::time::sleep(pause).await;
    }
}

/// Runs the shutdown to its end, without a limit.
pub(crate) async fn end(server: &Server) -> Arc<Report> {
    server.shutdown.run(Reason::Unknown).await.unwrap()
}

/// Returns the outcomes and details of all tasks in the report.
pub(crate) fn problems(report: &Report) -> String {
    let tasks = report.phases.iter().flat_map(|phase| &phase.tasks);
    tasks.map(|task| format!("{} {:?} {:?}\n", task.name, task.outcome, task.detail)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s210_a_client_that_reads_slowly_gets_its_whole_answer() {
    const SIZE: usize = 12 * MB;
    let server = Server::start_with(big(SIZE), window(75), |serve| serve).await;
    let mut stream = connect(&server).await;
    stream.write_all(b"GET /big HTTP/1.1\r\nhost: test\r\n\r\n").await.unwrap();
    let count = Arc::new(AtomicUsize::new(0));
    let reading = tokio::spawn(read_at(stream, MB / 2, Arc::clone(&count)));
    while count.load(Ordering::SeqCst) == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let report = end(&server).await;
    // The client's kernel buffers bytes that it has acknowledged and the client has not read.
    let read_by_then = count.load(Ordering::SeqCst);
    assert!(read_by_then > SIZE - MB, "ended when {read_by_then} bytes had been read");
    reading.await.unwrap();
    assert!(count.load(Ordering::SeqCst) > SIZE, "{} bytes", count.load(Ordering::SeqCst));
    assert!(report.is_clean(), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s370_acknowledged_bytes_decide_whether_a_client_is_reading() {
    let app = big(6 * MB).route("/small", get(async || vec![b'x'; MB]));
    let server = Server::start_with(app, window(75), |serve| serve).await;
    let mut readers = tokio::task::JoinSet::new();
    // With default buffers both kernels take megabytes at once, and then nothing for seconds. Bytes
    // that the server's kernel takes would look like a client that has stopped reading.
    for (path, size, rate, buffer) in [
        ("/big", 6 * MB, MB / 2, None),
        ("/big", 6 * MB, MB / 2, Some(4 << 20)),
        ("/small", MB, MB / 10, None),
    ] {
        let socket = TcpSocket::new_v4().unwrap();
        buffer.into_iter().for_each(|size| socket.set_recv_buffer_size(size).unwrap());
        let mut stream = socket.connect(server.addr).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: test\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        stream.readable().await.unwrap();
        readers.spawn(async move {
            let count = Arc::new(AtomicUsize::new(0));
            read_at(stream, rate, Arc::clone(&count)).await;
            assert!(count.load(Ordering::SeqCst) > size, "{path} at {rate} bytes per second");
        });
    }
    let report = end(&server).await;
    assert!(report.is_clean(), "{report}");
    while let Some(read) = readers.join_next().await {
        read.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s211_the_shutdown_ends_after_the_last_answer_is_acknowledged() {
    // Fits into the send buffer of the server's kernel, so the server has soon written all of it.
    const SIZE: usize = 2 * MB;
    let server = Server::start_with(big(SIZE), window(30), |serve| serve).await;
    let mut stream = connect(&server).await;
    let request = b"GET /big HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let count = Arc::new(AtomicUsize::new(0));
    let reading = tokio::spawn(read_at(stream, MB / 2, Arc::clone(&count)));
    while count.load(Ordering::SeqCst) == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let report = end(&server).await;
    let read_by_then = count.load(Ordering::SeqCst);
    assert!(read_by_then > SIZE - MB / 2, "ended when {read_by_then} bytes had been read");
    reading.await.unwrap();
    assert!(count.load(Ordering::SeqCst) > SIZE);
    assert!(report.is_clean(), "{report}");
}

/// An HTTP/2 client, and its connection.
pub(crate) async fn http2(
    stream: TcpStream,
) -> (hyper::client::conn::http2::SendRequest<String>, tokio::task::JoinHandle<()>) {
    let executor = hyper_util::rt::TokioExecutor::new();
    let mut builder = hyper::client::conn::http2::Builder::new(executor);
    builder.initial_stream_window_size(256 * 1024).initial_connection_window_size(256 * 1024);
    let io = hyper_util::rt::TokioIo::new(stream);
    let (requests, connection) = builder.handshake(io).await.unwrap();
    (requests, tokio::spawn(async { drop(connection.await) }))
}

pub(crate) fn get_request(path: &str) -> http::Request<String> {
    http::Request::get(format!("http://test{path}")).body(String::new()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s210_an_http2_client_that_pauses_gets_its_whole_answer() {
    const SIZE: usize = 3 * MB;
    let server = Server::start_with(big(SIZE), window(75), |serve| serve).await;
    let (mut requests, connection) = http2(connect(&server).await).await;
    let mut body = requests.send_request(get_request("/big")).await.unwrap().into_body();
    let ending = tokio::spawn({
        let run = server.shutdown.run(Reason::Unknown);
        async move { run.await.unwrap() }
    });
    let (mut read, mut unread) = (0, 0);
    while let Some(frame) = body.frame().await {
        let data = frame.unwrap().into_data().unwrap();
        (read, unread) = (read + data.len(), unread + data.len());
        if unread > MB / 2 {
            unread = 0;
            tokio::time::sleep(Duration::from_millis(3_000)).await;
        }
    }
    assert_eq!(read, SIZE);
    let report = ending.await.unwrap();
    assert!(report.is_clean(), "{report}");
    drop(requests);
    connection.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s212_a_cut_answer_is_named_and_the_outcome_is_not_clean() {
    let server = Server::start_with(big(30 * MB), window(60), |serve| {
        serve.stall_timeout(Duration::from_secs(2))
    })
    .await;
    let mut stalled = connect(&server).await;
    stalled.write_all(b"GET /big?secret HTTP/1.1\r\nhost: test\r\n\r\n").await.unwrap();
    stalled.readable().await.unwrap();
    let began = Instant::now();
    let report = end(&server).await;
    assert!(began.elapsed() < Duration::from_secs(8), "took {:?}", began.elapsed());
    assert!(!report.is_clean(), "{report}");
    let problems = problems(&report);
    assert!(problems.contains("GET /big (the client read nothing for 2s)"), "{problems}");
    assert!(!problems.contains("secret"), "{problems}");
}

/// The lines that are logged.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Log {
    pub(crate) fn subscriber(&self) -> impl tracing::Subscriber + Send + Sync + use<> {
        let writer = self.clone();
        tracing_subscriber::fmt().with_writer(move || writer.clone()).finish()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

// On one thread, because a default subscriber is the subscriber of one thread.
#[tokio::test]
async fn s212_a_cut_answer_is_named_in_the_log() {
    let log = Log::default();
    let _guard = tracing::subscriber::set_default(log.subscriber());
    let server = Server::start_with(big(30 * MB), window(60), |serve| {
        serve.stall_timeout(Duration::from_millis(300))
    })
    .await;
    let mut stalled = connect(&server).await;
    stalled.write_all(b"GET /big?secret HTTP/1.1\r\nhost: test\r\n\r\n").await.unwrap();
    stalled.readable().await.unwrap();
    end(&server).await;
    let text = log.text();
    let line = text.lines().find(|line| line.contains("response cut")).expect(&text);
    assert!(line.contains("GET /big") && !line.contains("secret"), "{line}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s212_an_answer_that_takes_longer_than_its_window_is_named() {
    let server = Server::start_with(big(30 * MB), window(2), |serve| serve).await;
    let mut stream = connect(&server).await;
    stream.write_all(b"GET /big HTTP/1.1\r\nhost: test\r\n\r\n").await.unwrap();
    let count = Arc::new(AtomicUsize::new(0));
    let reading = tokio::spawn(async move {
        let mut buf = vec![0; 64 * 1024];
        while let Ok(1..) = stream.read(&mut buf).await {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    tokio::time::sleep(Duration::from_millis(50)).await;
    let report = end(&server).await;
    assert!(!report.is_clean(), "{report}");
    let problems = problems(&report);
    assert!(problems.contains("GET /big"), "{problems}");
    reading.await.unwrap();
    drop(count);
}

/// Reads an endless body until the server cuts it. Returns the bytes read after the first, or the
/// error.
async fn read_until_cut(request: &str) -> std::io::Result<usize> {
    let server = Server::start_with(endless(), window(1), |serve| serve).await;
    let mut stream = TcpStream::connect(server.addr).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut buf = vec![0; 64 * 1024];
    assert!(stream.read(&mut buf).await.unwrap() > 0);
    let run = server.shutdown.run(Reason::Unknown);
    let read_all = async {
        let mut count = 0;
        loop {
            match stream.read(&mut buf).await? {
                0 => return Ok(count),
                read => count += read,
            }
        }
    };
    let seen =
        tokio::time::timeout(PATIENCE, read_all).await.expect("the server should cut the body");
    assert!(!run.await.unwrap().is_clean());
    seen
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s213_a_cut_body_that_ends_with_the_connection_is_reset() {
    let seen = read_until_cut("GET /endless HTTP/1.0\r\n\r\n").await;
    let kind = seen.expect_err("the end of the connection would look like the end of the body");
    assert_eq!(kind.kind(), std::io::ErrorKind::ConnectionReset);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s213_a_large_body_that_ends_with_the_connection_is_reset_when_it_is_cut() {
    let stream = |size: usize| {
        let chunks = (0..size / 65_536).map(|_| Ok::<_, std::io::Error>(vec![b'x'; 65_536]));
        Body::from_stream(tokio_stream::iter(chunks))
    };
    let app = Router::new().route("/big", get(async move || stream(30 * MB)));
    let server = Server::start_with(app, window(1), |serve| serve).await;
    let mut slow = connect(&server).await;
    slow.write_all(b"GET /big HTTP/1.0\r\n\r\n").await.unwrap();
    slow.readable().await.unwrap();
    let reading = tokio::spawn(async move {
        let mut buf = vec![0; 64 * 1024];
        loop {
            match slow.read(&mut buf).await {
                Ok(0) => return None,
                Ok(_) => tokio::time::sleep(Duration::from_millis(20)).await,
                Err(error) => return Some(error.kind()),
            }
        }
    });
    assert!(!end(&server).await.is_clean());
    assert_eq!(reading.await.unwrap(), Some(std::io::ErrorKind::ConnectionReset));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s374_a_request_whose_answer_flow_control_holds_back_is_listed() {
    let server = Server::start_with(big(MB), window(60), |serve| serve).await;
    let stream = TcpStream::connect(server.addr).await.unwrap();
    let executor = hyper_util::rt::TokioExecutor::new();
    let mut builder = hyper::client::conn::http2::Builder::new(executor);
    builder.initial_stream_window_size(0);
    let io = hyper_util::rt::TokioIo::new(stream);
    let (mut requests, connection) = builder.handshake(io).await.unwrap();
    let connection = tokio::spawn(connection);
    // The head arrives. There is no flow-control window for the body.
    let response = requests.send_request(get_request("/big")).await.unwrap();
    let waiting = server.shutdown.gates()[0].summary();
    assert!(waiting.starts_with("1 in flight") && waiting.ends_with("GET /big"), "{waiting}");
    drop((response, requests));
    let _ = connection.await;
    assert!(end(&server).await.is_clean(), "the client has cancelled the request");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s371_answers_that_were_received_are_not_named_as_cut() {
    let app = big(MB).route("/small", get(async || "small"));
    let server =
        Server::start_with(app, window(60), |serve| serve.stall_timeout(Duration::from_secs(1)))
            .await;
    let (mut requests, connection) = http2(connect(&server).await).await;
    for _ in 0..3 {
        let response = requests.send_request(get_request("/small")).await.unwrap();
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "small");
    }
    // The client reads the head only.
    let response = requests.send_request(get_request("/big")).await.unwrap();
    let report = end(&server).await;
    let problems = problems(&report);
    assert!(problems.contains("1 response cut: GET /big"), "{problems}");
    drop((response, requests));
    let _ = connection.await;
}

/// Runs curl at a limited rate during the shutdown, and returns how many bytes it has received.
async fn curl(server: &Server, args: &[&str]) -> String {
    let mut curl = tokio::process::Command::new("curl");
    curl.args(["-sS", "--limit-rate", "500k", "-o", "/dev/null", "-w", "%{size_download}"]);
    curl.args(args).arg(format!("http://{}/big", server.addr)).kill_on_drop(true);
    let output = curl.output().await.expect("curl, from the package of that name");
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s210_curl_at_a_limited_rate_gets_its_whole_answer() {
    const SIZE: usize = 16 * MB;
    let server = Server::start_with(big(SIZE), window(75), |serve| serve).await;
    let clients = async {
        tokio::join!(
            curl(&server, &["--http1.1"]),
            curl(&server, &["--http1.0"]),
            curl(&server, &["--http2-prior-knowledge"]),
        )
    };
    let shutdown = async {
        tokio::time::sleep(Duration::from_secs(2)).await;
        end(&server).await
    };
    let ((one, old, two), report) = tokio::join!(clients, shutdown);
    assert_eq!([one, old, two], [SIZE.to_string(), SIZE.to_string(), SIZE.to_string()]);
    assert!(report.is_clean(), "{report}");
}
