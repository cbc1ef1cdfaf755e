//! The TLS handshake. It runs in the connection's own task, so that a slow one delays no other.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::stage::Stage;

const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Returns `None` if the handshake fails or takes too long, or if the server closes idle connections.
pub(super) async fn handshake<I: AsyncRead + AsyncWrite + Unpin>(
    tls: TlsAcceptor,
    io: I,
    mut stages: watch::Receiver<Stage>,
) -> Option<TlsStream<I>> {
    tokio::select! {
        done = tokio::time::timeout(HANDSHAKE_TIMEOUT, tls.accept(io)) => match done {
            Ok(Ok(stream)) => Some(stream),
            Ok(Err(error)) => {
                adieu_core::adapter::log_aside(tracing::Level::DEBUG, || {
                    move || tracing::debug!(%error, "TLS handshake failed")
                });
                None
            }
            Err(_) => None,
        },
        _ = stages.wait_for(|stage| *stage >= Stage::Flushing) => None,
    }
}
