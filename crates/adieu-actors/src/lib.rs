//! Drains a tree of actors leaves first, by a deadline: actors of kameo, of ractor, or nodes of
//! your own.
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
//! First, accepted work is finished. Actors that are being drained still accept messages from each
//! other, because their remaining work may need siblings, parents, children or a new child. Messages
//! from all other senders are refused. This ends when no actor has work, or when three quarters of
//! the time have passed.
//!
//! Then the actors stop, children before their parents: the stop hook of an actor runs when all its
//! children have fully ended. Siblings stop concurrently.
//!
//! At the deadline, actors that still have work are killed. Messages that they have accepted and not
//! processed become dead letters. Their stop hooks still run, if the framework supports that.
//!
//! The [report](DrainReport) contains how each actor ended. It is clean only if no message was refused
//! or lost from when the drain began. If the system is part of a shutdown, that is when the shutdown
//! began.
//!
//! # Several systems on one shutdown
//!
//! All systems and [worker threads](WorkerThreads) of a shutdown are drained together. While any of
//! them has work, their actors and workers accept messages from each other. When none has work, or
//! three quarters of the time have passed, all of them stop. A message that is refused after that is
//! in the report of the system that refused it.
//!
//! # Tasks that an actor spawns
//!
//! A task that a handler spawns is not an actor. Its messages are refused during a drain, even if the
//! handler awaits the task. To send in the name of the actor, take its [`Identity`] along.
//!
//! # What can be drained
//!
//! Actors of [`kameo`] and [`ractor`], a plain [`task`] with a mailbox, and every type that
//! implements [`Node`], such as a pool or a server of yours: [register](ActorSystem::register) it.
//!
//! # Features
//!
//! | feature | adds |
//! |---|---|
//! | `kameo` | the module [`kameo`]: actors of kameo |
//! | `ractor` | the module [`ractor`]: actors of ractor |
#![cfg_attr(docsrs, feature(doc_cfg))]

mod admission;
mod around;
mod backoff;
mod countdown;
mod counts;
mod dead_letters;
mod delivery;
mod drain;
mod gather;
mod group;
#[cfg(feature = "kameo")]
pub mod kameo;
mod machine;
mod node;
mod panics;
mod path;
mod quiet;
#[cfg(feature = "ractor")]
pub mod ractor;
mod record;
mod refusals;
mod report;
mod roster;
mod spawn_error;
mod state;
mod system;
pub mod task;
mod termination;
mod threads;
mod timeouts;
mod tree;
mod view;

pub use around::Around;
pub use dead_letters::{DeadLetter, DeadLetterSubscription, Undelivered};
pub use delivery::Delivery;
pub use node::{BoxFuture, Ended, Node};
pub use path::{NameError, NodePath};
pub use record::{Identity, Scoped};
pub use report::{DrainReport, NodeEnding, NodeReport};
pub use spawn_error::SpawnError;
pub use state::SystemStage;
pub use system::{ActorSystem, Place, Spawn, TerminateError};
pub use termination::{ActorTasks, IntoTermination, Termination};
pub use threads::{
    Peers, SendError, StartError, Worker, WorkerEnding, WorkerReport, WorkerThreads,
    WorkerThreadsBuilder, WorkersReport,
};
pub use timeouts::Timeouts;
pub use view::{NodeView, TreeView};
