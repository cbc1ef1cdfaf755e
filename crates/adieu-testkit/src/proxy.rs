//! A proxy on the loopback interface that can be cut, so that a server is away and yet not gone.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Passes bytes between who connects to it and a server, until it is cut.
///
/// While it is cut, connections stay open and nothing comes through, as if a cable were pulled; what
/// was sent meanwhile arrives when it is mended. It ends when dropped.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    cut: watch::Sender<bool>,
    _running: JoinSet<()>,
}

// === impl Proxy ===

impl Proxy {
    /// A proxy to this server.
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

    /// Where to connect to.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where to connect to, on the loopback interface.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Lets nothing through.
    pub fn cut(&self) {
        self.cut.send_replace(true);
    }

    /// Lets everything through again.
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
    // Whichever side ends first, the other is told.
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
