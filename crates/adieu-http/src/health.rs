//! The gRPC health service, derived from the readiness of the process.

use std::collections::HashSet;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use adieu_core::{Readiness, Shutdown};
use tonic::codegen::tokio_stream::Stream;
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server::{Health, HealthServer};
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

/// Makes the gRPC health service: SERVING while the process is ready, and NOT_SERVING for every
/// service from the beginning of the shutdown.
///
/// It answers for the process as a whole (the empty name) and for `services`, which are ready when
/// the process is. The status is derived from [`Shutdown::readiness`], so there is no status to set.
/// Health checks are answered even when the gate is closed. Watches end when the gate closes.
///
/// ```
/// # use adieu_core::Shutdown;
/// # let shutdown = Shutdown::new();
/// let health = adieu_http::health(&shutdown, ["shop.Orders"]);
/// let routes = tonic::service::Routes::new(health);
/// ```
pub fn health(
    shutdown: &Shutdown,
    services: impl IntoIterator<Item = impl Into<String>>,
) -> HealthServer<impl Health> {
    let services = services.into_iter().map(Into::into).collect();
    HealthServer::new(ReadinessHealth { shutdown: shutdown.clone(), services })
}

struct ReadinessHealth {
    shutdown: Shutdown,
    services: HashSet<String>,
}

/// Yields the status, and again whenever it changes.
struct Watch {
    shutdown: Arc<Shutdown>,
    next: Pin<Box<dyn Future<Output = ServingStatus> + Send>>,
}

// === impl ReadinessHealth ===

impl ReadinessHealth {
    fn knows(&self, service: &str) -> bool {
        service.is_empty() || self.services.contains(service)
    }
}

#[tonic::async_trait]
impl Health for ReadinessHealth {
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        let service = &request.get_ref().service;
        if !self.knows(service) {
            return Err(Status::not_found(format!("unknown service {service:?}")));
        }
        Ok(Response::new(response(status_of(self.shutdown.readiness()))))
    }

    type WatchStream = Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;

    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let shutdown = Arc::new(self.shutdown.clone());
        let first = match self.knows(&request.get_ref().service) {
            true => status_of(shutdown.readiness()),
            // The protocol requires this status, and the call to stay open.
            false => ServingStatus::ServiceUnknown,
        };
        let next: Pin<Box<dyn Future<Output = _> + Send>> = Box::pin(std::future::ready(first));
        Ok(Response::new(Box::pin(Watch { shutdown, next })))
    }
}

// === impl Watch ===

impl Stream for Watch {
    type Item = Result<HealthCheckResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let status = ready!(self.next.as_mut().poll(cx));
        let shutdown = Arc::clone(&self.shutdown);
        self.next = match status {
            ServingStatus::ServiceUnknown => Box::pin(std::future::pending()),
            ServingStatus::Unknown | ServingStatus::Serving | ServingStatus::NotServing => {
                Box::pin(async move {
                    let other = |readiness| status_of(readiness) != status;
                    status_of(shutdown.until_readiness(other).await)
                })
            }
        };
        Poll::Ready(Some(Ok(response(status))))
    }
}

fn status_of(readiness: Readiness) -> ServingStatus {
    if readiness.is_ready() { ServingStatus::Serving } else { ServingStatus::NotServing }
}

fn response(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse { status: status as i32 }
}
