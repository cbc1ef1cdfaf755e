//! The layer, without a server.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use adieu_core::{Config, DrainClass, Gate, Pass, Phase, Reason, Report, Shutdown};
use adieu_http::{BoxError, Cut, GateBody, GateLayer};
use axum::body::Body;
use bytes::Bytes;
use futures_util::FutureExt;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::BodyExt;
use http_body_util::channel::Channel;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinHandle;
use tower::{Layer, Service, ServiceExt, service_fn};

use super::answers::problems;
use super::client::PATIENCE;

fn request(content_type: &str) -> Request<Body> {
    request_to("/", content_type)
}

fn request_to(path: &str, content_type: &str) -> Request<Body> {
    Request::post(path).header("content-type", content_type).body(Body::empty()).unwrap()
}

#[tokio::test]
async fn s81_a_request_holds_its_pass_from_the_call_to_the_end_of_the_body() {
    let gate = Gate::new("http");
    let (mut chunks, body) = Channel::<Bytes, Infallible>::new(1);
    let mut body = Some(body);
    let app = service_fn(move |_: Request<Body>| {
        let response = Response::new(body.take().unwrap());
        async { Ok::<_, Infallible>(response) }
    });
    let mut app = GateLayer::new(&gate).layer(app);
    let call = app.ready().await.unwrap().call(request("text/plain"));
    assert_eq!(gate.in_flight(), 1, "before the future is polled");
    let mut response = call.await.unwrap();
    assert_eq!(gate.in_flight(), 1, "when the response has begun");
    assert!(response.body_mut().frame().now_or_never().is_none(), "the body is empty so far");
    gate.close();
    chunks.send_data("bye".into()).await.unwrap();
    drop(chunks);
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "bye");
    assert!(gate.is_drained(), "when the body has ended");
}

#[tokio::test]
async fn s1690_an_answer_that_the_server_polls_no_more_is_named() {
    let gate = Gate::new("http");
    let app = service_fn(async |request: Request<Body>| {
        let length = if request.uri() == "/short" { 10 } else { 1_000_000 };
        Ok::<_, Infallible>(Response::new(http_body_util::Full::from(vec![7; length])))
    });
    let app = GateLayer::new(&gate).layer(app);
    let send = async |path| app.clone().oneshot(request_to(path, "text/plain")).await.unwrap();
    let unread = send("/unread").await;
    let mut begun = send("/begun").await;
    assert!(begun.body_mut().frame().await.unwrap().is_ok());
    let short = send("/short").await;
    gate.close();
    let named: Vec<_> = gate.oldest(9).into_iter().map(|work| work.label).collect();
    assert_eq!(named, ["POST /unread", "POST /begun"], "{}", gate.summary());
    drop((unread, begun, short));
    assert!(gate.is_drained() && gate.oldest(9).is_empty());
}

#[tokio::test]
async fn s360_a_service_that_is_only_ready_holds_no_pass() {
    let gate = Gate::new("http");
    let app =
        service_fn(async |_: Request<Body>| Ok::<_, Infallible>(Response::new(Body::empty())));
    let mut app = GateLayer::new(&gate).layer(app);
    app.ready().await.unwrap();
    assert_eq!(gate.in_flight(), 0);
}

/// Returns the response of a layer with a closed gate, which asks clients to retry after 1.5 s.
async fn refused(
    layer: impl FnOnce(GateLayer) -> GateLayer,
    content_type: &str,
) -> (http::response::Parts, Bytes) {
    let gate = Gate::new("http");
    gate.set_retry_after(Duration::from_millis(1_500));
    gate.close();
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let app = service_fn(move |_: Request<Body>| {
        counted.fetch_add(1, Ordering::SeqCst);
        async { Ok::<_, Infallible>(Response::new(Body::empty())) }
    });
    let response = layer(GateLayer::new(&gate)).layer(app).oneshot(request(content_type)).await;
    assert_eq!(calls.load(Ordering::SeqCst), 0, "the application was called");
    let (parts, body) = response.unwrap().into_parts();
    (parts, body.collect().await.unwrap().to_bytes())
}

#[tokio::test]
async fn s82_a_refused_request_gets_503_with_retry_after() {
    let (head, body) = refused(|layer| layer, "text/plain").await;
    assert_eq!(head.status, 503);
    assert_eq!(head.headers["retry-after"], "2", "rounded up to whole seconds");
    assert_eq!(head.headers["adieu-refused"], "draining");
    assert_eq!(head.headers["connection"], "close");
    assert_eq!(body, r#"{"error":"draining","retry_after_ms":1500}"#);
}

#[tokio::test]
async fn s361_a_refused_grpc_call_gets_unavailable() {
    let (head, _) = refused(|layer| layer, "application/grpc").await;
    assert_eq!(head.status, 200, "gRPC has a status of its own");
    assert_eq!(head.headers["grpc-status"], "14", "UNAVAILABLE");
    assert_eq!(head.headers["grpc-retry-pushback-ms"], "1500");
}

#[tokio::test]
async fn s362_a_refused_request_does_not_reach_the_application() {
    for content_type in ["text/plain", "application/grpc"] {
        refused(|layer| layer, content_type).await; // Counts the calls.
    }
}

#[tokio::test]
async fn s363_a_layer_can_refuse_with_429() {
    let (head, _) = refused(GateLayer::too_many_requests, "text/plain").await;
    assert_eq!(head.status, 429);
}

#[tokio::test]
async fn s225_a_layer_can_set_the_body_of_its_refusals() {
    let page = "<h1>back in a minute</h1>";
    let content_type = http::HeaderValue::from_static("text/html");
    let (head, body) = refused(|layer| layer.refusal_body(content_type, page), "text/plain").await;
    assert_eq!((head.status.as_u16(), &*body), (503, page.as_bytes()));
    assert_eq!(head.headers["content-type"], "text/html");
}

#[tokio::test]
async fn s83_a_handler_can_enter_the_gate_again_and_carry_its_pass_along() {
    let gate = Gate::new("http");
    let inner = gate.clone();
    let app = service_fn(move |_: Request<Body>| {
        let gate = inner.clone();
        async move {
            gate.close();
            let again = gate.enter().expect("the handler runs inside its own pass");
            let carried = Pass::current().expect("the handler has a pass");
            drop(again);
            let mut response = Response::new(Body::empty());
            response.extensions_mut().insert(carried);
            Ok::<_, Infallible>(response)
        }
    });
    let response = GateLayer::new(&gate).layer(app).oneshot(request("text/plain")).await.unwrap();
    assert_eq!(gate.in_flight(), 1, "the carried pass");
    drop(response);
    assert!(gate.is_drained());
}

/// A request to `/slow?token=1` whose handler never answers, when it is listed.
async fn unanswered(gate: &Gate) -> JoinHandle<Result<Response<GateBody<Body>>, Infallible>> {
    let app = service_fn(async |_: Request<Body>| {
        std::future::pending::<Result<Response<Body>, Infallible>>().await
    });
    let app = GateLayer::new(gate).layer(app);
    let call = tokio::spawn(app.oneshot(request_to("/slow?token=1", "text/plain")));
    while gate.oldest(1).is_empty() {
        tokio::task::yield_now().await;
    }
    call
}

#[tokio::test]
async fn s84_an_unanswered_request_gets_the_refusal_when_its_window_has_elapsed() {
    let gate = Gate::new("http");
    let response = unanswered(&gate).await;
    gate.close();
    gate.cut();
    assert_eq!(response.await.unwrap().unwrap().status(), 503);
    assert!(gate.is_drained());
}

#[tokio::test]
async fn s364_a_request_that_waits_is_listed_without_its_query() {
    let gate = Gate::new("http");
    let response = unanswered(&gate).await;
    assert_eq!(gate.oldest(1)[0].label, "POST /slow");
    gate.close();
    gate.cut();
    response.await.unwrap().unwrap();
}

#[tokio::test]
async fn s364_a_stream_that_waits_is_listed() {
    let gate = Gate::new("http");
    let mut body = endless_stream(&gate, None, "text/plain").await;
    assert!(body.frame().now_or_never().is_none());
    assert_eq!(gate.oldest(1)[0].label, "POST /");
}

/// Returns the body of a response that never ends.
async fn endless_stream(
    gate: &Gate,
    class: Option<DrainClass>,
    content_type: &'static str,
) -> GateBody<Channel<Bytes, Infallible>> {
    let app = service_fn(move |_: Request<Body>| async move {
        let (open, body) = Channel::<Bytes, Infallible>::new(1);
        let mut response = Response::new(body);
        response.headers_mut().insert("content-type", content_type.parse().unwrap());
        if let Some(class) = class {
            response.extensions_mut().insert(class);
        }
        std::mem::forget(open); // The body would end when it is dropped.
        Ok::<_, Infallible>(response)
    });
    let app = GateLayer::new(gate).layer(app);
    app.oneshot(request(content_type)).await.unwrap().into_body()
}

type LastFrame = Option<Result<Frame<Bytes>, BoxError>>;

/// Returns how such a body ends when the gate closes.
async fn end_at_close(class: Option<DrainClass>, content_type: &'static str) -> LastFrame {
    let gate = Gate::new("http");
    let mut body = endless_stream(&gate, class, content_type).await;
    let ended = tokio::spawn(async move { body.frame().await });
    gate.close();
    tokio::time::timeout(PATIENCE, ended).await.expect("the body should end").unwrap()
}

/// Returns how such a body ends when its window has elapsed. It must not end before.
async fn end_at_cut(class: Option<DrainClass>, content_type: &'static str) -> LastFrame {
    let gate = Gate::new("http");
    let mut body = endless_stream(&gate, class, content_type).await;
    let ended = tokio::spawn(async move { body.frame().await });
    gate.close();
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(!ended.is_finished(), "{class:?} {content_type} should go on");
    gate.cut();
    tokio::time::timeout(PATIENCE, ended).await.expect("the body should end").unwrap()
}

#[tokio::test]
async fn s85_a_close_now_stream_ends_regularly_when_the_gate_closes() {
    assert!(end_at_close(None, "text/event-stream").await.is_none());
}

#[tokio::test]
async fn s365_other_streams_are_aborted_when_their_window_has_elapsed() {
    let last = end_at_cut(None, "text/plain").await;
    assert!(last.unwrap().unwrap_err().is::<Cut>());
}

#[tokio::test]
async fn s366_a_handler_can_set_the_class_of_its_response() {
    let close_now = Some(DrainClass::CloseNow);
    assert!(end_at_close(close_now, "text/plain").await.is_none());
    let trailers = end_at_close(close_now, "application/grpc").await;
    let trailers = trailers.unwrap().unwrap().into_trailers().unwrap();
    assert_eq!(trailers["grpc-status"], "14");
    let last = end_at_cut(Some(DrainClass::Resumable), "text/event-stream").await;
    assert!(last.unwrap().unwrap_err().is::<Cut>());
}

#[tokio::test]
async fn s366_a_route_can_set_the_class_of_its_responses() {
    let gate = Gate::new("http");
    let (open, body) = Channel::<Bytes, Infallible>::new(1);
    let mut body = Some(body);
    let app = service_fn(move |_: Request<Body>| {
        let response = Response::new(body.take().unwrap());
        async { Ok::<_, Infallible>(response) }
    });
    let app = GateLayer::new(&gate).class(DrainClass::CloseNow).layer(app);
    let mut body = app.oneshot(request("text/plain")).await.unwrap().into_body();
    gate.close();
    let last = tokio::time::timeout(PATIENCE, body.frame()).await.expect("the body should end");
    assert!(last.is_none(), "a regular end");
    drop(open);
}

#[tokio::test]
async fn s388_a_grpc_health_check_is_answered_when_the_gate_is_closed() {
    let gate = Gate::new("http");
    gate.close();
    let app =
        service_fn(async |_: Request<Body>| Ok::<_, Infallible>(Response::new(Body::empty())));
    let app = GateLayer::new(&gate).layer(app);
    let check = request_to("/grpc.health.v1.Health/Check", "application/grpc");
    let answer = app.clone().oneshot(check).await.unwrap();
    assert!(!answer.headers().contains_key("grpc-status"), "the application has answered");
    let other = request_to("/shop.Orders/Place", "application/grpc");
    assert_eq!(app.oneshot(other).await.unwrap().headers()["grpc-status"], "14");
}

/// Behind another server, the layer cannot make the client recognise the cut.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s531_a_body_that_a_layer_cuts_in_another_server_is_named() {
    for version in ["1.0", "1.1"] {
        let config = Config::for_tests().drain_timeout(Duration::from_millis(300));
        let shutdown = Shutdown::configured(config).unwrap();
        let gate = shutdown.add_gate("api").unwrap();
        let chunk = || Ok::<_, Infallible>(Bytes::from_static(&[b'x'; 1_000]));
        let endless = move || Body::from_stream(tokio_stream::iter(std::iter::repeat_with(chunk)));
        let app = axum::Router::new()
            .route("/endless", axum::routing::get(async move || endless()))
            .layer(GateLayer::new(&gate));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let serving = tokio::spawn(axum::serve(listener, app).into_future());
        let mut client = tokio::net::TcpStream::connect(addr).await.unwrap();
        let request = format!("GET /endless HTTP/{version}\r\nhost: test\r\n\r\n");
        client.write_all(request.as_bytes()).await.unwrap();
        client.readable().await.unwrap();
        let mut read = Vec::new();
        let (_, report) =
            tokio::join!(client.read_to_end(&mut read), shutdown.run(Reason::Unknown));
        let report = report.unwrap();
        assert!(!report.is_clean(), "{report}");
        let problems = problems(&report);
        assert!(problems.contains("GET /endless"), "{problems}");
        assert!(!read.ends_with(b"\r\n0\r\n\r\n"), "HTTP/{version}: the last chunk was sent");
        serving.abort();
    }
}

/// The length of a body that no buffer between server and client can hold.
const LARGE: usize = 64 << 20;

/// A process that serves a large response with `axum::serve`, and ends when the shutdown is over.
/// Returns the report, and how many bytes a client that reads slowly has received.
async fn read_large_answer(waits_for_server: bool) -> (Arc<Report>, usize) {
    let process = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let shutdown = Shutdown::configured(Config::for_tests()).unwrap();
    let gate = shutdown.add_gate("api").unwrap();
    let app = axum::Router::new()
        .route("/large", axum::routing::get(async || Bytes::from(vec![b'x'; LARGE])))
        .layer(GateLayer::new(&gate));
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let addr = listener.local_addr().unwrap();
    let closed = gate.closed_token().cancelled_owned();
    let server = process.spawn(async move {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        axum::serve(listener, app).with_graceful_shutdown(closed).await
    });
    if waits_for_server {
        shutdown.add_task(Phase::SERVICE_REQUESTS_DONE, "axum", async |_| server.await?).unwrap();
    }
    let mut client = tokio::net::TcpStream::connect(addr).await.unwrap();
    client.write_all(b"GET /large HTTP/1.1\r\nhost: test\r\n\r\n").await.unwrap();
    client.readable().await.unwrap();
    let ending = async {
        let report = shutdown.run(Reason::Unknown).await.unwrap();
        process.shutdown_background(); // The end of the process: what the server has is lost.
        report
    };
    let reading = async {
        let (mut read, mut buffer) = (0, vec![0; 256 << 10]);
        while let Ok(more @ 1..) = client.read(&mut buffer).await {
            read += more;
            // The rate of the client, not a wait for something.
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        read
    };
    tokio::join!(ending, reading)
}

#[tokio::test]
async fn s788_a_large_frame_in_another_server_holds_its_pass_until_the_server_has_taken_it() {
    let (report, read) = read_large_answer(false).await;
    assert!(report.is_clean(), "{report}");
    // Bytes that hyper had buffered may be lost, which the layer cannot observe.
    assert!(read + (1 << 20) > LARGE, "{read} bytes of {LARGE} were read");
}

#[tokio::test]
async fn s789_a_task_that_waits_for_another_server_waits_for_its_buffers() {
    let (report, read) = read_large_answer(true).await;
    assert!(report.is_clean(), "{report}");
    assert!(read > LARGE, "{read} bytes of {LARGE} were read");
}
