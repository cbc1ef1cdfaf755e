//! A region whose entities note numbers, for the tests of regions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use adieu_cluster::store::Memory;
use adieu_cluster::{AskError, ClusterBuilder, Command, Entity, InProcess, Region, RegionBuilder};
use serde::{Deserialize, Serialize};

use crate::stage::{SECOND, TestNode, config, node_with};

/// Appends a number to a list, and replies with how many there are on this instance.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Note {
    Add(u64),
    /// Handles the message for that long.
    Take(Duration),
    /// Waits, and then sends a number to another entity.
    Through(Duration, String, u64),
    /// Fails if this text was not seen before.
    FailOnce(String),
    Fail,
    Panic,
    Forget,
}

impl Command for Note {
    type Reply = (String, u64);
}

/// The mail that the entities of all nodes have handled: per entity, the numbers in order.
#[derive(Clone, Default)]
pub(crate) struct Handled {
    pub(crate) notes: Arc<Mutex<Notes>>,
    running: Arc<Mutex<BTreeMap<String, usize>>>,
    failed: Arc<Mutex<BTreeSet<String>>>,
    pub(crate) starts: Arc<AtomicUsize>,
    /// The most instances at one time.
    pub(crate) most: Arc<AtomicUsize>,
}

/// The fences and numbers that each entity has handled, in order.
type Notes = BTreeMap<String, Vec<(u64, u64)>>;

pub(crate) struct Running(Handled, String);

impl Handled {
    pub(crate) fn begins(&self, id: &str) -> Running {
        self.starts.fetch_add(1, Ordering::Relaxed);
        let mut running = self.running.lock().unwrap();
        let count = running.entry(id.to_owned()).or_default();
        *count += 1;
        assert_eq!(*count, 1, "two instances of {id}");
        self.most.fetch_max(running.values().sum(), Ordering::Relaxed);
        Running(self.clone(), id.to_owned())
    }

    pub(crate) fn note(&self, id: &str, fence: u64, number: u64) {
        self.notes.lock().unwrap().entry(id.to_owned()).or_default().push((fence, number));
    }

    pub(crate) fn numbers(&self, id: &str) -> Vec<u64> {
        let notes = self.notes.lock().unwrap();
        notes.get(id).map(|it| it.iter().map(|(_, number)| *number).collect()).unwrap_or_default()
    }

    pub(crate) fn alive(&self) -> usize {
        self.running.lock().unwrap().values().sum()
    }

    /// Every number was handled once, in order, and fences never fall.
    pub(crate) fn assert_sound(&self) {
        for (id, notes) in &*self.notes.lock().unwrap() {
            for pair in notes.windows(2) {
                assert!(pair[0].1 < pair[1].1, "{id} handled {pair:?} in this order");
                assert!(pair[0].0 <= pair[1].0, "{id}: the fence fell: {pair:?}");
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        *self.0.running.lock().unwrap().get_mut(&self.1).unwrap() -= 1;
    }
}

/// An entity that notes numbers.
pub(crate) async fn notes(
    mut me: Entity<Note>,
    node: String,
    handled: Handled,
    others: Arc<Mutex<Option<Region<Note>>>>,
) -> Result<(), String> {
    let _running = handled.begins(me.id());
    while let Some(mail) = me.next().await {
        let fence = me.fence().get();
        let sum = match mail.command() {
            Note::Add(number) => {
                handled.note(me.id(), fence, *number);
                *number
            }
            Note::Take(time) => {
                tokio::time::sleep(*time).await;
                0
            }
            Note::Through(pause, other, number) => {
                tokio::time::sleep(*pause).await;
                let region = others.lock().unwrap().clone().unwrap();
                let asked = region.at(other).ask(Note::Add(*number)).await;
                asked.map_err(|error| error.to_string())?.1
            }
            Note::FailOnce(text) => {
                if handled.failed.lock().unwrap().insert(text.clone()) {
                    return Err("once".to_owned());
                }
                0
            }
            Note::Fail => return Err("as requested".to_owned()),
            Note::Panic => panic!("as requested"),
            Note::Forget => continue,
        };
        mail.reply((node.clone(), sum));
    }
    Ok(())
}

pub(crate) struct Stage {
    pub(crate) store: Memory,
    pub(crate) network: InProcess,
    pub(crate) handled: Handled,
}

pub(crate) struct Node {
    pub(crate) node: TestNode,
    pub(crate) region: Region<Note>,
}

impl Stage {
    pub(crate) fn new() -> Self {
        Self { store: Memory::new(), network: InProcess::new(), handled: Handled::default() }
    }

    pub(crate) async fn node(&self, name: &str) -> Node {
        self.node_with(name, |it| it, |it| it).await
    }

    pub(crate) async fn node_with(
        &self,
        name: &str,
        change: impl FnOnce(ClusterBuilder) -> ClusterBuilder,
        options: impl FnOnce(RegionBuilder<Note>) -> RegionBuilder<Note>,
    ) -> Node {
        let node =
            node_with(&self.store, name, config(), |it| change(it.in_process(&self.network)));
        let others = Arc::new(Mutex::new(None));
        let (handled, given, id) = (self.handled.clone(), Arc::clone(&others), name.to_owned());
        let builder = options(node.cluster.region::<Note>("notes").shards(16));
        let region = builder
            .serve(move |me| notes(me, id.clone(), handled.clone(), Arc::clone(&given)))
            .unwrap();
        *others.lock().unwrap() = Some(region.clone());
        Node { node: node.joined().await, region }
    }
}

/// Runs a future at the same time as the test, which joins it.
#[expect(clippy::disallowed_methods, reason = "the test joins it")]
pub(crate) fn beside<T: Send + 'static>(
    future: impl Future<Output = T> + Send + 'static,
) -> tokio::task::JoinHandle<T> {
    tokio::spawn(future)
}

impl Node {
    pub(crate) async fn add(&self, key: &str, number: u64) -> Result<(String, u64), AskError> {
        self.region.at(key).ask(Note::Add(number)).within(30 * SECOND).await
    }
}
