//! A proxy on the loopback interface that makes a running server slow, silent or unreachable.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Forwards bytes between clients and a server.
///
/// While it is cut, connections stay open and no data is forwarded, as with an unplugged cable.
/// Data that was sent meanwhile arrives after [`Proxy::mend`]. The proxy ends when this is dropped.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    faults: watch::Sender<Faults>,
    _running: JoinSet<()>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Faults {
    /// Whether data from the clients is withheld.
    cuts_requests: bool,
    /// Whether data from the server is withheld.
    cuts_answers: bool,
    /// By how much data from either side is delayed.
    delay: Duration,
    /// Connections of an earlier generation forward nothing: see [`Proxy::hang`].
    generation: u64,
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
        let (sender, faults) = watch::channel(Faults::default());
        let mut running = JoinSet::new();
        running.spawn(accept(listener, server, faults));
        Self { address, faults: sender, _running: running }
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
        self.set(true, true);
    }

    /// Forwards requests, and withholds answers.
    pub fn cut_answers(&self) {
        self.set(false, true);
    }

    /// Delays all data in either direction by this time.
    pub fn delay(&self, delay: Duration) {
        self.faults.send_modify(|faults| faults.delay = delay);
    }

    /// Stops forwarding on all existing connections for good. They stay open. New connections are
    /// not affected.
    pub fn hang(&self) {
        self.faults.send_modify(|faults| faults.generation += 1);
    }

    /// Resumes forwarding.
    pub fn mend(&self) {
        self.set(false, false);
    }

    fn set(&self, cuts_requests: bool, cuts_answers: bool) {
        self.faults.send_modify(|faults| {
            (faults.cuts_requests, faults.cuts_answers) = (cuts_requests, cuts_answers);
        });
    }
}

async fn accept(listener: TcpListener, server: SocketAddr, faults: watch::Receiver<Faults>) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        connections.spawn(pass(client, server, faults.clone()));
        while connections.try_join_next().is_some() {}
    }
}

async fn pass(client: TcpStream, server: SocketAddr, mut faults: watch::Receiver<Faults>) {
    let generation = faults.borrow().generation;
    if faults.wait_for(|faults| !faults.cuts_requests).await.is_err() {
        return;
    }
    let Ok(server) = TcpStream::connect(server).await else { return };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let hangs = move |faults: &Faults| faults.generation != generation;
    let cuts_requests = move |faults: &Faults| faults.cuts_requests || hangs(faults);
    let cuts_answers = move |faults: &Faults| faults.cuts_answers || hangs(faults);
    // When either side closes, both connections are dropped.
    tokio::select! {
        () = copy(from_client, to_server, faults.clone(), cuts_requests) => {}
        () = copy(from_server, to_client, faults, cuts_answers) => {}
    }
}

async fn copy(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut faults: watch::Receiver<Faults>,
    is_cut: impl Fn(&Faults) -> bool,
) {
    let mut bytes = vec![0; 16 * 1024];
    loop {
        let Ok(length @ 1..) = from.read(&mut bytes).await else { return };
        let delay = faults.borrow().delay;
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        if faults.wait_for(|faults| !is_cut(faults)).await.is_err()
            || to.write_all(&bytes[..length]).await.is_err()
        {
            return;
        }
    }
}
