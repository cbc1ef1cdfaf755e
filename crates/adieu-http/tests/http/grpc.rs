//! gRPC health.

use std::time::Duration;

use adieu_core::{Config, Reason, Shutdown, Signal};
use tonic::service::Routes;
use tonic::transport::Channel;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use super::client::{PATIENCE, Server};

fn request(service: &str) -> HealthCheckRequest {
    HealthCheckRequest { service: service.into() }
}

async fn connect(server: &Server) -> HealthClient<Channel> {
    let channel = Channel::from_shared(format!("http://{}", server.addr)).unwrap();
    HealthClient::new(channel.connect().await.unwrap())
}

/// A server of gRPC health, with a lame duck that lasts longer than the test.
async fn start() -> Server {
    let minute = Duration::from_secs(60);
    let config = Config::for_tests().lame_duck(minute).lame_duck_min(minute);
    let shutdown = Shutdown::configured(config).unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let routes = Routes::new(adieu_http::health(&shutdown, ["shop.Orders"]));
    let server = Server::adopt(shutdown.clone(), listener, |listener| {
        adieu_http::serve(listener, routes, &shutdown).into_future()
    });
    shutdown.until_readiness(|readiness| readiness.is_ready()).await;
    server
}

/// Ends the lame duck with a second signal. Signals within `ECHO` of each other would be one.
async fn end_lame_duck(server: &Server) {
    let _ = server.shutdown.receive(Signal::TERM);
    tokio::time::sleep(2 * Signal::ECHO).await;
    let _ = server.shutdown.receive(Signal::TERM);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s96_grpc_health_follows_readiness() {
    let server = start().await;
    let mut client = connect(&server).await;
    for service in ["", "shop.Orders"] {
        let answer = client.check(request(service)).await.unwrap().into_inner();
        assert_eq!(answer.status(), ServingStatus::Serving);
    }
    let unknown = client.check(request("shop.Typo")).await.unwrap_err();
    assert_eq!(unknown.code(), tonic::Code::NotFound);
    let mut watch = client.watch(request("shop.Orders")).await.unwrap().into_inner();
    assert_eq!(watch.message().await.unwrap().unwrap().status(), ServingStatus::Serving);

    drop(server.shutdown.run(Reason::Unknown));
    let update = tokio::time::timeout(PATIENCE, watch.message()).await.unwrap();
    assert_eq!(update.unwrap().unwrap().status(), ServingStatus::NotServing);
    for service in ["", "shop.Orders"] {
        // On a new connection each, because open ones have got GOAWAY.
        let answer = connect(&server).await.check(request(service)).await.unwrap().into_inner();
        assert_eq!(answer.status(), ServingStatus::NotServing);
    }
    end_lame_duck(&server).await;
    drop(server.end().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s389_grpc_health_watches_end_when_the_gate_closes() {
    let server = start().await;
    let mut client = connect(&server).await;
    let mut watch = client.watch(request("")).await.unwrap().into_inner();
    assert_eq!(watch.message().await.unwrap().unwrap().status(), ServingStatus::Serving);
    drop(server.shutdown.run(Reason::Unknown));
    let update = tokio::time::timeout(PATIENCE, watch.message()).await.unwrap();
    assert_eq!(update.unwrap().unwrap().status(), ServingStatus::NotServing);
    end_lame_duck(&server).await;
    let ended = tokio::time::timeout(PATIENCE, watch.message()).await.unwrap().unwrap_err();
    assert_eq!(ended.code(), tonic::Code::Unavailable, "{ended:?}");
    drop(server.end().await);
}
