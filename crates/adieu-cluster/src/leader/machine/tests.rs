#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "a test is about some cases, and fails on others"
)]

use proptest::prelude::*;

use super::*;
use crate::commits::tests::missing_comparison;
use crate::records::{Key, Keys, decode};
use crate::store::SessionId;
use crate::store::commit::Write;
use crate::view::arbitrary::{SESSION, id, incarnation, view};

fn me() -> Me {
    Me { id: id(0), incarnation: incarnation(0), session: SessionId::new(SESSION) }
}

fn origin() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// Lets a node decide at `now`, if it has seen only this view, at `seen`.
fn decide(view: &View, seen: Instant, now: Instant) -> (Option<Proposal>, Wake) {
    let settings = Settings::for_ttl(Duration::from_secs(10));
    let mut observed = Observed::default();
    observed.see(seen, view);
    let commits = Commits::new(Keys::new("shop").unwrap());
    let mut wake = Wake::default();
    let (me, mut leader) = (me(), Leader::default());
    let known = Known {
        now,
        me: &me,
        view,
        observed: &observed,
        settings: &settings,
        commits: &commits,
        batch: BATCH,
    };
    (leader.decide(known, &mut wake), wake)
}

/// Returns the shards and nodes that a proposal writes.
fn written(proposal: &Proposal) -> Vec<(Key, Option<String>)> {
    let keys = Keys::new("shop").unwrap();
    let writes = proposal.commit.writes.iter().map(|write| match write {
        Write::Put { key, value, .. } => (keys.parse(key).unwrap(), Some(value.to_string())),
        Write::Delete { key } => (keys.parse(key).unwrap(), None),
    });
    writes.collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn the_leader_proposes_only_what_the_view_allows(view in view(), waited in 0_u64..4) {
        let seen = origin();
        let now = seen + Duration::from_secs(waited);
        let (proposal, _) = decide(&view, seen, now);
        let Some(proposal) = proposal else { return Ok(()) };
        prop_assert_eq!(missing_comparison(proposal.what, &proposal.commit), None);
        let leads = view.led_under(SessionId::new(SESSION)).is_some();
        if !leads {
            prop_assert_eq!(proposal.what, Purpose::Lead);
            prop_assert!(view.leader.is_none() && view.nodes.contains_key(&id(0)));
            return Ok(());
        }
        let stops = view.mode() == Mode::Stopping;
        for (key, value) in written(&proposal) {
            match key {
                Key::Node(id) => {
                    let before = &view.nodes[&id];
                    match proposal.what {
                        Purpose::Up => {
                            prop_assert!(before.value.state == NodeState::Joining);
                            prop_assert!(before.value.ready && !stops);
                        }
                        Purpose::Exiting => {
                            prop_assert!(before.value.state == NodeState::Leaving);
                            prop_assert!(before.value.drain >= Drain::Regions);
                            let mut owned = view.owned_by(&id, before.created);
                            prop_assert!(owned.all(|(shard, _)| &*shard.region != "cart"));
                        }
                        other => prop_assert!(false, "{:?} wrote a node", other),
                    }
                }
                Key::Shard(shard) => {
                    let before = &view.shards[&shard].value;
                    let after: ShardRecord = decode(&value.unwrap()).unwrap();
                    if let ShardRecord::Owned(grant) = &after {
                        prop_assert!(crate::allocate::is_candidate(&view, &shard.region, &grant.owner));
                        prop_assert!(!stops);
                        prop_assert_eq!(grant.epoch, view.shards[&shard].changed);
                    }
                    match (proposal.what, before.ownership()) {
                        (Purpose::Place, None) => {}
                        (Purpose::Take | Purpose::Free, Some(owner)) => {
                            prop_assert!(!view.is_alive(owner));
                            let gone = view.gone.get(&owner.owner).map(|gone| gone.value);
                            let has_left = gone.is_some_and(|gone| {
                                gone.how == Departure::Left && gone.incarnation == owner.incarnation
                            });
                            prop_assert!(has_left || waited >= 2, "taken within the margin");
                        }
                        other => prop_assert!(false, "{other:?}"),
                    }
                }
                Key::Gone(id) => {
                    prop_assert_eq!(proposal.what, Purpose::Dead);
                    prop_assert!(!view.nodes.contains_key(&id));
                }
                Key::Beat => prop_assert_eq!(proposal.what, Purpose::Beat),
                other => prop_assert!(false, "wrote {other:?}"),
            }
        }
    }

    /// A leader is never idle while a shard waits for it: it acts, or has an instant at which it
    /// will.
    #[test]
    fn a_leader_that_waits_has_a_timer(view in view()) {
        let seen = origin();
        let (proposal, wake) = decide(&view, seen, seen);
        let leads = view.led_under(SessionId::new(SESSION)).is_some();
        let can_lead = view.leader.is_none() && view.nodes.contains_key(&id(0));
        prop_assert!(proposal.is_some() || wake.get().is_some() || !(leads || can_lead));
    }
}

#[test]
fn the_oldest_member_is_elected_first() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut seen_waiting = 0;
    for _ in 0..300 {
        let mut view = proptest::strategy::ValueTree::current(
            &proptest::strategy::Strategy::new_tree(&view(), &mut runner).unwrap(),
        );
        view.leader = None;
        let Some(mine) = view.nodes.get(&id(0)) else { continue };
        let order = |node: &Versioned<NodeRecord>| {
            (node.value.state != NodeState::Up, node.value.drain != Drain::Nothing, node.created)
        };
        let is_first = view
            .nodes
            .values()
            .filter(|other| other.value.state != NodeState::Down)
            .all(|other| order(other) >= order(mine));
        let now = origin();
        let (proposal, wake) = decide(&view, now, now);
        assert_eq!(proposal.is_some(), is_first, "{view:?}");
        if !is_first {
            seen_waiting += 1;
            // The others do not wait for ever: the first may be dead.
            let (later, _) = decide(&view, now, wake.get().unwrap());
            assert_eq!(later.map(|it| it.what), Some(Purpose::Lead));
        }
    }
    assert!(seen_waiting > 20, "{seen_waiting}");
}

/// A view that this node leads: two nodes, and all shards of a region on the first.
fn uneven() -> View {
    use crate::records::{ConfigRecord, LeaderRecord, RegionConfig};
    fn versioned<T>(value: T, at: u64, session: i64) -> Versioned<T> {
        let at = Revision::new(at);
        Versioned { value, created: at, changed: at, session: Some(SessionId::new(session)) }
    }
    let regions = [("cart".into(), RegionConfig { kind: RegionKind::Region, shards: 40 })];
    let config = ConfigRecord { protocol: 1, regions: regions.into() };
    let mut view = View { config: Some(versioned(config, 1, SESSION)), ..View::default() };
    view.leader = Some(versioned(LeaderRecord { node: id(0) }, 2, SESSION));
    for at in 0..2 {
        let record = NodeRecord {
            state: NodeState::Up,
            ready: true,
            drain: Drain::Nothing,
            address: None,
            build: "1".to_owned(),
            zone: None,
            weight: 1,
            hosts: vec!["cart".into()],
            protocol: (1, 1),
        };
        let created = incarnation(at).get();
        view.nodes.insert(id(at), versioned(record, created, SESSION + at as i64));
    }
    for number in 0..40 {
        let (owner, epoch) = (id(0), Revision::new(1));
        let ownership = Ownership { owner, incarnation: incarnation(0), epoch };
        let shard = ShardId { region: "cart".into(), number };
        view.shards.insert(shard, versioned(ShardRecord::Owned(ownership), 20, SESSION));
    }
    view
}

/// Returns how many shards the leader moves at `now`, if it saw `views` one after another.
fn moves(views: &[(u64, &View)], now: u64) -> usize {
    let origin = origin();
    let at = |seconds| origin + Duration::from_secs(seconds);
    let settings = Settings::for_ttl(Duration::from_secs(10));
    let mut observed = Observed::default();
    views.iter().for_each(|(seen, view)| observed.see(at(*seen), view));
    let commits = Commits::new(Keys::new("shop").unwrap());
    let (me, view) = (me(), views.last().unwrap().1);
    let (now, batch) = (at(now), BATCH);
    let known = Known {
        now,
        me: &me,
        view,
        observed: &observed,
        settings: &settings,
        commits: &commits,
        batch,
    };
    let proposal = known.rebalance(Revision::new(2), &mut Wake::default());
    proposal.map_or(0, |it| it.commit.writes.len())
}

#[test]
fn s1524_shards_move_for_balance_only_while_nothing_else_changes() {
    let view = uneven();
    // Ten percent of forty, after each shard has rested for five minutes.
    assert_eq!(moves(&[(0, &view)], 299), 0);
    assert_eq!(moves(&[(0, &view)], 300), 4);
    // For a minute after a change of a node.
    let mut cordoned = view.clone();
    cordoned.nodes.get_mut(&id(1)).unwrap().value.state = NodeState::Joining;
    let seen = [(0, &view), (400, &cordoned), (401, &view)];
    assert_eq!(moves(&seen, 460), 0);
    assert_eq!(moves(&seen, 461), 4);
    // Not during a deployment, and not while a node joins, leaves or is down.
    for state in [NodeState::Joining, NodeState::Leaving, NodeState::Exiting, NodeState::Down] {
        let mut changing = view.clone();
        let mut third = changing.nodes[&id(1)].clone();
        third.created = incarnation(2);
        third.value.state = state;
        changing.nodes.insert(id(2), third);
        assert_eq!(moves(&[(0, &view), (1, &changing)], 1_000), 0, "{state}");
    }
    let mut deployment = view.clone();
    deployment.nodes.get_mut(&id(1)).unwrap().value.build = "2".to_owned();
    assert_eq!(moves(&[(0, &deployment)], 1_000), 0);
    let mut stopping = view.clone();
    let mode = Versioned {
        value: Mode::Stopping,
        created: Revision::new(3),
        changed: Revision::new(3),
        session: None,
    };
    stopping.mode = Some(mode);
    assert_eq!(moves(&[(0, &stopping)], 1_000), 0);
    // A shard that has moved rests; the others may move.
    let mut moved = view.clone();
    for record in moved.shards.values_mut().skip(2) {
        if let ShardRecord::Owned(ownership) = &mut record.value {
            ownership.epoch = Revision::new(30);
        }
    }
    assert_eq!(moves(&[(0, &view), (290, &moved)], 400), 2);
    assert_eq!(moves(&[(0, &view), (290, &moved)], 590), 4);
}

#[test]
fn s1824_a_shard_that_was_placed_and_not_moved_needs_no_rest() {
    let mut view = uneven();
    for record in view.shards.values_mut() {
        // The first grant replaces the record that created the shard.
        record.created = Revision::new(1);
    }
    assert_eq!(moves(&[(0, &view)], 59), 0);
    assert_eq!(moves(&[(0, &view)], 60), 4);
    // Nor does one that had no owner for a while.
    let (mut free, mut placed) = (view.clone(), view.clone());
    free.shards.values_mut().for_each(|record| record.value = ShardRecord::Free);
    for record in placed.shards.values_mut() {
        if let ShardRecord::Owned(ownership) = &mut record.value {
            ownership.epoch = Revision::new(30);
        }
    }
    assert_eq!(moves(&[(0, &view), (100, &free), (101, &placed)], 102), 4);
    // One that goes from owner to owner does.
    assert_eq!(moves(&[(0, &view), (100, &placed)], 399), 0);
    assert_eq!(moves(&[(0, &view), (100, &placed)], 400), 4);
}
