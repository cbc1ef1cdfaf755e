//! The layers, with a real axum server and real clients.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use adieu_core::{Reason, Shutdown};
use adieu_resilience::{
    Breaker, BreakerState, Bulkhead, CallError, ClientRequest, Code, Policy, Rate, Retry,
};
use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client as HyperClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tower::{Service, ServiceBuilder, ServiceExt, service_fn};

use super::tools::{ms, secs, shutdown};

/// An axum server that ends when it is dropped.
struct Server {
    address: SocketAddr,
    _running: JoinSet<()>,
}

impl Server {
    async fn start(app: Router) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut running = JoinSet::new();
        running.spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { address, _running: running }
    }

    /// Answers each request with the next of these, and the last again and again. Counts requests.
    async fn scripted(answers: Answers) -> (Self, Arc<AtomicUsize>) {
        let count = Arc::new(AtomicUsize::new(0));
        let answer = move |State(count): State<Arc<AtomicUsize>>| async move {
            let at = count.fetch_add(1, Ordering::SeqCst);
            answers[at.min(answers.len() - 1)]()
        };
        let app = Router::new().route("/", any(answer)).with_state(Arc::clone(&count));
        (Self::start(app).await, count)
    }

    fn url(&self) -> String {
        format!("http://{}/", self.address)
    }
}

fn ok() -> Response {
    "fine".into_response()
}

fn broken() -> Response {
    StatusCode::INTERNAL_SERVER_ERROR.into_response()
}

fn draining() -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, [("adieu-refused", "draining")]).into_response()
}

fn not_found() -> Response {
    StatusCode::NOT_FOUND.into_response()
}

type Answers = &'static [fn() -> Response];
type Hyper = HyperClient<HttpConnector, Full<bytes::Bytes>>;

fn hyper() -> Hyper {
    HyperClient::builder(TokioExecutor::new()).build_http()
}

fn request(method: Method, url: &str) -> Request<Full<bytes::Bytes>> {
    Request::builder().method(method).uri(url).body(Full::default()).unwrap()
}

async fn send(policy: &Policy, method: Method, url: &str) -> Result<StatusCode, CallError<String>> {
    let mut client = ServiceBuilder::new().layer(policy.client()).service(hyper());
    let response = client.ready().await.unwrap().call(request(method, url)).await;
    response.map(|response| response.status()).map_err(|error| match error {
        CallError::Refused(refused) => CallError::Refused(refused),
        CallError::TimedOut { after } => CallError::TimedOut { after },
        CallError::Failed(error) => CallError::Failed(adieu_core::adapter::error_text(&error)),
    })
}

fn retrying(shutdown: &Shutdown) -> Policy {
    Policy::new("backend").retry(Retry::times(2)).start(shutdown).unwrap()
}

#[tokio::test]
async fn s756_a_server_refuses_with_429_or_503_with_retry_after_and_a_code() {
    let shutdown = shutdown();
    let rate = Rate::per(1, secs(3_600)).burst(1);
    let limited = Policy::new("limited").rate(rate).start(&shutdown).unwrap();
    let forced = Policy::new("forced").start(&shutdown).unwrap();
    forced.force_open(ms(4_500));
    let timed = Policy::new("timed").timeout(ms(20)).start(&shutdown).unwrap();
    let calls = Arc::new(AtomicUsize::new(0));
    let handler = |State(calls): State<Arc<AtomicUsize>>| async move {
        calls.fetch_add(1, Ordering::SeqCst);
        "hello"
    };
    let app = Router::new()
        .route("/limited", any(handler).layer(limited.layer()))
        .route("/forced", any(handler).layer(forced.layer()))
        .route("/timed", any(std::future::pending::<()>).layer(timed.layer()))
        .with_state(Arc::clone(&calls));
    let server = Server::start(app).await;
    let get = async |path: &str, content_type: &str| {
        let request = Request::get(format!("{}{path}", server.url()))
            .header("content-type", content_type)
            .body(Full::<bytes::Bytes>::default());
        let (head, body) = hyper().request(request.unwrap()).await.unwrap().into_parts();
        let header = |name: &str| {
            head.headers
                .get(name)
                .map(|value| value.to_str().unwrap().to_owned())
                .unwrap_or_default()
        };
        let body = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
        let headers = ["retry-after", "adieu-refused", "grpc-status"].map(header);
        (head.status.as_u16(), headers.join(" "), body)
    };
    assert_eq!(get("limited", "text/plain").await, (200, "  ".into(), "hello".into()));
    let (status, headers, body) = get("limited", "text/plain").await;
    assert_eq!((status, &*headers), (429, "3600 rate-limited "));
    assert!(body.starts_with(r#"{"error":"rate-limited","retry_after_ms":3599"#), "{body}");
    let (status, headers, _) = get("limited", "application/grpc+proto").await;
    assert_eq!((status, &*headers), (200, " rate-limited 8"));
    let (status, headers, _) = get("forced", "text/plain").await;
    assert_eq!((status, &*headers), (503, "5 forced-open "));
    assert_eq!(calls.load(Ordering::SeqCst), 1, "a refused request does not reach the handler");
    // The request was begun, so the response has no header that it was not processed.
    let timed_out = r#"{"error":"timed-out","retry_after_ms":1000}"#;
    assert_eq!(get("timed", "text/plain").await, (503, "1  ".into(), timed_out.into()));
}

#[tokio::test]
async fn s756_a_layer_keeps_a_state_for_each_key() {
    let rate = Rate::per(1, secs(3_600)).burst(1);
    let shutdown = shutdown();
    let policy = Policy::new("tenants").rate(rate).start(&shutdown).unwrap();
    let tenant = |parts: &http::request::Parts| {
        Some(parts.headers.get("x-tenant")?.to_str().ok()?.to_owned())
    };
    let server = Server::start(
        Router::new().route("/", any(async || ok())).layer(policy.layer().key(tenant)),
    )
    .await;
    let status = async |tenant: &str| {
        let request = Request::get(server.url()).header("x-tenant", tenant);
        let request = request.body(Full::<bytes::Bytes>::default()).unwrap();
        hyper().request(request).await.unwrap().status().as_u16()
    };
    assert_eq!([status("a").await, status("a").await, status("b").await], [200, 429, 200]);
}

#[tokio::test]
async fn s758_a_client_repeats_idempotent_requests_and_those_that_were_not_processed() {
    let shutdown = shutdown();
    let policy = retrying(&shutdown);
    let cases: [(Method, Answers, u16, usize); 6] = [
        (Method::GET, &[broken, broken, ok], 200, 3),
        (Method::PUT, &[broken, ok], 200, 2),
        (Method::GET, &[broken], 500, 3),
        (Method::POST, &[broken, ok], 500, 1),
        (Method::POST, &[draining, ok], 200, 2),
        (Method::GET, &[not_found, ok], 404, 1),
    ];
    for (method, answers, status, requests) in cases {
        let (server, count) = Server::scripted(answers).await;
        let sent = send(&policy, method.clone(), &server.url()).await.unwrap();
        assert_eq!((sent.as_u16(), count.load(Ordering::SeqCst)), (status, requests), "{method}");
    }
}

#[tokio::test]
async fn s758_a_request_that_never_reached_a_server_is_repeated_whatever_its_method() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    drop(listener);
    let shutdown = shutdown();
    let policy = retrying(&shutdown);
    let attempts = Arc::new(AtomicUsize::new(0));
    let (counted, hyper) = (Arc::clone(&attempts), hyper());
    let inner = service_fn(move |request: Request<Full<bytes::Bytes>>| {
        counted.fetch_add(1, Ordering::SeqCst);
        hyper.request(request)
    });
    let client = ServiceBuilder::new().layer(policy.client()).service(inner);
    let failed = client.oneshot(request(Method::POST, &url)).await.unwrap_err();
    assert!(matches!(failed, CallError::Failed(_)), "{failed}");
    assert_eq!(attempts.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn s758_a_request_whose_body_cannot_be_repeated_is_sent_once() {
    #[derive(Debug)]
    struct Streamed;
    impl ClientRequest for Streamed {
        fn try_clone(&self) -> Option<Self> {
            None
        }
        fn is_idempotent(&self) -> bool {
            true
        }
    }
    let shutdown = shutdown();
    let policy = retrying(&shutdown);
    let sent = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&sent);
    let inner = service_fn(move |Streamed| {
        counted.fetch_add(1, Ordering::SeqCst);
        async { Ok::<_, Infallible>(draining()) }
    });
    let client = ServiceBuilder::new().layer(policy.client()).service(inner);
    assert_eq!(client.oneshot(Streamed).await.unwrap().status().as_u16(), 503);
    assert_eq!(sent.load(Ordering::SeqCst), 1);
}

// A peer that drains refuses every request. That is no sign of sickness: a rolling restart must not
// open the breakers of its clients.
#[tokio::test]
async fn s759_a_draining_adieu_server_opens_no_breaker_of_its_clients() {
    let gate = adieu_core::Gate::new("http");
    let layer = adieu_http::GateLayer::new(&gate);
    let server = Server::start(Router::new().route("/", any(async || ok())).layer(layer)).await;
    gate.close();
    let shutdown = shutdown();
    let policy = Policy::new("peer").breaker(Breaker::at(0.1).of(1)).start(&shutdown).unwrap();
    for _ in 0..5 {
        let refused = send(&policy, Method::GET, &server.url()).await.unwrap();
        assert_eq!(refused.as_u16(), 503);
    }
}

const HEADERS: u8 = 1;

/// A frame of HTTP/2.
fn frame(kind: u8, stream: [u8; 4], payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).unwrap();
    [&[0, 0, length, kind, 0][..], &stream, payload].concat()
}

/// Answers the first request of a connection with a frame, and reads until the client has left.
async fn refuse(mut stream: TcpStream, answer: fn([u8; 4]) -> Vec<u8>) {
    stream.write_all(&frame(4, [0; 4], &[])).await.unwrap();
    let mut preface = [0; 24];
    stream.read_exact(&mut preface).await.unwrap();
    loop {
        let mut head = [0; 9];
        if stream.read_exact(&mut head).await.is_err() {
            return;
        }
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        stream.read_exact(&mut payload).await.unwrap();
        if head[3] == HEADERS {
            let _ = stream.write_all(&answer([head[5], head[6], head[7], head[8]])).await;
        }
    }
}

#[tokio::test]
async fn s1561_over_http_2_a_request_that_the_server_has_not_processed_is_no_failure() {
    // GOAWAY, which covers no request, and RST_STREAM with REFUSED_STREAM.
    let answers: [fn([u8; 4]) -> Vec<u8>; 2] =
        [|_| frame(7, [0; 4], &[0; 8]), |stream| frame(3, stream, &[0, 0, 0, 7])];
    for answer in answers {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let mut running = JoinSet::new();
        running.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(refuse(stream, answer));
            }
        });
        let shutdown = shutdown();
        let policy = Policy::new("peer").breaker(Breaker::at(0.1).of(1)).retry(Retry::times(2));
        let policy = policy.start(&shutdown).unwrap();
        let sent = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&sent);
        let hyper: Hyper = HyperClient::builder(TokioExecutor::new()).http2_only(true).build_http();
        let inner = service_fn(move |request: Request<Full<bytes::Bytes>>| {
            counted.fetch_add(1, Ordering::SeqCst);
            hyper.request(request)
        });
        let client = ServiceBuilder::new().layer(policy.client()).service(inner);
        let failed = client.oneshot(request(Method::POST, &url)).await.unwrap_err();
        assert!(matches!(failed, CallError::Failed(_)), "{failed}");
        assert_eq!(sent.load(Ordering::SeqCst), 3, "repeated, although it is a POST");
        assert_eq!(policy.status().breaker, Some(BreakerState::Closed));
    }
}

#[tokio::test]
async fn s757_server_errors_open_the_breaker_of_a_client_and_404_does_not() {
    let shutdown = shutdown();
    let policy = Policy::new("sick").breaker(Breaker::at(1.0).of(2)).start(&shutdown).unwrap();
    let (server, count) = Server::scripted(&[not_found, not_found, broken, broken]).await;
    let breaker = Policy::new("well").breaker(Breaker::at(0.5).of(4)).start(&shutdown).unwrap();
    for expected in [404, 404, 500, 500] {
        let status = send(&breaker, Method::GET, &server.url()).await.unwrap();
        assert_eq!(status.as_u16(), expected);
    }
    let refused = send(&breaker, Method::GET, &server.url()).await.unwrap_err();
    assert_eq!(refused.refused().unwrap().code(), Code::Open);
    assert_eq!(count.load(Ordering::SeqCst), 4, "an open breaker sends nothing");
    assert!(send(&policy, Method::GET, &server.url()).await.is_ok());
}

#[tokio::test]
async fn s760_a_client_of_reqwest_goes_through_a_policy() {
    let shutdown = shutdown();
    let policy = retrying(&shutdown);
    let (server, count) = Server::scripted(&[broken, ok]).await;
    let client = reqwest::Client::builder().retry(reqwest::retry::never()).build().unwrap();
    let mut service = ServiceBuilder::new().layer(policy.client()).service(client.clone());
    let get = client.get(server.url()).build().unwrap();
    let response = service.ready().await.unwrap().call(get).await.unwrap();
    assert_eq!((response.text().await.unwrap(), count.load(Ordering::SeqCst)), ("fine".into(), 2));

    let (server, count) = Server::scripted(&[broken, ok]).await;
    let post = client.post(server.url()).body("1").build().unwrap();
    let response = service.ready().await.unwrap().call(post).await.unwrap();
    assert_eq!((response.status().as_u16(), count.load(Ordering::SeqCst)), (500, 1));
}

// Whatever the requests do, the server is never asked for more at a time than the bulkhead allows.
#[tokio::test]
async fn s761_a_client_layer_limits_how_many_requests_are_in_flight() {
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counts = (Arc::clone(&now), Arc::clone(&most));
    let handler = move || {
        let (now, most) = counts.clone();
        async move {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(5)).await;
            now.fetch_sub(1, Ordering::SeqCst);
        }
    };
    let server = Server::start(Router::new().route("/", any(handler))).await;
    let shutdown = shutdown();
    let bulkhead = Bulkhead::of(3).queue(100);
    let policy = Policy::new("narrow").bulkhead(bulkhead).start(&shutdown).unwrap();
    let mut requests = JoinSet::new();
    for _ in 0..40 {
        let (policy, url) = (policy.clone(), server.url());
        requests.spawn(async move { send(&policy, Method::GET, &url).await.is_ok() });
    }
    let sent = requests.join_all().await.into_iter().filter(|sent| *sent).count();
    assert!(sent >= 3, "{sent}");
    assert_eq!(most.load(Ordering::SeqCst), 3);
}

// A service whose error is uninhabited, as axum's are.
#[tokio::test]
async fn s756_a_shutdown_does_not_change_the_answers_of_a_layer() {
    let shutdown = shutdown();
    let policy = Policy::new("own").rate(Rate::per(1, secs(60)).burst(1)).start(&shutdown).unwrap();
    let app = service_fn(async |_: Request<Body>| Ok::<_, Infallible>(ok()));
    let mut app = ServiceBuilder::new().layer(policy.layer()).service(app);
    shutdown.run(Reason::Unknown).await.unwrap();
    for status in [200, 429] {
        let response = app.ready().await.unwrap().call(Request::new(Body::empty())).await.unwrap();
        assert_eq!(response.status().as_u16(), status);
    }
}
