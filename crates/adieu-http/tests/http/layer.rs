//! The layer, by itself.

use std::convert::Infallible;
use std::time::Duration;

use adieu_core::{DrainClass, Gate, Pass};
use adieu_http::GateLayer;
use axum::body::Body;
use bytes::Bytes;
use futures_util::FutureExt;
use http::{Request, Response};
use http_body_util::BodyExt;
use http_body_util::channel::Channel;
use tower::{Layer, Service, ServiceExt, service_fn};

fn request(content_type: &str) -> Request<Body> {
    Request::post("/").header("content-type", content_type).body(Body::empty()).unwrap()
}

#[tokio::test]
async fn s81_a_pass_is_taken_with_the_call_and_held_to_the_end_of_the_body() {
    let gate = Gate::new("http");
    let (mut chunks, body) = Channel::<Bytes, Infallible>::new(1);
    let mut body = Some(body);
    let app = service_fn(move |_: Request<Body>| {
        let response = Response::new(body.take().unwrap());
        async { Ok::<_, Infallible>(response) }
    });
    let mut app = GateLayer::new(&gate).layer(app);

    app.ready().await.unwrap();
    assert_eq!(gate.in_flight(), 0, "a service that is ready holds nothing");
    let call = app.call(request("text/plain"));
    assert_eq!(gate.in_flight(), 1, "a call does, before it is polled");
    let mut response = call.await.unwrap();
    assert_eq!(gate.in_flight(), 1, "and when its head is there");
    assert!(response.body_mut().frame().now_or_never().is_none(), "there is nothing yet");
    assert_eq!(gate.oldest(1)[0].label, "POST /", "a stream is known by name when it waits");
    gate.close();
    chunks.send_data("bye".into()).await.unwrap();
    drop(chunks);
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "bye");
    assert!(gate.is_drained(), "until its body has ended");
}

#[tokio::test]
async fn s82_who_is_refused_is_told_in_its_own_tongue() {
    let gate = Gate::new("http");
    gate.set_retry_after(Duration::from_millis(1_500));
    gate.close();
    let app = service_fn(async |_: Request<Body>| -> Result<Response<Body>, Infallible> {
        panic!("nothing may reach the application");
    });
    let refuse = GateLayer::new(&gate);

    let refused = refuse.layer(app).oneshot(request("text/plain")).await.unwrap();
    assert_eq!(refused.status(), 503);
    assert_eq!(refused.headers()["retry-after"], "2", "in whole seconds, never too early");
    assert_eq!(refused.headers()["connection"], "close");
    let body = refused.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, r#"{"error":"draining","retry_after_ms":1500}"#);

    let refused = refuse.clone().too_many_requests().layer(app);
    let refused = refused.oneshot(request("text/plain")).await.unwrap();
    assert_eq!(refused.status(), 429);

    let refused = refuse.layer(app).oneshot(request("application/grpc")).await.unwrap();
    assert_eq!(refused.status(), 200, "gRPC has its own status");
    assert_eq!(refused.headers()["grpc-status"], "14", "UNAVAILABLE");
    assert_eq!(refused.headers()["grpc-retry-pushback-ms"], "1500");
}

#[tokio::test]
async fn s83_what_is_inside_may_enter_again_and_take_its_pass_along() {
    let gate = Gate::new("http");
    let inner = gate.clone();
    let app = service_fn(move |_: Request<Body>| {
        let gate = inner.clone();
        async move {
            gate.close();
            let again = gate.enter().expect("it rides on its own pass");
            let carried = Pass::current().expect("the handler has a pass");
            drop(again);
            let mut response = Response::new(Body::empty());
            response.extensions_mut().insert(carried);
            Ok::<_, Infallible>(response)
        }
    });
    let response = GateLayer::new(&gate).layer(app).oneshot(request("text/plain")).await.unwrap();
    assert_eq!(gate.in_flight(), 1, "what was carried counts");
    drop(response);
    assert!(gate.is_drained());
}

#[tokio::test]
async fn s84_what_has_no_answer_when_its_window_is_over_gets_the_refusal() {
    let gate = Gate::new("http");
    let app = service_fn(async |_: Request<Body>| {
        std::future::pending::<Result<Response<Body>, Infallible>>().await
    });
    let app = GateLayer::new(&gate).layer(app);
    let call = tokio::spawn(app.oneshot(request("text/plain")));
    while gate.oldest(1).is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(gate.oldest(1)[0].label, "POST /", "who takes its time is known by name");
    gate.close();
    gate.cut();
    let response = call.await.unwrap().unwrap();
    assert_eq!(response.status(), 503);
    assert!(gate.is_drained());
}

#[tokio::test]
async fn s85_a_stream_ends_by_its_class() {
    for (class, content_type, grpc) in [
        (None, "text/event-stream", false),
        (Some(DrainClass::CloseNow), "text/plain", false),
        (Some(DrainClass::CloseNow), "application/grpc", true),
        (None, "text/plain", false),
        (Some(DrainClass::Resumable), "text/event-stream", false),
    ] {
        let gate = Gate::new("http");
        let app = service_fn(move |_: Request<Body>| async move {
            let (open, body) = Channel::<Bytes, Infallible>::new(1);
            let mut response = Response::new(body);
            response.headers_mut().insert("content-type", content_type.parse().unwrap());
            if let Some(class) = class {
                response.extensions_mut().insert(class);
            }
            std::mem::forget(open); // It never ends by itself.
            Ok::<_, Infallible>(response)
        });
        let app = GateLayer::new(&gate).layer(app);
        let mut body = app.oneshot(request(content_type)).await.unwrap().into_body();
        let mut ended = tokio::spawn(async move { body.frame().await });
        gate.close();
        let closes_now = class.unwrap_or(if content_type == "text/event-stream" {
            DrainClass::CloseNow
        } else {
            DrainClass::Finish
        }) == DrainClass::CloseNow;
        if !closes_now {
            tokio::time::sleep(Duration::from_millis(20)).await;
            assert!(!ended.is_finished(), "{class:?} {content_type} should go on");
            gate.cut();
        }
        let ended = tokio::time::timeout(Duration::from_secs(9), &mut ended).await;
        let last = ended.expect("it should have ended").unwrap();
        match (closes_now, grpc) {
            (true, true) => {
                let trailers = last.unwrap().unwrap().into_trailers().unwrap();
                assert_eq!(trailers["grpc-status"], "14");
            }
            (true, false) => assert!(last.is_none(), "a clean end"),
            (false, _) => assert!(last.unwrap().unwrap_err().is::<adieu_http::Cut>()),
        }
    }
}
