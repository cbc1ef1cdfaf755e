//! The values that layers derive from a request: key, criticality and deadline.

use std::convert::Infallible;

use adieu_core::Deadline;
use adieu_resilience::{Breaker, Bulkhead, CallError, Code, Criticality, Policy};
use http::{HeaderMap, Request, Response, StatusCode};
use tokio::time::Instant;
use tower::{Layer, ServiceExt, service_fn};

use super::tools::{code, ms, poll, shutdown};

fn head(name: &str, value: u64) -> Request<String> {
    Request::get("http://backend/").header(name, value).body(String::new()).unwrap()
}

fn number(headers: &HeaderMap, name: &str) -> Option<u64> {
    headers.get(name)?.to_str().ok()?.parse().ok()
}

fn criticality(headers: &HeaderMap) -> Criticality {
    match number(headers, "x-critical") {
        Some(_) => Criticality::Critical,
        None => Criticality::Normal,
    }
}

fn deadline(headers: &HeaderMap) -> Option<Deadline> {
    Some(Deadline::after(ms(number(headers, "x-millis")?)))
}

#[tokio::test(start_paused = true)]
async fn s1662_the_layer_of_a_server_takes_criticality_and_deadline_from_the_request() {
    let shutdown = shutdown();
    let policy = Policy::new("p").bulkhead(Bulkhead::of(1).queue(1)).start(&shutdown).unwrap();
    let layer = policy
        .layer()
        .criticality(|request| criticality(&request.headers))
        .by(|request| deadline(&request.headers));
    let hang = |_: Request<String>| std::future::pending::<Result<Response<String>, Infallible>>();
    let service = layer.layer(service_fn(hang));
    let began = Instant::now();
    let late = service.clone().oneshot(head("x-millis", 20)).await.unwrap();
    assert_eq!((late.status(), began.elapsed()), (StatusCode::SERVICE_UNAVAILABLE, ms(20)));
    assert!(late.body().contains("timed-out"), "{}", late.body());
    let mut inside = Box::pin(service.clone().oneshot(head("x-other", 1)));
    let mut normal = Box::pin(service.clone().oneshot(head("x-other", 1)));
    let mut critical = Box::pin(service.clone().oneshot(head("x-critical", 1)));
    for request in [&mut inside, &mut normal, &mut critical] {
        assert!(poll(request.as_mut()).is_none());
    }
    let shed = normal.await.unwrap();
    assert!(shed.body().contains("shed"), "{}", shed.body());
}

#[tokio::test(start_paused = true)]
async fn s1662_the_layer_of_a_client_takes_key_criticality_and_deadline_from_the_request() {
    let shutdown = shutdown();
    let breaker = Breaker::at(1.0).of(1);
    let policy = Policy::new("p").breaker(breaker).bulkhead(Bulkhead::of(1).queue(1));
    let policy = policy.start(&shutdown).unwrap();
    let layer = policy
        .client()
        .key(|request: &Request<String>| Some(number(request.headers(), "x-shard")?.to_string()))
        .criticality(|request| criticality(request.headers()))
        .by(|request| deadline(request.headers()));
    let answer = |request: Request<String>| async move {
        match number(request.headers(), "x-shard") {
            Some(status) => Ok::<_, std::io::Error>(
                Response::builder().status(u16::try_from(status).unwrap()).body(()).unwrap(),
            ),
            None => std::future::pending().await,
        }
    };
    let client = layer.layer(service_fn(answer));
    let send = |request| client.clone().oneshot(request);
    assert_eq!(send(head("x-shard", 500)).await.unwrap().status(), 500);
    assert_eq!(code(send(head("x-shard", 500)).await), Code::Open);
    assert_eq!(send(head("x-shard", 200)).await.unwrap().status(), 200);
    let began = Instant::now();
    let late = send(head("x-millis", 20)).await;
    assert!(matches!(late, Err(CallError::TimedOut { .. })), "{late:?}");
    assert_eq!(began.elapsed(), ms(20));
    let mut inside = Box::pin(send(head("x-other", 1)));
    let mut normal = Box::pin(send(head("x-other", 1)));
    let mut critical = Box::pin(send(head("x-critical", 1)));
    for request in [&mut inside, &mut normal, &mut critical] {
        assert!(poll(request.as_mut()).is_none());
    }
    assert_eq!(code(normal.await), Code::Shed);
}
