//! Drains a tree of actors leaves first, by a deadline, on kameo, ractor or your own.
//!
//! ```
//! use adieu_actors::{ActorSystem, Timeouts, kameo::actor};
//! use kameo::{Actor, message::{Context, Message}};
//!
//! #[derive(Actor, Default)]
//! struct Orders(Vec<u32>);
//!
//! struct Order(u32);
//!
//! impl Message<Order> for Orders {
//!     type Reply = ();
//!     async fn handle(&mut self, Order(number): Order, _: &mut Context<Self, ()>) {
//!         self.0.push(number);
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let shutdown = adieu_core::Shutdown::new();
//! let system = ActorSystem::on(&shutdown, "shop")?; // Its last phase terminates the system.
//!
//! let orders = system.spawn("orders", actor::<Orders>(Orders::default())).await?;
//! let worker = orders.spawn("worker-3", actor::<Orders>(Orders::default())).await?;
//! worker.tell(Order(7)).await?;
//! assert_eq!(worker.path().as_str(), "/user/orders/worker-3");
//!
//! let report = system.terminate(Timeouts::DATABASE_WRITES).await?; // Runs the whole shutdown.
//! println!("{report}"); // 2 of 2 actors drained in 1.2ms, 1 messages worked off, 0 dead letters
//! # Ok(())
//! # }
//! ```
//!
//! # How a tree is drained
//!
//! Every actor works off what has come to it; one with others beneath it does so first, because it
//! may still want something of them. Then those are drained, side by side; and when they have fully
//! ended, its own stop hook runs. At the deadline whoever is still at work is killed, wherever it
//! is, and what it leaves behind goes to the dead letters; its stop hook still runs where the
//! framework can do that. The [report](DrainReport) says of each actor how it ended.
//!
//! Whatever can be drained can be in the tree: implement [`Node`] for your pool or server, and
//! [register](ActorSystem::register) it.
//!
//! # Features
//!
//! | feature | what it adds |
//! |---|---|
//! | `kameo` | the module [`kameo`]: its actors |
//! | `ractor` | the module [`ractor`]: its actors |

mod drain;
mod gather;
#[cfg(feature = "kameo")]
pub mod kameo;
mod letters;
mod machine;
mod node;
mod path;
#[cfg(feature = "ractor")]
pub mod ractor;
#[cfg_attr(
    not(any(feature = "kameo", feature = "ractor")),
    expect(dead_code, reason = "only what is spawned has one")
)]
mod record;
mod report;
mod roster;
mod system;
mod termination;
mod threads;
mod tree;

pub use letters::{DeadLetter, DeadLetterSubscription, Undelivered};
pub use node::{Ended, Node};
pub use path::{NameError, NodePath};
pub use report::{DrainReport, NodeEnding, NodeReport};
pub use system::{ActorSystem, Place, Spawn, SpawnError, SystemStage, TerminateError, Timeouts};
pub use termination::{ActorTasks, IntoTermination, Termination};
pub use threads::{
    Peers, SendError, StartError, Worker, WorkerEnding, WorkerReport, WorkerThreads,
    WorkerThreadsBuilder, WorkersReport,
};
pub use tree::{NodeView, TreeView};
