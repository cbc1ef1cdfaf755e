//! No shard and no node is written without the comparisons that make the write right.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "a test is about some cases, and fails on others"
)]

use super::*;
use crate::proposal::Purpose;
use crate::records::{RegionConfig, RegionKind, decode};
use crate::store::commit::{Compare, PutSession, Write};

/// Returns a comparison that a commit should have and does not have. Needs no view: the writes of a
/// commit determine its comparisons.
pub(crate) fn missing_comparison(what: Purpose, commit: &Commit) -> Option<String> {
    let has = |compare: fn(&Compare) -> bool, part: &str| {
        commit.compares.iter().any(|it| compare(it) && it.key().contains(part))
    };
    let unchanged = |it: &Compare| matches!(it, Compare::Unchanged(..));
    let created_at = |it: &Compare| matches!(it, Compare::CreatedAt(..));
    let not_created_at = |it: &Compare| matches!(it, Compare::NotCreatedAt(..));
    let absent = |it: &Compare| matches!(it, Compare::Absent(..));
    let mut needs: Vec<(&str, bool)> = Vec::new();
    for write in &commit.writes {
        let (key, grant) = match write {
            Write::Put { key, session: PutSession::Under(_), .. } if key.ends_with("/beat") => {
                continue;
            }
            Write::Put { key, value, .. } => (key, decode::<ShardRecord>(value).ok()),
            Write::Delete { key } => (key, None),
        };
        let own = commit.compares.iter().any(|it| it.key() == key);
        needs.push(("the record that is written", own));
        if let (Some(ShardRecord::Owned(grant)), true) = (grant, key.contains("/shard/")) {
            let target = format!("/node/{}", grant.owner);
            needs.push(("the target", has(unchanged, &target)));
        }
    }
    match what {
        Purpose::Up
        | Purpose::Exiting
        | Purpose::Place
        | Purpose::RequestMove
        | Purpose::Take
        | Purpose::Free
        | Purpose::Dead
        | Purpose::Forget
        | Purpose::Beat => {
            needs.push(("the leader", has(created_at, "/leader")));
        }
        Purpose::HandOver | Purpose::GiveBack | Purpose::Lead | Purpose::Remove => {
            needs.push(("own incarnation", has(created_at, "/node/")));
        }
        Purpose::Join => needs.push(("the configuration", has(unchanged, "/config"))),
        Purpose::SetMode | Purpose::Configure | Purpose::Announce | Purpose::Leave => {}
    }
    match what {
        Purpose::RequestMove => needs.push(("the target", has(unchanged, "/node/"))),
        Purpose::Take | Purpose::Free => {
            needs.push(("the dead owner", has(not_created_at, "/node/")))
        }
        Purpose::Dead => needs.push(("the dead node", has(absent, "/node/"))),
        Purpose::Lead => needs.push(("no leader", has(absent, "/leader"))),
        Purpose::Configure => {
            needs.push(("the configuration", has(unchanged, "/config") || has(absent, "/config")))
        }
        _ => {}
    }
    needs.into_iter().find(|(_, holds)| !holds).map(|(what, _)| what.to_owned())
}

fn versioned<T>(value: T, created: u64, changed: u64) -> Versioned<T> {
    let (created, changed) = (Revision::new(created), Revision::new(changed));
    Versioned { value, created, changed, session: Some(SessionId::new(1)) }
}

/// Returns the record of a node in this state that can host the region `cart`.
pub(crate) fn record(state: NodeState) -> NodeRecord {
    NodeRecord {
        state,
        ready: true,
        drain: Drain::Nothing,
        address: None,
        build: "1".to_owned(),
        zone: None,
        weight: 1,
        hosts: vec!["cart".into()],
        protocol: (1, 1),
    }
}

struct Table {
    commits: Commits,
    me: Me,
    other: NodeId,
    node: Versioned<NodeRecord>,
    shard: ShardId,
    owned: Versioned<ShardRecord>,
    view: View,
}

fn table() -> Table {
    let id = NodeId::new("a").unwrap();
    let ownership =
        Ownership { owner: id.clone(), incarnation: Revision::new(3), epoch: Revision::new(7) };
    let leader = versioned(LeaderRecord { node: id.clone() }, 5, 5);
    Table {
        commits: Commits::new(Keys::new("shop").unwrap()),
        me: Me { id, incarnation: Revision::new(3), session: SessionId::new(1) },
        other: NodeId::new("b").unwrap(),
        node: versioned(record(NodeState::Up), 4, 6),
        shard: ShardId { region: "cart".into(), number: 1 },
        owned: versioned(ShardRecord::Owned(ownership), 1, 9),
        view: View { leader: Some(leader), ..View::default() },
    }
}

/// One commit of each kind.
pub(crate) fn every_commit() -> Vec<(Purpose, Commit)> {
    let table = table();
    let Table { commits, me, other, node, shard, owned, view } = &table;
    let leader = Revision::new(5);
    let seen = Seen { id: shard, record: owned };
    let target = Target { id: other, record: node };
    let dead = owned.value.ownership().unwrap();
    let regions = [("cart".into(), RegionConfig { kind: RegionKind::Region, shards: 3 })];
    let config = ConfigRecord { protocol: 1, regions: regions.into() };
    let judged = versioned(config.clone(), 1, 2);
    let leading = view.leader.as_ref();
    let gone = versioned(GoneRecord { how: Departure::Down, incarnation: leader }, 2, 2);
    vec![
        (Purpose::Join, commits.join(other, me.session, &record(NodeState::Joining), &judged)),
        (Purpose::Announce, commits.announce(other, node, false, Drain::Regions)),
        (Purpose::Leave, commits.leave(other, node, None)),
        (Purpose::Leave, commits.leave(other, node, leading)),
        (Purpose::Leave, commits.request_leave(other, node)),
        (Purpose::Leave, commits.out(other, node)),
        (Purpose::Remove, commits.removed(me, view)),
        (Purpose::Lead, commits.lead(me)),
        (Purpose::HandOver, commits.hand_over(me, seen, target)),
        (Purpose::GiveBack, commits.give_back(me, seen)),
        (Purpose::Up, commits.up(leader, other, node)),
        (Purpose::Exiting, commits.exiting(leader, other, node)),
        (Purpose::Place, commits.place(leader, seen, target)),
        (Purpose::RequestMove, commits.request_move(leader, seen, dead, target)),
        (Purpose::Take, commits.take(leader, seen, dead, target)),
        (Purpose::Free, commits.free(leader, seen, dead)),
        (Purpose::Dead, commits.dead(leader, other, leader, view)),
        (Purpose::Forget, commits.forget(leader, other, &gone)),
        (Purpose::Beat, commits.beat(me, leader, 7)),
        (Purpose::SetMode, commits.set_mode(None, Mode::Stopping)),
        (Purpose::Configure, commits.configure(view, &config)),
    ]
}

#[test]
fn every_commit_has_its_comparisons() {
    for (what, commit) in &every_commit() {
        assert_eq!(missing_comparison(*what, commit), None, "{what:?}: {commit:?}");
        // Without any one of its comparisons the check fails, or the commit is still safe because
        // another comparison is about the same record.
        for at in 0..commit.compares.len() {
            let mut broken = commit.clone();
            let compare = broken.compares.remove(at);
            let twice = broken.compares.iter().any(|it| it.key() == compare.key());
            assert!(
                missing_comparison(*what, &broken).is_some() || twice,
                "{what:?}: {compare:?} is not missed"
            );
        }
    }
}

#[test]
fn a_leader_that_leaves_resigns_in_the_same_commit() {
    let Table { commits, me, node, view, .. } = table();
    let commit = commits.leave(&me.id, &node, view.leader.as_ref());
    let deletes =
        |write: &Write| matches!(write, Write::Delete { key } if key.ends_with("/leader"));
    assert!(commit.writes.iter().any(deletes), "{commit:?}");
}

#[test]
fn more_shards_than_fit_one_commit_are_created_in_several() {
    let Table { commits, .. } = table();
    let regions = [("cart".into(), RegionConfig { kind: RegionKind::Region, shards: 120 })];
    let config = ConfigRecord { protocol: 1, regions: regions.into() };
    let mut view = View::default();
    let mut sizes = Vec::new();
    loop {
        let commit = commits.configure(&view, &config);
        sizes.push(commit.writes.len());
        let mut is_written = false;
        for write in &commit.writes {
            let Write::Put { key, .. } = write else { panic!("{write:?}") };
            match Keys::new("shop").unwrap().parse(key) {
                Some(Key::Shard(shard)) => {
                    assert!(
                        view.shards.insert(shard, versioned(ShardRecord::Free, 1, 1)).is_none()
                    );
                }
                Some(Key::Config) => is_written = true,
                other => panic!("{other:?}"),
            }
        }
        if is_written {
            break;
        }
    }
    assert_eq!(sizes, [50, 50, 21]);
}
