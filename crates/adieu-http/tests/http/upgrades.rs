//! WebSockets and other protocols.

use std::time::Duration;

use adieu_core::{Config, Phase};
use axum::Router;
use axum::extract::ws::{Message as AxumMessage, WebSocket, WebSocketUpgrade};
use axum::routing::get;
use tokio::io::AsyncReadExt;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

use super::client::{PATIENCE, Server};

const UPGRADE: &str = "GET /ws HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\n\
    upgrade: websocket\r\nsec-websocket-version: 13\r\n\
    sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

/// Greets, then echoes until the other side has had enough. Knows nothing of shutdowns.
async fn echo(mut socket: WebSocket) {
    let _ = socket.send(AxumMessage::Text("welcome".into())).await;
    while let Some(Ok(message)) = socket.recv().await {
        if socket.send(message).await.is_err() {
            break;
        }
    }
}

fn app() -> Router {
    let upgrade = async |upgrade: WebSocketUpgrade| upgrade.on_upgrade(echo);
    Router::new().route("/ws", get(upgrade))
}

async fn connect(
    server: &Server,
) -> tokio_tungstenite::WebSocketStream<tokio_tungstenite::MaybeTlsStream<tokio::net::TcpStream>> {
    let url = format!("ws://{}/ws", server.addr);
    tokio_tungstenite::connect_async(url).await.unwrap().0
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s93_a_websocket_is_told_1001_and_has_time_to_answer() {
    use tokio_stream::StreamExt as _;
    let server = Server::start(app()).await;
    let mut client = connect(&server).await;
    assert_eq!(client.next().await.unwrap().unwrap(), Message::text("welcome"));
    let ended = tokio::spawn(server.end());
    let close = tokio::time::timeout(PATIENCE, client.next()).await.unwrap().unwrap().unwrap();
    let Message::Close(Some(frame)) = close else { panic!("{close:?}") };
    assert_eq!(frame.code, CloseCode::Away);
    // Our library has answered by itself; then the connection ends.
    while let Some(Ok(_)) = client.next().await {}
    drop(client);
    let report = ended.await.unwrap();
    assert!(report.is_clean(), "{report}");
    assert!(report.took < Duration::from_secs(5), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s93_one_that_does_not_answer_is_not_waited_for() {
    let server = Server::start_with(app(), Config::for_tests(), |serve| {
        serve.websocket_close_timeout(Duration::from_millis(200))
    })
    .await;
    let mut client = server.connect().await;
    client.send(UPGRADE).await;
    client.until("welcome").await;
    assert_eq!(server.shutdown.status().waiting_for.len(), 0);
    let report = server.end().await;
    assert!(report.is_clean(), "{report}");
    assert!(report.took < Duration::from_secs(3), "{report}");
    // The close frame, and nothing after it.
    assert_eq!(client.rest_bytes().await, [0x88, 0x02, 0x03, 0xE9]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s93_goodbye_is_said_between_two_frames() {
    const SIZE: usize = 12 << 20;
    let large = async |mut socket: WebSocket| {
        for _ in 0..2 {
            let _ = socket.send(AxumMessage::Binary(vec![7u8; SIZE].into())).await;
        }
        std::future::pending::<()>().await
    };
    let upgrade = async move |upgrade: WebSocketUpgrade| upgrade.on_upgrade(large);
    let app = Router::new().route("/ws", get(upgrade));
    let config =
        Config::for_tests().phase_timeout(Phase::SERVICE_REQUESTS_DONE, Duration::from_secs(2));
    let server = Server::start_with(app, config, |serve| serve).await;
    let mut client = server.connect().await;
    client.send(UPGRADE).await;
    client.until("\r\n\r\n").await;
    // It is in the midst of its first frame, which is too large to be written at once.
    client.until("\x07").await;
    server.close().await;
    let rest = client.bytes(SIZE - 1 + 4).await;
    assert!(rest[..SIZE - 1].iter().all(|byte| *byte == 7), "the frame is whole");
    assert_eq!(rest[SIZE - 1..], [0x88, 0x02, 0x03, 0xE9], "and then comes goodbye");
    server.end().await;
}

/// The application need not be reading, nor even look at the connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s93_it_needs_nothing_of_the_application() {
    let push = async |mut socket: WebSocket| {
        while socket.send(AxumMessage::Text("tick".into())).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let idle = async |mut socket: WebSocket| {
        let _ = socket.send(AxumMessage::Text("tick".into())).await;
        std::future::pending::<()>().await
    };
    let app = Router::new()
        .route("/push", get(async move |upgrade: WebSocketUpgrade| upgrade.on_upgrade(push)))
        .route("/idle", get(async move |upgrade: WebSocketUpgrade| upgrade.on_upgrade(idle)));
    let goodbye = Duration::from_millis(300);
    let server = Server::start_with(app, Config::for_tests(), |serve| {
        serve.websocket_close_timeout(goodbye)
    })
    .await;
    let mut clients = [server.connect().await, server.connect().await];
    for (client, path) in clients.iter_mut().zip(["/push", "/idle"]) {
        client.send(UPGRADE.replace("/ws", path)).await;
        client.until("tick").await;
    }
    let report = server.end().await;
    assert!(report.is_clean(), "{report}");
    assert!(report.took < Duration::from_secs(3), "{report}");
    for client in &mut clients {
        let rest = client.rest_bytes().await;
        assert!(rest.ends_with(&[0x88, 0x02, 0x03, 0xE9]), "goodbye, and nothing after it");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s94_another_protocol_has_until_its_window_is_over() {
    let upgrade = async |request: axum::extract::Request| {
        let upgraded = hyper::upgrade::on(request);
        tokio::spawn(async move {
            let mut io = hyper_util::rt::TokioIo::new(upgraded.await.unwrap());
            let mut read = Vec::new();
            // Ends when it is told that there is nothing more to read.
            io.read_to_end(&mut read).await
        });
        http::Response::builder()
            .status(101)
            .header("connection", "upgrade")
            .header("upgrade", "raw")
            .body(axum::body::Body::empty())
            .unwrap()
    };
    let config =
        Config::for_tests().phase_timeout(Phase::SERVICE_REQUESTS_DONE, Duration::from_millis(400));
    let app = Router::new().route("/raw", get(upgrade));
    let server = Server::start_with(app, config, |serve| serve).await;
    let mut client = server.connect().await;
    client
        .send("GET /raw HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: raw\r\n\r\n")
        .await;
    client.until("\r\n\r\n").await;
    let report = server.end().await;
    assert!(!report.is_clean(), "{report}");
    assert!(report.to_string().contains("GET /raw"), "{report}");
    client.rest().await.unwrap();
}
