//! How a node opens, drains and hands over its shards.

use std::collections::BTreeSet;

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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Over any sequence of views and ends of work: only drained shards are handed over, only to
    /// candidates that are not the owner, and a shard that was closed does not open again.
    #[test]
    fn only_drained_shards_are_handed_over_and_closing_is_final(
        steps in proptest::collection::vec((view(), any::<u8>()), 1..8),
    ) {
        let (me, commits) = (me(), Commits::new(Keys::new("shop").unwrap()));
        let keys = Keys::new("shop").unwrap();
        let mut regions = Regions::default();
        let mut closed: BTreeSet<(ShardId, Revision)> = BTreeSet::new();
        for (view, ends) in steps {
            regions.see(&me, &view);
            for (shard, held) in regions.held() {
                let key = (shard.clone(), held.epoch);
                // A view can go back to an epoch only here, where views are random.
                let was_mine_all_along = closed.contains(&key);
                if held.state == ShardState::Open {
                    prop_assert!(!was_mine_all_along, "{} opened again", shard);
                } else {
                    closed.insert(key);
                }
                let record = &view.shards[shard].value;
                prop_assert!(record.ownership().is_some_and(|it| it.owner == me.id));
            }
            let held: BTreeSet<(ShardId, Revision)> =
                regions.held().map(|(shard, held)| (shard.clone(), held.epoch)).collect();
            closed.retain(|key| held.contains(key));
            let all: Vec<(ShardId, Held)> =
                regions.held().map(|(shard, held)| (shard.clone(), held)).collect();
            for (at, (shard, held)) in all.iter().enumerate() {
                if ends >> at & 1 == 1 {
                    regions.drained(shard, held.epoch);
                }
                // Work that ended under an earlier epoch does not end this one.
                regions.drained(shard, Revision::new(999));
            }
            let fresh = BTreeSet::new();
            let eligible = Eligible { fresh: &fresh, without: Some(&me.id) };
            let Some(proposal) = regions.decide(&me, &view, eligible, &commits, 50) else { continue };
            prop_assert_eq!(missing_comparison(proposal.what, &proposal.commit), None);
            for write in &proposal.commit.writes {
                let Write::Put { key, value, .. } = write else { panic!("{write:?}") };
                let Some(Key::Shard(shard)) = keys.parse(key) else { panic!("{key}") };
                let held = regions.held().find(|(it, _)| **it == shard).unwrap().1;
                prop_assert_eq!(held.state, ShardState::Drained);
                if let ShardRecord::Owned(grant) = decode(value).unwrap() {
                    prop_assert!(grant.owner != me.id);
                    prop_assert!(is_candidate(&view, &shard.region, &grant.owner));
                    prop_assert_eq!(view.mode(), Mode::Running);
                    prop_assert!(held.epoch < grant.epoch);
                }
            }
        }
    }
}

#[test]
fn a_region_is_drained_before_singletons() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let me = me();
    let mut seen = 0;
    for _ in 0..300 {
        let view = proptest::strategy::ValueTree::current(
            &proptest::strategy::Strategy::new_tree(&view(), &mut runner).unwrap(),
        );
        let Some(node) = view.nodes.get(&me.id) else { continue };
        let mut regions = Regions::default();
        regions.see(&me, &view);
        for (shard, held) in regions.held() {
            let drains = match view.kind(&shard.region) {
                RegionKind::Region => node.value.drain >= Drain::Regions,
                RegionKind::Singleton => node.value.drain == Drain::Singletons,
            };
            let closes = drains || view.shards[shard].value.is_moving();
            assert_eq!(held.state == ShardState::Closing, closes, "{shard}: {view:?}");
            seen += 1;
        }
    }
    assert!(seen > 100, "{seen}");
}
