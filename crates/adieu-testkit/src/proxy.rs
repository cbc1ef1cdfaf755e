//! A proxy on the loopback interface that can be cut, to make a running server unreachable.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Forwards bytes between clients and a server.
///
/// While it is cut, connections stay open and no data is forwarded, as with an unplugged cable. Data
/// that was sent meanwhile arrives when the proxy is mended. The proxy ends when this is dropped.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    cut: watch::Sender<bool>,
    _running: JoinSet<()>,
}

// === impl Proxy ===

impl Proxy {
    /// Starts a proxy to this server.
    ///
    /// # Panics
    ///
    /// If there is no free port.
    pub async fn new(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("its address");
        let (cut, is_cut) = watch::channel(false);
        let mut running = JoinSet::new();
        running.spawn(accept(listener, server, is_cut));
        Self { address, cut, _running: running }
    }

    /// Returns the address to connect to.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the port to connect to, on the loopback interface.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Stops forwarding.
    pub fn cut(&self) {
        self.cut.send_replace(true);
    }

    /// Resumes forwarding.
    pub fn mend(&self) {
        self.cut.send_replace(false);
    }
}

async fn accept(listener: TcpListener, server: SocketAddr, cut: watch::Receiver<bool>) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        connections.spawn(pass(client, server, cut.clone()));
        while connections.try_join_next().is_some() {}
    }
}

async fn pass(client: TcpStream, server: SocketAddr, mut cut: watch::Receiver<bool>) {
    if cut.wait_for(|cut| !cut).await.is_err() {
        return;
    }
    let Ok(server) = TcpStream::connect(server).await else { return };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    // When either side closes, both connections are dropped.
    tokio::select! {
        () = copy(from_client, to_server, cut.clone()) => {}
        () = copy(from_server, to_client, cut) => {}
    }
}

async fn copy(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut cut: watch::Receiver<bool>) {
    let mut bytes = vec![0; 16 * 1024];
    loop {
        let Ok(length @ 1..) = from.read(&mut bytes).await else { return };
        if cut.wait_for(|cut| !cut).await.is_err() || to.write_all(&bytes[..length]).await.is_err()
        {
            return;
        }
    }
}
