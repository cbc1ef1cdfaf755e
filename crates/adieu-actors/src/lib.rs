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
//! let system = ActorSystem::on(&shutdown, "shop")?; // The shutdown owns and terminates it.
//!
//! let orders = system.spawn("orders", actor::<Orders>(Orders::default())).await?;
//! let worker = orders.spawn("worker-3", actor::<Orders>(Orders::default())).await?;
//! worker.tell(Order(7)).await?;
//! assert_eq!(worker.path().as_str(), "/user/orders/worker-3");
//!
//! let report = system.terminate(Timeouts::DATABASE_WRITES).await?; // Runs the whole shutdown.
//! println!("{report}"); // 2 of 2 actors drained in 1.2ms, 1 messages processed, 0 dead letters
//! # Ok(())
//! # }
//! ```
//!
//! # How a tree is drained
//!
//! First, accepted work is finished. Actors that are being drained go on accepting messages from
//! each other, because what they still have to do may need their siblings, parents and children, or
//! a new child; everything else is refused. This ends when no actor has anything to do, or when
//! three quarters of the time have passed.
//!
//! Then the actors stop, children before their parents: when all children of an actor have fully
//! ended, its own stop hook runs. Siblings stop side by side. At the deadline actors that still work
//! are killed, and what they have accepted and not processed becomes dead letters; their stop hooks
//! still run where the framework can do that. The [report](DrainReport) says of each actor how it
//! ended, and is clean only if no message was refused or lost.
//!
//! # What can be drained
//!
//! Actors of [`kameo`] and [`ractor`], a plain [`task`] with a mailbox, and whatever implements
//! [`Node`], such as your pool or server: [register](ActorSystem::register) it.
//!
//! # Features
//!
//! | feature | what it adds |
//! |---|---|
//! | `kameo` | the module [`kameo`]: its actors |
//! | `ractor` | the module [`ractor`]: its actors |
#![cfg_attr(docsrs, feature(doc_cfg))]

mod countdown;
mod doors;
mod drain;
mod gather;
#[cfg(feature = "kameo")]
pub mod kameo;
mod letters;
mod machine;
mod node;
mod path;
mod quiet;
#[cfg(feature = "ractor")]
pub mod ractor;
mod record;
mod report;
mod roster;
mod spawn;
mod system;
pub mod task;
mod termination;
mod threads;
mod timeouts;
mod tree;

pub use letters::{DeadLetter, DeadLetterSubscription, Undelivered};
pub use node::{BoxFuture, Ended, Node};
pub use path::{NameError, NodePath};
pub use report::{DrainReport, NodeEnding, NodeReport};
pub use spawn::{Place, Spawn, SpawnError};
pub use system::{ActorSystem, SystemStage, TerminateError};
pub use termination::{ActorTasks, IntoTermination, Termination};
pub use threads::{
    Peers, SendError, StartError, Worker, WorkerEnding, WorkerReport, WorkerThreads,
    WorkerThreadsBuilder, WorkersReport,
};
pub use timeouts::Timeouts;
pub use tree::{NodeView, TreeView};
