//! Connections that are upgraded to WebSockets and other protocols.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use adieu_core::{Config, Phase, Reason};
use axum::Router;
use axum::extract::ws::{Message as AxumMessage, WebSocket, WebSocketUpgrade};
use axum::routing::get;
use tokio::io::AsyncReadExt;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

use super::answers::problems;
use super::client::{Client, PATIENCE, Server};

const UPGRADE: &str = "GET /ws HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\n\
    upgrade: websocket\r\nsec-websocket-version: 13\r\n\
    sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

/// Sends a welcome, then echoes until the client closes. Does not observe the shutdown.
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
async fn s93_a_websocket_client_gets_a_close_frame_with_1001() {
    use tokio_stream::StreamExt as _;
    let server = Server::start(app()).await;
    let mut client = connect(&server).await;
    assert_eq!(client.next().await.unwrap().unwrap(), Message::text("welcome"));
    let ended = tokio::spawn(server.end());
    let close = tokio::time::timeout(PATIENCE, client.next()).await.unwrap().unwrap().unwrap();
    let Message::Close(Some(frame)) = close else { panic!("{close:?}") };
    assert_eq!(frame.code, CloseCode::Away);
    // The client's library answers the close frame; then the connection ends.
    while let Some(Ok(_)) = client.next().await {}
    drop(client);
    let report = ended.await.unwrap();
    assert!(report.is_clean(), "{report}");
    assert!(report.took < Duration::from_secs(5), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s381_a_client_that_does_not_answer_the_close_frame_is_disconnected() {
    let server = Server::start_with(app(), Config::for_tests(), |serve| {
        serve.websocket_close_timeout(Duration::from_millis(200))
    })
    .await;
    let mut client = server.connect().await;
    client.send(UPGRADE).await;
    client.until("welcome").await;
    let report = server.end().await;
    assert!(report.is_clean(), "{report}");
    assert!(report.took < Duration::from_secs(3), "{report}");
    // No bytes follow the close frame.
    assert_eq!(client.rest_bytes().await, [0x88, 0x02, 0x03, 0xE9]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s379_the_close_frame_is_written_between_two_frames() {
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
    // The server is writing the first frame, which is too large to be written at once.
    client.until("\x07").await;
    server.close().await;
    let rest = client.bytes(SIZE - 1 + 4).await;
    assert!(rest[..SIZE - 1].iter().all(|byte| *byte == 7), "the frame is complete");
    assert_eq!(rest[SIZE - 1..], [0x88, 0x02, 0x03, 0xE9], "and the close frame follows");
    server.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s380_the_close_frame_needs_no_help_from_the_application() {
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
    let timeout = Duration::from_millis(300);
    let config = Config::for_tests().drain_timeout(Duration::from_millis(1_500));
    let server =
        Server::start_with(app, config, |serve| serve.websocket_close_timeout(timeout)).await;
    let mut clients = [server.connect().await, server.connect().await];
    for (client, path) in clients.iter_mut().zip(["/push", "/idle"]) {
        client.send(UPGRADE.replace("/ws", path)).await;
        client.until("tick").await;
    }
    let report = server.end().await;
    assert!(report.took < Duration::from_secs(4), "{report}");
    // One handler has learned of the end, because its write failed. The other one never looks.
    let problems = problems(&report);
    assert!(!report.is_clean() && problems.contains("GET /idle"), "{problems}");
    assert!(!problems.contains("GET /push"), "{problems}");
    for client in &mut clients {
        let rest = client.rest_bytes().await;
        assert!(rest.ends_with(&[0x88, 0x02, 0x03, 0xE9]), "no bytes follow the close frame");
    }
}

/// How a client behaves when the server has sent it a close frame.
#[derive(Clone, Copy, Debug)]
enum Answer {
    None,
    CloseFrame,
    Disconnect,
}

/// Gives a WebSocket handler a message that takes it 1.5 s, during which it does not read. Returns the
/// server, the client, and whether the handler has finished before `close-resources` ran.
async fn busy(window: Duration) -> (Server, Client, Arc<AtomicBool>) {
    let (is_closed, is_done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let handler = {
        let (is_closed, is_done) = (Arc::clone(&is_closed), Arc::clone(&is_done));
        async move |mut socket: WebSocket| {
            let _ = socket.send(AxumMessage::Text("begun".into())).await;
            tokio::time::sleep(Duration::from_millis(1_500)).await;
            is_done.store(!is_closed.load(Ordering::SeqCst), Ordering::SeqCst);
        }
    };
    let upgrade = async move |upgrade: WebSocketUpgrade| upgrade.on_upgrade(handler);
    let config = Config::for_tests().drain_timeout(window);
    let server = Server::start_with(Router::new().route("/ws", get(upgrade)), config, |serve| {
        serve.websocket_close_timeout(Duration::from_millis(100))
    })
    .await;
    let close = async move |_| is_closed.store(true, Ordering::SeqCst);
    server.shutdown.add_task(Phase::CLOSE_RESOURCES, "close pool", close).unwrap();
    let mut client = server.connect().await;
    client.send(UPGRADE).await;
    client.until("begun").await;
    (server, client, is_done)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1700_a_websocket_handler_that_is_busy_finishes_before_resources_are_closed() {
    for answer in [Answer::None, Answer::CloseFrame, Answer::Disconnect] {
        let (server, mut client, is_done) = busy(PATIENCE).await;
        let run = server.shutdown.run(Reason::Unknown);
        assert_eq!(client.bytes(4).await, [0x88, 0x02, 0x03, 0xE9]);
        let mut client = Some(client);
        match answer {
            Answer::None => {}
            Answer::CloseFrame => {
                let close = [0x88, 0x82, 0, 0, 0, 0, 0x03, 0xE8];
                client.as_mut().unwrap().send(&close).await;
            }
            Answer::Disconnect => drop(client.take()),
        }
        let report = tokio::time::timeout(PATIENCE, run).await.unwrap().unwrap();
        assert!(is_done.load(Ordering::SeqCst), "{answer:?}: {report}");
        assert!(report.is_clean(), "{answer:?}: {report}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1701_a_websocket_handler_that_outlasts_its_window_is_named() {
    for from in [None, Some(Phase::SERVICE_STOP)] {
        let (server, _client, is_done) = busy(Duration::from_millis(500)).await;
        let run = match from {
            None => server.shutdown.run(Reason::Unknown),
            Some(phase) => server.shutdown.run_from(phase, Reason::Unknown).unwrap(),
        };
        let report = tokio::time::timeout(PATIENCE, run).await.unwrap().unwrap();
        assert!(!is_done.load(Ordering::SeqCst), "{report}");
        let problems = problems(&report);
        assert!(!report.is_clean() && problems.contains("cut off: GET /ws"), "{problems}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s382_a_websocket_holds_its_pass_until_its_connection_has_ended() {
    let server = Server::start(app()).await;
    let gate = server.shutdown.gates()[0].clone();
    let mut client = server.connect().await;
    client.send(UPGRADE).await;
    client.until("welcome").await;
    assert_eq!(gate.in_flight(), 1);
    assert_eq!(gate.oldest(1)[0].label, "GET /ws");
    drop(client);
    let left = async {
        while gate.in_flight() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, left).await.expect("the pass should end");
    assert!(server.end().await.is_clean());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s94_another_protocol_stays_connected_until_its_window_has_elapsed() {
    let upgrade = async |request: axum::extract::Request| {
        let upgraded = hyper::upgrade::on(request);
        tokio::spawn(async move {
            let mut io = hyper_util::rt::TokioIo::new(upgraded.await.unwrap());
            let mut read = Vec::new();
            // Returns when the server has taken the connection away.
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
