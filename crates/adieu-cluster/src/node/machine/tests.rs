//! The machine of a node against a table: conflicts, lost answers, and sessions that end.

use std::sync::Arc;

use super::*;
use crate::member::Goal;
use crate::proposal::Purpose;
use crate::records::{
    ConfigRecord, Drain, NodeId, NodeRecord, NodeState, RegionConfig, RegionKind,
};
use crate::store::Update;
use crate::store::table::Table;

const TTL: Duration = Duration::from_secs(10);

/// A node and the table that it works on. Answers and changes arrive when the test requests it.
struct Bench {
    table: Table,
    node: Node,
    now: Instant,
    /// The changes up to here have arrived.
    watched: Revision,
}

impl Bench {
    fn new() -> Self {
        let mut table = Table::default();
        let session = table.open(TTL, Duration::ZERO);
        let regions = [(Arc::from("a"), RegionConfig { kind: RegionKind::Singleton, shards: 1 })];
        let declared = Declared {
            id: NodeId::new("one").unwrap(),
            session: session.id,
            record: NodeRecord {
                state: NodeState::Joining,
                ready: true,
                drain: Drain::Nothing,
                address: None,
                build: String::new(),
                zone: None,
                weight: 1,
                hosts: vec!["a".into()],
                protocol: (1, 1),
            },
            config: ConfigRecord { protocol: 1, regions: regions.into() },
        };
        let now = tokio::time::Instant::now().into_std();
        let keys = Keys::new("shop").unwrap();
        let node = Node::new(Settings::for_ttl(TTL), keys, declared, now);
        Self { table, node, now, watched: Revision::default() }
    }

    fn next(&mut self) -> Option<Proposal> {
        self.node.next(self.now, &mut Wake::default())
    }

    fn needs_load(&self) -> bool {
        self.node.needs_load(self.now, &mut Wake::default())
    }

    fn load(&mut self) {
        self.node.load_started();
        let snapshot = self.table.load(self.node.keys.prefix());
        self.watched = snapshot.revision;
        self.node.loaded(self.now, &snapshot).unwrap();
    }

    fn watch(&mut self) {
        if let Some(Update::Changed { revision, changes }) =
            self.table.changes(self.node.keys.prefix(), self.watched)
        {
            self.watched = revision;
            self.node.changed(self.now, revision, &changes).unwrap();
        }
    }

    /// Applies a proposal, notifies the node, and lets the changes arrive.
    fn apply(&mut self, proposal: &Proposal) -> Purpose {
        let answer = self.table.commit(&proposal.commit).unwrap();
        self.node.committed(self.now, Some(answer));
        self.watch();
        proposal.what
    }

    /// Commits until there is nothing to do.
    fn settle(&mut self) -> Vec<Purpose> {
        let mut done = Vec::new();
        while let Some(proposal) = self.next() {
            done.push(self.apply(&proposal));
        }
        done
    }

    fn up() -> Self {
        let mut bench = Self::new();
        bench.load();
        let done = bench.settle();
        let expected = [
            Purpose::Configure,
            Purpose::Join,
            Purpose::Lead,
            Purpose::Up,
            Purpose::Place,
            Purpose::Beat,
        ];
        assert_eq!(done, expected);
        assert_eq!(bench.node.stage(), Stage::Up);
        bench
    }
}

#[test]
fn nothing_is_decided_before_the_table_was_loaded() {
    let mut bench = Bench::new();
    assert!(bench.next().is_none() && bench.needs_load());
    bench.load();
    assert!(bench.next().is_some());
}

#[test]
fn a_single_node_leaves_in_six_commits() {
    let mut bench = Bench::up();
    let mut done = Vec::new();
    for goal in [Goal::DrainRegions, Goal::Leave, Goal::DrainSingletons, Goal::BeRemoved] {
        bench.node.member.raise_goal(goal);
        done.extend(bench.settle());
        let held: Vec<_> = bench.node.held().map(|(id, held)| (id.clone(), held.epoch)).collect();
        held.iter().for_each(|(shard, epoch)| bench.node.drained(shard, *epoch));
        done.extend(bench.settle());
    }
    let expected = [
        Purpose::Announce,
        Purpose::Leave,
        Purpose::Exiting,
        Purpose::Announce,
        Purpose::GiveBack,
        Purpose::Remove,
    ];
    assert_eq!(done, expected);
    assert_eq!(bench.node.stage(), Stage::Removed);
}

#[test]
fn s623_after_a_lost_answer_the_table_is_loaded_before_anything_is_decided() {
    for is_applied in [true, false] {
        let mut bench = Bench::new();
        bench.load();
        let proposal = bench.next().unwrap();
        assert_eq!(proposal.what, Purpose::Configure);
        if is_applied {
            let _ = bench.table.commit(&proposal.commit).unwrap();
        }
        bench.node.load_started(); // A load that began before the answer was lost …
        bench.node.committed(bench.now, None);
        let before = bench.table.load(bench.node.keys.prefix());
        bench.node.loaded(bench.now, &before).unwrap();
        assert!(bench.next().is_none(), "… does not settle it");
        assert!(bench.needs_load());
        bench.load();
        let next = bench.next().unwrap();
        assert_eq!(next.what, if is_applied { Purpose::Join } else { Purpose::Configure });
    }
}

#[test]
fn after_a_conflict_a_node_waits_for_a_newer_view() {
    let mut bench = Bench::new();
    bench.load();
    let proposal = bench.next().unwrap();
    bench.node.committed(bench.now, Some(Committed::Conflict));
    assert!(bench.next().is_none());
    // The watch is late: the table is loaded after a tenth of the time to live.
    assert!(!bench.needs_load());
    bench.now += TTL / 10;
    assert!(bench.needs_load());
    let _ = bench.table.commit(&proposal.commit).unwrap();
    bench.watch();
    assert_eq!(bench.next().unwrap().what, Purpose::Join);
}

#[test]
fn s623_a_silent_watch_is_replaced_by_a_load() {
    let mut bench = Bench::up();
    assert!(!bench.needs_load());
    bench.now += TTL;
    assert!(bench.needs_load());
}

#[test]
fn changes_that_a_load_has_overtaken_bring_nothing_back() {
    let mut bench = Bench::up();
    let before = bench.watched;
    bench.node.member.set_ready(false);
    let proposal = bench.next().unwrap();
    let _ = bench.table.commit(&proposal.commit).unwrap();
    let prefix = bench.node.keys.prefix().to_owned();
    let Some(Update::Changed { revision, changes }) = bench.table.changes(&prefix, before) else {
        panic!("nothing has changed")
    };
    bench.node.member.set_ready(true);
    bench.node.committed(bench.now, None);
    bench.load();
    let proposal = bench.next().unwrap();
    let _ = bench.table.commit(&proposal.commit).unwrap();
    bench.node.committed(bench.now, None);
    bench.load();
    let view = bench.node.view().clone();
    bench.node.changed(bench.now, revision, &changes).unwrap();
    assert_eq!(bench.node.view(), &view);
}

#[test]
fn s617_a_node_whose_session_is_bad_holds_and_proposes_nothing() {
    let mut bench = Bench::up();
    assert_eq!(bench.node.held().count(), 1);
    bench.now += TTL * 4 / 5;
    assert!(!bench.node.is_good(bench.now));
    assert_eq!(bench.node.keep(bench.now), Next::Lost);
    assert_eq!(bench.node.held().count(), 0);
    assert_eq!(bench.node.stage(), Stage::Down);
    bench.node.member.raise_goal(Goal::Leave);
    bench.load();
    assert!(bench.next().is_none());
    assert_eq!(bench.node.held().count(), 0, "a view gave the shards back");
}

#[test]
fn a_leader_that_leaves_resigns_if_another_node_is_up() {
    let mut bench = Bench::up();
    let other = {
        let mut record = bench.node.view().nodes.values().next().unwrap().value.clone();
        record.hosts.clear();
        record
    };
    let session = bench.table.open(TTL, Duration::ZERO);
    let config = bench.node.view().config.clone().unwrap();
    let id = NodeId::new("two").unwrap();
    let join = bench.node.commits.join(&id, session.id, &other, &config);
    let _ = bench.table.commit(&join).unwrap();
    bench.watch();
    bench.node.member.raise_goal(Goal::Leave);
    while bench.node.stage() == Stage::Up {
        let proposal = bench.next().unwrap();
        bench.apply(&proposal);
    }
    assert!(bench.node.view().leader.is_none());
}

#[test]
fn s1275_a_node_whose_store_went_back_loses_its_place() {
    let mut bench = Bench::up();
    let backup = bench.table.clone();
    bench.node.member.set_ready(false);
    assert_eq!(bench.settle(), [Purpose::Announce]);
    // Loaded from a backup that is older than the view.
    let mut restored = bench.node.clone();
    restored.load_started();
    restored.loaded(bench.now, &backup.load(restored.keys.prefix())).unwrap();
    assert_eq!((restored.stage(), restored.member.loss()), (Stage::Down, Some(Loss::WentBack)));
    assert_eq!(restored.held().count(), 0);
    // A commit that is answered with a revision from before.
    bench.node.member.set_ready(true);
    assert_eq!(bench.next().map(|it| it.what), Some(Purpose::Announce));
    bench.node.committed(bench.now, Some(Committed::Done(Revision::new(1))));
    assert_eq!(bench.node.member.loss(), Some(Loss::WentBack));
    assert!(bench.next().is_none());
}

#[test]
fn a_load_that_changes_have_overtaken_is_not_a_store_that_went_back() {
    let mut bench = Bench::up();
    bench.node.load_started();
    let loaded = bench.table.load(bench.node.keys.prefix());
    bench.node.member.set_ready(false);
    assert_eq!(bench.settle(), [Purpose::Announce]);
    assert!(loaded.revision < bench.node.view().revision);
    bench.node.loaded(bench.now, &loaded).unwrap();
    assert_eq!(bench.node.stage(), Stage::Up);
}
