//! The handshake of TLS, in the connection's own task: a slow one holds up nobody else.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::Stage;

const MOST: Duration = Duration::from_secs(10);

/// `None` if it failed, took too long, or the server ends.
pub(super) async fn handshake<I: AsyncRead + AsyncWrite + Unpin>(
    tls: TlsAcceptor,
    io: I,
    mut stages: watch::Receiver<Stage>,
) -> Option<TlsStream<I>> {
    tokio::select! {
        done = tokio::time::timeout(MOST, tls.accept(io)) => match done {
            Ok(Ok(stream)) => Some(stream),
            Ok(Err(error)) => {
                adieu_core::adapter::log_aside(tracing::Level::DEBUG, || {
                    move || tracing::debug!(%error, "TLS handshake failed")
                });
                None
            }
            Err(_) => None,
        },
        _ = stages.wait_for(|stage| *stage >= Stage::Parting) => None,
    }
}
