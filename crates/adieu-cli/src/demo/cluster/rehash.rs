//! The comparison: the same carts on the node that a hash over the live nodes names. Nothing is handed
//! over when the nodes change.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use adieu_core::adapter::lock;
use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use super::carts::{Add, Cart};
use super::node::SHARDS;
use crate::demo::replica::{Args, serve_with_axum};

/// The most unopened mail of a cart.
const MAILBOX: usize = 1_000;

/// An ask and the place for its answer.
type Mail = (Add, oneshot::Sender<u64>);

/// The carts that this node has started. They end with the process.
struct Carts {
    folder: PathBuf,
    node: String,
    running: Mutex<Running>,
}

#[derive(Default)]
struct Running {
    mailboxes: HashMap<String, mpsc::Sender<Mail>>,
    tasks: JoinSet<io::Result<()>>,
}

/// Returns the shard of a cart.
pub(super) fn shard_of(key: &str) -> u32 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = key.bytes().fold(0xcbf2_9ce4_8422_2325, step);
    u32::try_from(hash % u64::from(SHARDS)).unwrap_or_default()
}

/// Returns which of so many live nodes a shard is on.
pub(super) fn place(shard: u32, live: usize) -> Option<usize> {
    usize::try_from(shard).ok()?.checked_rem(live)
}

pub(in crate::demo) async fn serve(args: Args) -> io::Result<()> {
    let Args { kind: _, name, folder, report: _ } = args;
    let carts = Arc::new(Carts { folder, node: name, running: Mutex::default() });
    let app = Router::new()
        .route("/readyz", get(async || "ready"))
        .route("/carts/{key}/{number}", post(add))
        .with_state(carts);
    serve_with_axum(app).await
}

async fn add(
    State(carts): State<Arc<Carts>>,
    Path((key, number)): Path<(String, u64)>,
) -> Result<String, (StatusCode, String)> {
    let failed = |error: &dyn ToString| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string());
    let mailbox = carts.mailbox(&key).map_err(|error| failed(&error))?;
    let (reply, replied) = oneshot::channel();
    mailbox.send((Add { number }, reply)).await.map_err(|error| failed(&error))?;
    replied.await.map(|items| items.to_string()).map_err(|error| failed(&error))
}

// === impl Carts ===

impl Carts {
    /// Returns the mailbox of a cart, and starts the cart if it does not run here.
    fn mailbox(&self, key: &str) -> io::Result<mpsc::Sender<Mail>> {
        let mut running = lock(&self.running);
        if let Some(mailbox) = running.mailboxes.get(key) {
            return Ok(mailbox.clone());
        }
        let mut cart = Cart::load(&self.folder, key, self.node.clone())?;
        let (mailbox, mut mails) = mpsc::channel::<Mail>(MAILBOX);
        running.tasks.spawn(async move {
            while let Some((add, reply)) = mails.recv().await {
                // There is no fence, because no store grants one.
                let items = cart.add(add, 0).await?;
                let _ = reply.send(items);
            }
            Ok(())
        });
        running.mailboxes.insert(key.to_owned(), mailbox.clone());
        Ok(mailbox)
    }
}
