//! The shop's gRPC service.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio_stream::StreamExt;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic_prost::ProstCodec;

use crate::orders::{FOLLOW, Order, PLACE};

/// `Place` waits and answers once; `Follow` answers `number` times, and waits before each.
#[derive(Clone)]
pub(crate) struct Orders;

impl NamedService for Orders {
    const NAME: &'static str = "shop.Orders";
}

impl tower::Service<http::Request<Body>> for Orders {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let mut grpc = tonic::server::Grpc::new(ProstCodec::<Order, Order>::default());
        Box::pin(async move {
            Ok(match request.uri().path() {
                PLACE => grpc.unary(tower::service_fn(place), request).await,
                FOLLOW => grpc.server_streaming(tower::service_fn(follow), request).await,
                _ => tonic::Status::unimplemented("no such call").into_http(),
            })
        })
    }
}

async fn place(order: tonic::Request<Order>) -> Result<tonic::Response<Order>, tonic::Status> {
    let order = order.into_inner();
    tokio::time::sleep(Duration::from_millis(order.think_ms)).await;
    Ok(tonic::Response::new(order))
}

type Following = Pin<Box<dyn tokio_stream::Stream<Item = Result<Order, tonic::Status>> + Send>>;

async fn follow(order: tonic::Request<Order>) -> Result<tonic::Response<Following>, tonic::Status> {
    let Order { number, think_ms } = order.into_inner();
    let steps = tokio_stream::iter(0..number).throttle(Duration::from_millis(think_ms));
    Ok(tonic::Response::new(Box::pin(steps.map(move |number| Ok(Order { number, think_ms })))))
}
