//! Every kind of request that is in flight when the signal arrives, on one replica.

#![expect(clippy::disallowed_methods, reason = "clients are tasks, and run in real time")]

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use adieu::Signal;
use http_body_util::BodyExt;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_stream::StreamExt;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tonic::transport::Channel;
use tonic_prost::ProstCodec;

use super::fleet::{Kind, start};
use crate::orders::{FOLLOW, Order, PLACE};

/// Requests a page over HTTP/1. Returns when the head of the response has arrived.
async fn get(addr: SocketAddr, path: &str) -> http::Response<hyper::body::Incoming> {
    let stream = TcpStream::connect(addr).await.unwrap();
    let (mut requests, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::task::spawn(connection);
    let request = http::Request::get(path).header("host", "shop").body(String::new()).unwrap();
    requests.send_request(request).await.unwrap()
}

/// Reads megabytes, each of one letter, and returns the number of bytes.
async fn intact(mut body: hyper::body::Incoming) -> usize {
    let mut total = 0;
    while let Some(frame) = body.frame().await {
        let mut data = frame.unwrap().into_data().unwrap();
        while !data.is_empty() {
            let (megabyte, at) = (total >> 20, total % (1 << 20));
            let letter = (b'a'..=b'z').cycle().nth(megabyte).unwrap();
            let part = data.split_to(data.len().min((1 << 20) - at));
            // Compared as slices, because byte by byte would take longer than the whole test.
            assert_eq!(part, vec![letter; part.len()], "at {total}");
            total += part.len();
        }
    }
    total
}

async fn grpc(addr: SocketAddr) -> tonic::client::Grpc<Channel> {
    let channel = Channel::from_shared(format!("http://{addr}")).unwrap().connect().await.unwrap();
    let mut grpc = tonic::client::Grpc::new(channel);
    grpc.ready().await.unwrap();
    grpc
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s101_requests_in_flight_end_according_to_their_kind() {
    let (mut replica, addr) = start(Kind::Adieu, "127.0.0.1:0", "100ms");
    let codec = ProstCodec::<Order, Order>::default;

    let slow = tokio::task::spawn(async move {
        let page = get(addr, "/slow").await;
        (page.status(), page.into_body().collect().await.unwrap().to_bytes())
    });
    let placed = tokio::task::spawn(async move {
        let order = tonic::Request::new(Order { number: 7, think_ms: 1_500 });
        grpc(addr).await.unary(order, PLACE.parse().unwrap(), codec()).await
    });
    let large = get(addr, "/large").await.into_body();
    let large = tokio::task::spawn(intact(large));
    let mut events = get(addr, "/events").await.into_body();
    let first = events.frame().await.unwrap().unwrap().into_data().unwrap();
    assert_eq!(first, "data: 0\n\n");
    let url = format!("ws://{addr}/ws");
    let (mut socket, _) = tokio_tungstenite::connect_async(url).await.unwrap();
    let order = tonic::Request::new(Order { number: 20, think_ms: 100 });
    let mut grpc = grpc(addr).await;
    let steps = grpc.server_streaming(order, FOLLOW.parse().unwrap(), codec()).await.unwrap();
    let mut steps = steps.into_inner();
    assert_eq!(steps.message().await.unwrap().unwrap().number, 0);
    // Both requests without a response have been sent.
    tokio::time::sleep(Duration::from_millis(300)).await;

    replica.signal(Signal::TERM);
    let signalled = Instant::now();

    let close_frame = socket.next().await.unwrap().unwrap();
    let Message::Close(Some(frame)) = close_frame else { panic!("{close_frame:?}") };
    assert_eq!(frame.code, CloseCode::Away, "1001");
    assert!(socket.next().await.is_none(), "the connection ends");
    while let Some(frame) = events.frame().await {
        frame.expect("an event stream ends, it does not break off");
    }
    let ended = signalled.elapsed();
    assert!(ended < Duration::from_millis(1_400), "these two end immediately, not after {ended:?}");

    let order = placed.await.unwrap().expect("a call that got in is answered").into_inner();
    assert_eq!(order.number, 7);
    for number in 1..20 {
        let step = steps.message().await.expect("an admitted stream continues");
        assert_eq!(step.unwrap().number, number);
    }
    assert!(steps.message().await.unwrap().is_none(), "the stream ends");
    assert_eq!(large.await.unwrap(), 100 << 20, "a hundred megabytes, intact");
    assert_eq!(slow.await.unwrap(), (http::StatusCode::OK, "worth waiting for".into()));

    let ended = replica.wait();
    assert_eq!(ended.status.code(), Some(0), "{ended:#?}");
    assert!(ended.report.as_ref().is_some_and(adieu::Report::is_clean), "{ended:#?}");
}
