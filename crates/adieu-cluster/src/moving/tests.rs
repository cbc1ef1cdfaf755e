//! The moves that are refused, and the texts of the refusals.

use proptest::prelude::*;

use super::*;
use crate::allocate::is_candidate;
use crate::commits::tests::missing_comparison;
use crate::proposal::Purpose;
use crate::records::{Drain, Key, Keys, decode};
use crate::store::commit::Write;
use crate::view::arbitrary::{id, view};

fn shard(region: &str, number: u32) -> ShardId {
    ShardId { region: region.into(), number }
}

fn requested(
    view: &View,
    shard: &ShardId,
    to: usize,
) -> Option<Result<Option<Commit>, MoveRefusal>> {
    let commits = Commits::new(Keys::new("shop").unwrap());
    let to = id(to);
    let (id, record) = view.nodes.get_key_value(&to)?;
    Some(request(&commits, view, shard, Target { id, record }))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// A move is requested exactly if its owner lives, and another node can receive the shard.
    #[test]
    fn s1500_a_move_is_requested_only_to_a_node_that_can_receive_the_shard(
        view in view(), number in 0_u32..3, to in 0_usize..4,
    ) {
        let shard = shard("cart", number);
        let Some(requested) = requested(&view, &shard, to) else { return Ok(()) };
        let Some(record) = view.shards.get(&shard) else {
            prop_assert!(requested.is_err());
            return Ok(());
        };
        let owner = record.value.ownership().filter(|it| view.is_alive(it));
        let can_move = owner.is_some_and(|it| it.owner != id(to))
            && is_candidate(&view, "cart", &id(to))
            && view.mode() == Mode::Running
            && view.leader.is_some();
        let moves_there =
            matches!(&record.value, ShardRecord::Moving { to: before, .. } if *before == id(to));
        match requested {
            Err(_) => prop_assert!(!can_move || moves_there),
            Ok(None) => prop_assert!(moves_there),
            Ok(Some(commit)) => {
                prop_assert!(can_move && !moves_there);
                prop_assert_eq!(missing_comparison(Purpose::RequestMove, &commit), None);
                let [Write::Put { key, value, .. }] = &commit.writes[..] else {
                    panic!("one write: {commit:?}")
                };
                let key = Keys::new("shop").unwrap().parse(key);
                prop_assert_eq!(key, Some(Key::Shard(shard)));
                let ownership = owner.cloned().unwrap();
                let after = ShardRecord::Moving { ownership, to: id(to) };
                prop_assert_eq!(decode::<ShardRecord>(value), Ok(after));
            }
        }
    }
}

/// Each refusal states its reason.
#[test]
fn s1501_a_refusal_names_the_cause() {
    use crate::records::{ConfigRecord, NodeRecord, Ownership, RegionConfig, RegionKind};
    use crate::store::Revision;
    use crate::view::Versioned;

    fn versioned<T>(value: T) -> Versioned<T> {
        let at = Revision::new(1);
        Versioned { value, created: at, changed: at, session: None }
    }
    let owned = |owner: usize| {
        let (incarnation, epoch) = (Revision::new(1), Revision::new(1));
        ShardRecord::Owned(Ownership { owner: id(owner), incarnation, epoch })
    };
    let region = RegionConfig { kind: RegionKind::Region, shards: 3 };
    let config = ConfigRecord { protocol: 1, regions: [("cart".into(), region)].into() };
    let mut view = View { config: Some(versioned(config)), ..View::default() };
    view.leader = Some(versioned(crate::records::LeaderRecord { node: id(0) }));
    for (number, record) in [owned(0), ShardRecord::Free, owned(9)].into_iter().enumerate() {
        view.shards.insert(shard("cart", number as u32), versioned(record));
    }
    for at in 0..5 {
        let record = NodeRecord {
            state: if at == 2 { NodeState::Leaving } else { NodeState::Up },
            ready: at != 3,
            drain: Drain::Nothing,
            address: None,
            build: String::new(),
            zone: None,
            weight: 1,
            hosts: if at == 4 { vec!["user".into()] } else { vec!["cart".into()] },
            protocol: (1, 1),
        };
        view.nodes.insert(id(at), versioned(record));
    }
    let refusal = |view: &View, region, number, to| {
        requested(view, &shard(region, number), to).unwrap().unwrap_err().to_string()
    };
    let refused = [
        ("basket", 0, 1, "there is no region basket; regions: cart"),
        ("cart", 3, 1, "region cart has the shards 0 to 2"),
        ("cart", 0, 0, "n0 owns it already"),
        ("cart", 0, 2, "n2 is leaving: only a node that is up receives shards"),
        ("cart", 0, 3, "n3 takes no shards: it is cordoned, not ready, or shuts down"),
        ("cart", 0, 4, "n4 does not host cart; it hosts user"),
        ("cart", 1, 1, "no node owns it; the leader places it as soon as a node can take it"),
        ("cart", 2, 1, "its owner n9 has vanished; the leader gives it to another node soon"),
    ];
    for (region, number, to, why) in refused {
        assert_eq!(refusal(&view, region, number, to), why);
    }
    assert!(requested(&view, &shard("cart", 0), 1).unwrap().unwrap().is_some());
    view.leader = None;
    assert_eq!(refusal(&view, "cart", 0, 1), "the cluster has no leader now; try again");
    view.mode = Some(versioned(Mode::Stopping));
    assert_eq!(refusal(&view, "cart", 0, 1), "the cluster is being stopped");
}
