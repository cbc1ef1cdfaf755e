//! Peers that send garbage, half frames or nothing.

use bytes::{BufMut, Bytes, BytesMut};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message as _;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_stream::StreamExt;

use super::stage::{CLUSTER, Ledger, Node, PATIENCE, limits, pair, peer};
use crate::link::frame::{Forward, Hello, Parcel};
use crate::link::wire::PATH;
use crate::link::{Limits, Security};
use crate::time::{Duration, now};
use crate::transport::{Event, Transport};

/// Sends these bytes, and returns once the node has closed the connection.
async fn speak(address: &str, bytes: &[u8]) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let mut answer = Vec::new();
    let end = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await;
    // A reset also ends it.
    let _ = end.expect("the node closes the connection");
}

async fn still_works(a: &Node, b: &Node) {
    let ledger = Ledger::default();
    a.send(&b.peer, &b.address(), &ledger, Bytes::from_static(b"x"));
    ledger.settled().await;
    assert_eq!(ledger.finals(), (1, 0, 0, 0));
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1224_garbage_half_frames_and_other_protocols_end_only_their_own_connection() {
    let quick = Limits { silence: Duration::from_millis(300), ..limits() };
    let a = Node::start("a", 5);
    let b = Node::with("b", 7, Security::loopback_only(), quick);
    b.knows(&a);
    still_works(&a, &b).await;
    let address = b.address();
    let mut half = PREFACE.to_vec();
    // An empty SETTINGS frame, then the head of a HEADERS frame that never comes.
    half.extend_from_slice(&[0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 1, 0, 1, 4, 0, 0, 0, 1]);
    let cases: [&[u8]; 6] = [
        b"",
        b"GET / HTTP/1.1\r\nhost: x\r\n\r\n",
        &[0xff; 4_096],
        &PREFACE[..10],
        &half[..half.len() - 3],
        &half,
    ];
    for case in cases {
        speak(&address, case).await;
        // The same, from a peer that goes at once.
        let mut stream = TcpStream::connect(&address).await.unwrap();
        stream.write_all(case).await.unwrap();
        drop(stream);
        still_works(&a, &b).await;
    }
    assert_eq!(a.links.dialled(), 1, "the link of the other node was not disturbed");
    b.links.close().await;
    assert_eq!(b.links.tasks(), 0);
}

/// A peer that speaks HTTP/2, and sends these bytes as the body of its call.
async fn call(address: &str, chunks: Vec<Bytes>, ends: bool) -> http::Response<Bytes> {
    let stream = TcpStream::connect(address).await.unwrap();
    let io = TokioIo::new(stream);
    let builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    let (mut calls, connection) = builder.handshake(io).await.unwrap();
    let mut running = tokio::task::JoinSet::new();
    running.spawn(connection);
    let frames = chunks.into_iter().map(|it| Ok::<_, std::io::Error>(hyper::body::Frame::data(it)));
    let frames = tokio_stream::iter(frames);
    let body: std::pin::Pin<Box<dyn tokio_stream::Stream<Item = _> + Send>> = match ends {
        true => Box::pin(frames),
        false => Box::pin(frames.chain(tokio_stream::pending())),
    };
    let request = http::Request::post(format!("http://{address}{PATH}"))
        .header("content-type", "application/grpc")
        .body(http_body_util::StreamBody::new(body))
        .unwrap();
    let response = calls.send_request(request).await.unwrap();
    let (parts, body) = response.into_parts();
    let collected = tokio::time::timeout(PATIENCE, http_body_util::BodyExt::collect(body)).await;
    let collected = collected.expect("the node ends the call");
    let mut response = http::Response::from_parts(parts, Bytes::new());
    if let Ok(body) = collected {
        if let Some(trailers) = body.trailers() {
            response.headers_mut().extend(trailers.clone());
        }
        *response.body_mut() = body.to_bytes();
    }
    response
}

fn message(frame: &Forward) -> Bytes {
    let mut bytes = BytesMut::new();
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(frame.encoded_len()).unwrap());
    frame.encode(&mut bytes).unwrap();
    bytes.freeze()
}

fn hello() -> Forward {
    let hello = Hello {
        cluster: CLUSTER.into(),
        node: "a".into(),
        incarnation: 5,
        to: "b".into(),
        to_incarnation: 7,
        oldest_protocol: 1,
        newest_protocol: 1,
        build: "test".into(),
        link: 1,
    };
    Forward { hello: Some(hello), ..Forward::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1225_a_frame_that_is_cut_is_not_received_and_a_violation_ends_the_link() {
    let b = Node::start("b", 7);
    b.shop.learn(&peer("a", 5));
    let envelopes = |first, count| {
        let parcel = Parcel { region: "cart".into(), is_ask: true, ..Parcel::default() };
        message(&Forward { first, envelopes: vec![parcel; count], ..Forward::default() })
    };
    let whole = envelopes(1, 3);
    for cut in [1, 5, whole.len() / 2, whole.len() - 1] {
        let chunks = vec![message(&hello()), whole.slice(..cut)];
        call(&b.address(), chunks, true).await;
        assert_eq!(b.shop.count(), 0, "{cut} of {} bytes", whole.len());
    }
    for (what, chunk, text) in [
        ("a gap", envelopes(2, 1), "in place of 1"),
        ("too many", envelopes(1, 4_097), "the limit is 4096"),
        ("no protobuf", Bytes::from_static(b"\0\0\0\0\x04\xff\xff\xff\xff"), "decode"),
        ("too long", Bytes::from_static(b"\0\x7f\xff\xff\xff"), "too large"),
        ("compressed", Bytes::from_static(b"\x01\0\0\0\0"), "ompress"),
    ] {
        let response = call(&b.address(), vec![message(&hello()), chunk], false).await;
        let status = response.headers().get("grpc-message").map(|it| it.to_str().unwrap());
        let status = status.unwrap_or_default().replace("%20", " ");
        assert!(status.contains(text), "{what}: {status:?}");
        assert_eq!(b.shop.count(), 0, "{what}");
    }
    b.links.close().await;
    assert_eq!(b.links.tasks(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_without_a_hello_is_refused() {
    let b = Node::start("b", 7);
    let response = call(&b.address(), vec![message(&Forward::default())], true).await;
    let text = response.headers()["grpc-message"].to_str().unwrap();
    assert!(text.contains("hello"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1226_a_peer_that_does_not_read_its_answers_cannot_fill_the_memory() {
    let b = Node::start("b", 7);
    b.shop.learn(&peer("a", 5));
    // Each envelope is answered with its payload. None of the answers is read.
    let payload = Bytes::from(vec![7; 60_000]);
    let length = payload.len();
    let frames = (1..=2_000_u64).map(move |first| {
        let parcel = Parcel {
            region: "cart".into(),
            is_ask: true,
            remaining_micros: 60_000_000,
            payload: payload.clone(),
            ..Parcel::default()
        };
        let frame = Forward { first, envelopes: vec![parcel], ..Forward::default() };
        Ok::<_, std::io::Error>(hyper::body::Frame::data(message(&frame)))
    });
    let first = tokio_stream::once(Ok(hyper::body::Frame::data(message(&hello()))));
    let body = first.chain(tokio_stream::iter(frames)).chain(tokio_stream::pending());
    let stream = TcpStream::connect(b.address()).await.unwrap();
    let builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    let (mut calls, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
    let mut running = tokio::task::JoinSet::new();
    running.spawn(connection);
    let request = http::Request::post(format!("http://{}{PATH}", b.address()))
        .header("content-type", "application/grpc")
        .body(http_body_util::StreamBody::new(Box::pin(body)))
        .unwrap();
    let response = calls.send_request(request).await.unwrap();
    // Wait until the number of envelopes that were read has not changed for a while.
    let (mut count, mut since) = (0, now());
    while now() - since < Duration::from_secs(1) {
        if b.shop.count() != count {
            (count, since) = (b.shop.count(), now());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let most = 20 * 1024 * 1024 / length;
    assert!((1..most).contains(&count), "read {count} of 2000 envelopes");
    drop(response);
    b.links.close().await;
    assert_eq!(b.links.tasks(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1227_envelopes_to_an_address_without_a_node_are_returned() {
    let (a, b) = pair();
    let ledger = Ledger::default();
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = closed.local_addr().unwrap().to_string();
    drop(closed);
    let id = a.send(&b.peer, &address, &ledger, Bytes::new());
    ledger.settled().await;
    let [Event::Returned(why)] = &ledger.of(id)[..] else { panic!("{:?}", ledger.of(id)) };
    assert!(why.contains("failed to connect to node b at 127.0.0.1"), "{why}");

    // A server that is no node: it answers HTTP/1.1, garbage, or closes the connection.
    for answer in [&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], &[0xff; 100], b""] {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = server.local_addr().unwrap().to_string();
        let mut running = tokio::task::JoinSet::new();
        running.spawn(async move {
            while let Ok((mut stream, _)) = server.accept().await {
                let _ = stream.write_all(answer).await;
            }
        });
        let other = peer("c", answer.len() as u64 + 1);
        let id = a.send(&other, &address, &ledger, Bytes::new());
        ledger.settled().await;
        assert!(matches!(&ledger.of(id)[..], [Event::Returned(_)]), "{:?}", ledger.of(id));
    }
    a.links.close().await;
    assert_eq!(a.links.tasks(), 0);
}
