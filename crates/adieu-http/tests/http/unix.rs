//! Responses over Unix sockets whose end is the end of the connection.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use adieu_core::{Config, Reason, Report, Shutdown};
use axum::Router;
use axum::body::Body;
use axum::routing::get;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};

use super::answers::problems;
use super::client::PATIENCE;

const LENGTH: usize = 20_000;

/// `/whole` ends soon, `/endless` never does. Neither has a length that is known beforehand.
fn app() -> Router {
    let chunk = || Ok::<_, std::io::Error>(bytes::Bytes::from_static(&[b'x'; 1_000]));
    let endless = move || Body::from_stream(tokio_stream::iter(std::iter::repeat_with(chunk)));
    let chunks = move || std::iter::repeat_with(chunk).take(LENGTH / 1_000);
    let whole = move || Body::from_stream(tokio_stream::iter(chunks()));
    Router::new()
        .route("/endless", get(async move || endless()))
        .route("/whole", get(async move || whole()))
}

/// Sends a request, begins the shutdown when the response has begun, and reads the rest after the
/// shutdown has ended if `is_late`. Returns the number of bytes read, the error, and the report.
async fn read_through_shutdown(
    request: &str,
    half_closes: bool,
    is_late: bool,
) -> (usize, Option<ErrorKind>, Arc<Report>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.sock");
    let config = Config::for_tests().drain_timeout(Duration::from_millis(500));
    let shutdown = Shutdown::configured(config).unwrap();
    let listener = UnixListener::bind(&path).unwrap();
    let server = adieu_http::serve(listener, app(), &shutdown).http1_half_close(true);
    let serving = tokio::spawn(server.into_future());
    let mut client = UnixStream::connect(&path).await.unwrap();
    client.write_all(request.as_bytes()).await.unwrap();
    if half_closes {
        client.shutdown().await.unwrap();
    }
    client.readable().await.unwrap();
    let mut run = Box::pin(async { shutdown.run(Reason::Unknown).await.unwrap() });
    let report = if is_late { Some(run.as_mut().await) } else { None };
    let mut read = Vec::new();
    let reading = client.read_to_end(&mut read);
    let ended = match report {
        Some(report) => (reading.await, report),
        None => tokio::join!(reading, run),
    };
    tokio::time::timeout(PATIENCE, serving).await.expect("the server should end").unwrap().unwrap();
    (read.len(), ended.0.err().map(|error| error.kind()), ended.1)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s530_a_cut_body_over_a_unix_socket_ends_in_a_reset() {
    for (half_closes, is_late) in [(false, false), (false, true), (true, false), (true, true)] {
        let request = "GET /endless HTTP/1.0\r\n\r\n";
        let (_, error, report) = read_through_shutdown(request, half_closes, is_late).await;
        assert_eq!(error, Some(ErrorKind::ConnectionReset), "{half_closes} {is_late}");
        let problems = problems(&report);
        assert!(problems.contains("1 response cut: GET /endless"), "{problems}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s530_a_complete_body_over_a_unix_socket_ends_regularly() {
    for (half_closes, is_late) in [(false, false), (false, true), (true, false), (true, true)] {
        for request in [
            "GET /whole HTTP/1.0\r\n\r\n",
            "GET /whole HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n",
        ] {
            let (read, error, report) = read_through_shutdown(request, half_closes, is_late).await;
            assert_eq!(error, None, "{half_closes} {is_late} {request}");
            assert!(read > LENGTH, "{read} bytes: {half_closes} {is_late} {request}");
            assert!(report.is_clean(), "{report}");
        }
    }
}
