//! A service for the commands: a real shutdown with a real admin port, in this process.

use std::net::{SocketAddr, TcpListener};
use std::sync::Mutex;

use adieu::http::{Admin, AdminHandle};
use adieu::{Config, Gate, Phase, Shutdown, TaskCx};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

pub(super) struct Service {
    pub(super) shutdown: Shutdown,
    pub(super) orders: Gate,
    /// Lets the task `flush` end.
    pub(super) flush: CancellationToken,
    pub(super) addr: SocketAddr,
    admin: Mutex<Option<AdminHandle>>,
    runtime: Option<Runtime>,
}

impl Service {
    pub(super) fn start() -> Self {
        Self::with(|admin| admin)
    }

    pub(super) fn with(setup: impl FnOnce(Admin) -> Admin) -> Self {
        let runtime = Runtime::new().unwrap();
        let _inside = runtime.enter();
        let shutdown = Shutdown::configured(Config::for_tests()).unwrap();
        let orders = shutdown.add_gate("orders").unwrap();
        let flush = CancellationToken::new();
        let may_end = flush.clone();
        shutdown
            .add_task(Phase::SERVICE_STOP, "flush", async move |_: TaskCx| {
                may_end.cancelled().await;
            })
            .unwrap();
        let admin =
            setup(Admin::new(&shutdown).name("shop").bind("127.0.0.1:0").unwrap()).start().unwrap();
        let addr = admin.local_addr();
        shutdown.mark_started();
        drop(_inside);
        let admin = Mutex::new(Some(admin));
        Self { shutdown, orders, flush, addr, admin, runtime: Some(runtime) }
    }

    /// The process is gone.
    pub(super) fn vanish(&self) {
        drop(self.admin.lock().unwrap().take());
    }

    pub(super) fn url(&self) -> String {
        self.addr.to_string()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.flush.cancel();
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Answers every connection with these bytes, until the test ends.
pub(super) fn answering(bytes: &'static [u8]) -> SocketAddr {
    use std::io::{Read, Write};
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(bytes);
        }
    });
    addr
}

/// Answers the first caller with one text, and all others with the other.
pub(super) fn answering_first(first: &str, other: &str) -> SocketAddr {
    use std::io::{Read, Write};
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let (first, other) = (first.to_owned(), other.to_owned());
    std::thread::spawn(move || {
        let texts = std::iter::once(&first).chain(std::iter::repeat(&other));
        for (stream, text) in listener.incoming().zip(texts) {
            let Ok(mut stream) = stream else { return };
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(text.as_bytes());
        }
    });
    addr
}
