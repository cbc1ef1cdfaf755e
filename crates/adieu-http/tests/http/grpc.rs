//! gRPC: its health, and its refusals.

use std::time::Duration;

use adieu_core::{Config, Reason, Signal};
use tonic::service::Routes;
use tonic::transport::Channel;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use super::client::{PATIENCE, Server};

fn ask(service: &str) -> HealthCheckRequest {
    HealthCheckRequest { service: service.into() }
}

async fn connect(server: &Server) -> HealthClient<Channel> {
    let channel = Channel::from_shared(format!("http://{}", server.addr)).unwrap();
    HealthClient::new(channel.connect().await.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s96_grpc_health_is_readiness_and_its_watches_end() {
    let shutdown = adieu_core::Shutdown::configured(
        Config::for_tests()
            .lame_duck(Duration::from_secs(60))
            .lame_duck_min(Duration::from_secs(60)),
    )
    .unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let routes = Routes::new(adieu_http::health(&shutdown, ["shop.Orders"]));
    let server = Server::adopt(shutdown.clone(), listener, |listener| {
        adieu_http::serve(listener, routes, &shutdown).into_future()
    });
    shutdown.until_readiness(|readiness| readiness.is_ready()).await;
    let mut client = connect(&server).await;

    for service in ["", "shop.Orders"] {
        let answer = client.check(ask(service)).await.unwrap().into_inner();
        assert_eq!(answer.status(), ServingStatus::Serving);
    }
    let unknown = client.check(ask("shop.Typo")).await.unwrap_err();
    assert_eq!(unknown.code(), tonic::Code::NotFound);
    let mut watch = client.watch(ask("shop.Orders")).await.unwrap().into_inner();
    assert_eq!(watch.message().await.unwrap().unwrap().status(), ServingStatus::Serving);

    drop(shutdown.run(Reason::Unknown));
    let told = tokio::time::timeout(PATIENCE, watch.message()).await.unwrap();
    assert_eq!(told.unwrap().unwrap().status(), ServingStatus::NotServing, "at the first moment");
    // On a new connection, too: the old one has got GOAWAY.
    let mut late = connect(&server).await;
    let answer = late.check(ask("shop.Orders")).await.unwrap().into_inner();
    assert_eq!(answer.status(), ServingStatus::NotServing);

    // The second ends the lame duck. So near to each other they would be one.
    let _ = shutdown.receive(Signal::TERM);
    tokio::time::sleep(2 * Signal::ECHO).await;
    let _ = shutdown.receive(Signal::TERM);
    let ended = tokio::time::timeout(PATIENCE, watch.message()).await.unwrap().unwrap_err();
    assert_eq!(ended.code(), tonic::Code::Unavailable, "{ended:?}");
    drop(server.end().await);
}
