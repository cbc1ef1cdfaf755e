#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "a test is about some cases, and fails on others"
)]

use proptest::prelude::*;

use super::*;
use crate::commits::tests::{missing_comparison, record};
use crate::records::{Key, Keys, RegionKind};
use crate::store::commit::Write;
use crate::view::arbitrary::{SESSION, id, view};

fn config(shards: u32, kind: RegionKind, protocol: u32) -> ConfigRecord {
    let regions = [("cart".into(), RegionConfig { kind, shards })];
    ConfigRecord { protocol, regions: regions.into() }
}

fn member() -> Member {
    Member::new(Declared {
        id: id(0),
        session: SessionId::new(SESSION),
        record: record(NodeState::Joining),
        config: config(3, RegionKind::Region, 1),
    })
}

const GOALS: [Goal; 5] =
    [Goal::Stay, Goal::DrainRegions, Goal::Leave, Goal::DrainSingletons, Goal::BeRemoved];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// Over any sequence of views and wishes: a node writes no record of another node, leaves only
    /// if it is to leave, removes itself only when it owns nothing, and is silent after a loss.
    #[test]
    fn a_node_writes_only_about_itself(
        steps in proptest::collection::vec((view(), 0_usize..5), 1..6),
    ) {
        let keys = Keys::new("shop").unwrap();
        let commits = Commits::new(keys.clone());
        let mut member = member();
        for (view, goal) in steps {
            member.raise_goal(GOALS[goal]);
            let was_lost = member.loss();
            member.see(&view);
            prop_assert!(was_lost.is_none() || member.loss() == was_lost, "a loss was taken back");
            let Some(proposal) = member.decide(&view, &commits) else { continue };
            prop_assert!(member.loss().is_none());
            prop_assert_eq!(missing_comparison(proposal.what, &proposal.commit), None);
            let goal = member.goal();
            for write in &proposal.commit.writes {
                let (Write::Put { key, .. } | Write::Delete { key }) = write;
                match keys.parse(key).unwrap() {
                    Key::Node(node) | Key::Gone(node) => prop_assert_eq!(node, id(0)),
                    Key::Leader => prop_assert!(view.led_under(SessionId::new(SESSION)).is_some()),
                    Key::Config | Key::Mode => {
                        prop_assert!(matches!(proposal.what, Purpose::Configure | Purpose::SetMode));
                    }
                    Key::Shard(_) => prop_assert_eq!(proposal.what, Purpose::Configure),
                    Key::Beat => prop_assert!(false),
                }
            }
            match proposal.what {
                Purpose::Join => prop_assert!(goal == Goal::Stay && view.mode() == Mode::Running),
                Purpose::Leave => prop_assert!(goal >= Goal::Leave),
                Purpose::Remove => {
                    let me = member.me().unwrap();
                    prop_assert!(goal == Goal::BeRemoved);
                    prop_assert!(view.owned_by(&me.id, me.incarnation).next().is_none());
                }
                _ => {}
            }
        }
    }
}

#[test]
fn s603_a_configuration_that_differs_is_refused_and_the_field_is_named() {
    let theirs = config(3, RegionKind::Region, 1);
    let field = |ours: ConfigRecord| difference(&ours, &theirs).map(|it| it.to_string());
    assert_eq!(field(config(3, RegionKind::Region, 1)), None);
    assert_eq!(field(ConfigRecord { protocol: 1, ..ConfigRecord::default() }), None);
    let cases = [
        (config(4, RegionKind::Region, 1), "regions.cart.shards is 4 here and 3 in the cluster"),
        (
            config(3, RegionKind::Singleton, 1),
            "regions.cart.kind is singleton here and region in the cluster",
        ),
        (config(3, RegionKind::Region, 2), "protocol is 2 here and 1 in the cluster"),
    ];
    for (ours, text) in cases {
        let problem = field(ours).unwrap();
        assert!(problem.contains(text), "{problem}");
    }
}
