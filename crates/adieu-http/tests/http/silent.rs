//! Clients that read nothing: they only ping, answer no ping, or have vanished.

use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::answers::{MB, big, end, problems, window};
use super::client::Server;

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
