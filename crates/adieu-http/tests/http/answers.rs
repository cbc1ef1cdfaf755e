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

const MB: usize = 1_000_000;

fn big(size: usize) -> Router {
    Router::new().route("/big", get(async move || vec![b'x'; size]))
}

/// A body of unknown length that never ends.
fn endless() -> Router {
    let chunk = || Ok::<_, std::io::Error>(bytes::Bytes::from_static(&[b'x'; 16 * 1024]));
    let body = move || Body::from_stream(tokio_stream::iter(std::iter::repeat_with(chunk)));
    Router::new().route("/endless", get(async move || body()))
}

fn window(seconds: u64) -> Config {
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
async fn end(server: &Server) -> Arc<Report> {
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

/// An HTTP/2 client that sends pings, acknowledges the server's, and gives no flow-control room for
/// its responses.
async fn pings_and_does_not_read(stream: TcpStream, requests: usize) {
    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let (mut reader, mut writer) = stream.into_split();
    let frame = |kind: u8, flags: u8, stream: u32, payload: &[u8]| {
        let mut frame = vec![0, 0, payload.len() as u8, kind, flags];
        frame.extend(stream.to_be_bytes());
        frame.extend(payload);
        frame
    };
    let mut first = PREFACE.to_vec();
    first.extend(frame(4, 0, 0, &[0, 4, 0, 0, 0x10, 0])); // SETTINGS: a window of 4,096 bytes.
    for request in 0..requests as u32 {
        // HPACK: GET and http by index; the path /big and the authority test as literals.
        let head = [&[0x82, 0x86, 0x04, 4][..], b"/big", &[0x01, 4], b"test"].concat();
        first.extend(frame(1, 0x5, 2 * request + 1, &head));
    }
    writer.write_all(&first).await.unwrap();
    let mut read = Vec::new();
    let mut ticks = tokio::time::interval(Duration::from_millis(50));
    loop {
        tokio::select! {
            _ = ticks.tick() => {
                if writer.write_all(&frame(6, 0, 0, &[7; 8])).await.is_err() { return }
            }
            more = reader.read_buf(&mut read) => if !matches!(more, Ok(1..)) { return },
        }
        while read.len() >= 9 {
            let length = u32::from_be_bytes([0, read[0], read[1], read[2]]) as usize;
            if read.len() < 9 + length {
                break;
            }
            let frame_read: Vec<_> = read.drain(..9 + length).collect();
            let is_answered = match (frame_read[3], frame_read[4]) {
                (4, 0) => writer.write_all(&frame(4, 1, 0, &[])).await.is_ok(),
                (6, 0) => writer.write_all(&frame(6, 1, 0, &frame_read[9..])).await.is_ok(),
                _ => true,
            };
            if !is_answered {
                return;
            }
        }
    }
}

async fn disconnects_a_client_that_only_pings(app: Router) {
    let server = Server::start_with(app, window(60), |serve| {
        let serve = serve.stall_timeout(Duration::from_secs(3));
        serve.http2_keep_alive(Duration::from_millis(100), Duration::from_secs(10))
    })
    .await;
    let stream = TcpStream::connect(server.addr).await.unwrap();
    let client = tokio::spawn(pings_and_does_not_read(stream, 2));
    tokio::time::sleep(Duration::from_millis(200)).await;
    let began = Instant::now();
    let report = end(&server).await;
    assert!(began.elapsed() < Duration::from_secs(12), "took {:?}", began.elapsed());
    assert!(!report.is_clean(), "{report}");
    let problems = problems(&report);
    assert!(problems.contains("GET /big"), "{problems}");
    client.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s372_an_http2_client_that_only_pings_is_disconnected() {
    disconnects_a_client_that_only_pings(big(MB)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s372_an_http2_client_that_only_pings_is_disconnected_while_chunks_remain() {
    let chunks = || (0..100).map(|_| Ok::<_, std::io::Error>(vec![b'x'; 65_536]));
    let body = move || Body::from_stream(tokio_stream::iter(chunks()));
    disconnects_a_client_that_only_pings(Router::new().route("/big", get(async move || body())))
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1703_an_idle_http2_client_that_answers_no_ping_is_not_waited_for() {
    let app = Router::new().route("/big", get(async || "whole"));
    let server = Server::start_with(app, window(60), |serve| serve).await;
    let mut client = server.connect().await;
    // SETTINGS, and a request as in `pings_and_does_not_read`.
    let request =
        [&[0, 0, 14, 1, 5, 0, 0, 0, 1, 0x82, 0x86, 4, 4][..], b"/big", &[1, 4], b"test"].concat();
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    client.send(&[&preface[..], &[0, 0, 0, 4, 0, 0, 0, 0, 0], &request].concat()).await;
    client.until("whole").await;
    // From here on the client is like a process that was stopped: its kernel acknowledges, and it
    // answers nothing.
    let began = Instant::now();
    let report = end(&server).await;
    assert!(report.is_clean(), "{}", problems(&report));
    assert!(began.elapsed() < Duration::from_secs(8), "took {:?}", began.elapsed());
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

/// Requests `/big`, then drops every packet that arrives, as if its machine had vanished: a filter on
/// the socket rejects them before TCP sees them.
const VANISH: &str = r#"
use Socket;
my ($port) = @ARGV;
socket(my $client, PF_INET, SOCK_STREAM, 0) or die $!;
setsockopt($client, SOL_SOCKET, SO_RCVBUF, 65536) or die $!;
connect($client, sockaddr_in($port, inet_aton("127.0.0.1"))) or die $!;
syswrite($client, "GET /big HTTP/1.1\r\nhost: test\r\n\r\n") or die $!;
sysread($client, my $read, 1000) or die $!;
my $reject_all = pack("SCCL", 6, 0, 0, 0);
setsockopt($client, SOL_SOCKET, 26, pack("S x6 P", 1, $reject_all)) or die "filter: $!";
$| = 1;
print "gone\n";
while (sysread($client, $read, 100000)) {}
sleep 60;
"#;

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s463_a_client_that_has_vanished_does_not_hold_the_window() {
    let server = Server::start_with(big(30 * MB), window(60), |serve| serve).await;
    let mut perl = tokio::process::Command::new("perl");
    perl.args(["-e", VANISH, &server.addr.port().to_string()]).kill_on_drop(true);
    let mut perl = perl.stdout(std::process::Stdio::piped()).spawn().expect("perl");
    let mut gone = [0; 5];
    perl.stdout.take().unwrap().read_exact(&mut gone).await.unwrap();
    let began = Instant::now();
    let report = end(&server).await;
    assert!(began.elapsed() < Duration::from_secs(20), "took {:?}", began.elapsed());
    let problems = problems(&report);
    assert!(problems.contains("GET /big (the client does not acknowledge)"), "{problems}");
    perl.kill().await.unwrap();
}
