//! The metrics of the clusters of a process.

use std::sync::Arc;

use adieu_core::adapter::{Family, Metrics};

use crate::entity::Tally;
use crate::records::{NodeState, RegionKind};
use crate::shared::Shared;
use crate::status::{ClusterStatus, RegionStatus, SingletonState};

const STATES: [(NodeState, &str); 5] = [
    (NodeState::Joining, "joining"),
    (NodeState::Up, "up"),
    (NodeState::Leaving, "leaving"),
    (NodeState::Exiting, "exiting"),
    (NodeState::Down, "down"),
];

/// Adds the metrics of all clusters, each metric for all clusters before the next.
pub(super) fn render(clusters: &[Arc<Shared>], metrics: &mut Metrics) {
    let all: Vec<(ClusterStatus, &Shared)> =
        clusters.iter().map(|it| (ClusterStatus::of(it), &**it)).collect();
    let each = |mut family: Family<'_>, value: fn(&ClusterStatus) -> f64| {
        for (status, _) in &all {
            family.sample(&[("cluster", &status.cluster)], value(status));
        }
    };
    let help = "1 while this node is a member of the cluster.";
    each(metrics.gauge("adieu_cluster_member", help), |it| f64::from(u8::from(it.stage == "up")));
    let help = "1 while this node leads the cluster.";
    each(metrics.gauge("adieu_cluster_leads", help), |it| {
        // A node that has lost its place may be the last leader that it has seen.
        f64::from(u8::from(it.leader.as_ref() == Some(&it.node) && it.loss.is_none()))
    });
    let help = "How long this node may act if it cannot keep its session again.";
    each(metrics.gauge("adieu_cluster_session_left_seconds", help), |it| {
        it.session_left.as_secs_f64()
    });
    let help = "How long ago the table of the cluster last reported anything.";
    each(metrics.gauge("adieu_cluster_view_age_seconds", help), |it| it.view_age.as_secs_f64());

    let mut nodes = metrics.gauge("adieu_cluster_nodes", "Nodes of the cluster by state.");
    for (status, _) in &all {
        for (state, name) in STATES {
            let count = status.nodes.iter().filter(|node| node.state == state).count();
            nodes.sample(&[("cluster", &status.cluster), ("state", name)], count);
        }
    }
    let help = "1 if a node owns the singleton, 0 while none does or its owner has vanished.";
    let mut owned = metrics.gauge("adieu_cluster_singleton_owned", help);
    for (status, _) in &all {
        for singleton in &status.singletons {
            let is_owned =
                matches!(singleton.state, SingletonState::Owned | SingletonState::Moving);
            let labels = [("cluster", &*status.cluster), ("singleton", &*singleton.name)];
            owned.sample(&labels, u8::from(is_owned));
        }
    }
    let help = "1 if the instance of the singleton runs on this node.";
    let mut here = metrics.gauge("adieu_cluster_singleton_here", help);
    for (status, _) in &all {
        for singleton in &status.singletons {
            let labels = [("cluster", &*status.cluster), ("singleton", &*singleton.name)];
            here.sample(&labels, u8::from(singleton.instance.is_some()));
        }
    }
    let help = "How long the last hand-off to this node took: of the singleton, or of a shard of the \
                region.";
    let mut handoffs = metrics.gauge("adieu_cluster_handoff_seconds", help);
    for (status, cluster) in &all {
        for ((kind, name), took) in cluster.counters.handoffs() {
            let labels = [("cluster", &*status.cluster), (label(kind), &*name)];
            handoffs.sample(&labels, took.as_secs_f64());
        }
    }
    let help = "Shards and singletons that this node has received, by cause: placed, requested, left or \
                died.";
    let mut moves = metrics.counter("adieu_cluster_moves_total", help);
    for (status, cluster) in &all {
        for (((kind, name), why), count) in cluster.counters.moves() {
            let labels = [("cluster", &*status.cluster), (label(kind), &*name)];
            moves.sample(&[labels[0], labels[1], ("why", why.as_str())], count);
        }
    }
    regions(metrics, &all);
    count(metrics, &all);
}

/// Returns the label that names a region or a singleton.
fn label(kind: RegionKind) -> &'static str {
    match kind {
        RegionKind::Region => "region",
        RegionKind::Singleton => "singleton",
    }
}

fn regions(metrics: &mut Metrics, all: &[(ClusterStatus, &Shared)]) {
    let mut shards = metrics.gauge("adieu_cluster_shards", "Shards of the region by state.");
    for (status, _) in all {
        for region in &status.regions {
            let owned = region.owned - region.moving;
            for (state, count) in
                [("owned", owned), ("moving", region.moving), ("free", region.free)]
            {
                let labels = [("cluster", &*status.cluster), ("region", &*region.name)];
                shards.sample(&[labels[0], labels[1], ("state", state)], count);
            }
        }
    }
    type Value = fn(&RegionStatus) -> usize;
    let gauges: [(&'static str, &'static str, Value); 3] = [
        ("adieu_cluster_shards_here", "Shards of the region on this node.", |it| it.mine),
        ("adieu_cluster_entities", "Entities of the region on this node.", |it| it.entities),
        (
            "adieu_cluster_kept_messages",
            "Messages that this node keeps until it can send them.",
            |it| it.kept,
        ),
    ];
    for (name, help, value) in gauges {
        let mut gauge = metrics.gauge(name, help);
        for (status, _) in all {
            for region in &status.regions {
                let labels = [("cluster", &*status.cluster), ("region", &*region.name)];
                gauge.sample(&labels, value(region));
            }
        }
    }
    let help = "Asks from this node by outcome: ran, not-run or unknown.";
    let mut asks = metrics.counter("adieu_cluster_asks_total", help);
    for (status, cluster) in all {
        for region in cluster.regions.all() {
            for (outcome, count) in region.tally().asks() {
                let labels = [("cluster", &*status.cluster), ("region", region.name())];
                asks.sample(&[labels[0], labels[1], ("outcome", outcome)], count);
            }
        }
    }
    type Count = fn(&Tally) -> u64;
    let counters: [(&'static str, &'static str, Count); 3] = [
        ("adieu_cluster_entity_starts_total", "Entities started on this node.", Tally::started),
        (
            "adieu_cluster_entity_failures_total",
            "Entities that failed on this node.",
            Tally::failed,
        ),
        (
            "adieu_cluster_dead_letters_total",
            "Tells that were accepted by entities of this node and lost with them.",
            Tally::dead_letters,
        ),
    ];
    for (name, help, value) in counters {
        let mut counter = metrics.counter(name, help);
        for (status, cluster) in all {
            for region in cluster.regions.all() {
                let labels = [("cluster", &*status.cluster), ("region", &**region.name())];
                counter.sample(&labels, value(region.tally()));
            }
        }
    }
}

fn count(metrics: &mut Metrics, all: &[(ClusterStatus, &Shared)]) {
    let help = "Instances of the singleton that were started on this node.";
    let mut started = metrics.counter("adieu_cluster_singleton_starts_total", help);
    for (status, cluster) in all {
        for (name, count) in cluster.counters.started() {
            started.sample(&[("cluster", &status.cluster), ("singleton", &name)], count);
        }
    }
    let help = "Instances of the singleton that failed on this node.";
    let mut failed = metrics.counter("adieu_cluster_singleton_failures_total", help);
    for (status, cluster) in all {
        for (name, count) in cluster.counters.failed() {
            failed.sample(&[("cluster", &status.cluster), ("singleton", &name)], count);
        }
    }
    let help = "Requests to keep the session that failed.";
    let mut renewals = metrics.counter("adieu_cluster_renewals_failed_total", help);
    for (status, cluster) in all {
        let count = cluster.counters.renewals_failed();
        renewals.sample(&[("cluster", &status.cluster)], count);
    }
    let help = "Commits of this node by purpose and outcome: done, conflict or unanswered.";
    let mut commits = metrics.counter("adieu_cluster_commits_total", help);
    for (status, cluster) in all {
        for ((what, outcome), count) in cluster.counters.commits() {
            let cluster = ("cluster", &*status.cluster);
            commits.sample(&[cluster, ("commit", what.name()), ("outcome", outcome)], count);
        }
    }
}
