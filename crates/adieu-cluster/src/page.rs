//! The clusters of a process on its admin port: status, commands and metrics.

mod metrics;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use adieu_core::adapter::{self, Command, CommandError, Metrics, error_text, lock};
use adieu_core::{Shutdown, adapter::Page};
use serde_json::{Value, json};

use crate::operate::OperateError;
use crate::records::{NodeId, ShardId, checked, split_shard};
use crate::shared::Shared;
use crate::status::ClusterStatus;

/// How long a command waits for the store. Less than the admin port waits for the command.
const PATIENCE: Duration = Duration::from_secs(8);

/// The clusters of one shutdown. Usually there is one.
#[derive(Default)]
struct Clusters(Mutex<Vec<Arc<Shared>>>);

struct ClusterPage(Arc<Clusters>);

/// Shows a cluster at `/cluster`.
pub(crate) fn add(shutdown: &Shutdown, cluster: Arc<Shared>) {
    let clusters = adapter::extension::<Clusters>(shutdown);
    lock(&clusters.0).push(cluster);
    // The second cluster of a process finds the page of the first, which shows both.
    drop(adapter::publish(shutdown, "cluster", ClusterPage(clusters)));
}

/// Returns whether this process has this node already.
pub(crate) fn has(shutdown: &Shutdown, cluster: &str, node: &NodeId) -> bool {
    let clusters = adapter::extension::<Clusters>(shutdown);
    let clusters = lock(&clusters.0);
    clusters.iter().any(|it| *it.cluster == *cluster && it.id == *node)
}

// === impl ClusterPage ===

impl ClusterPage {
    fn all(&self) -> Vec<Arc<Shared>> {
        lock(&self.0.0).clone()
    }

    /// Returns the cluster that a command is for.
    fn chosen(&self, command: &Command) -> Result<Arc<Shared>, CommandError> {
        let mut all = self.all();
        let names: Vec<_> = all.iter().map(|it| it.cluster.to_string()).collect();
        let names = names.join(", ");
        match command.argument("cluster") {
            Some(name) => {
                let found = all.into_iter().find(|it| *it.cluster == *name);
                let unknown = || format!("this process is in no cluster {name}; it is in {names}");
                found.ok_or_else(|| CommandError::invalid(unknown()))
            }
            None if all.len() > 1 => {
                let which =
                    format!("this process is in several clusters: add ?cluster= of {names}");
                Err(CommandError::invalid(which))
            }
            None => all.pop().ok_or_else(|| CommandError::failed("there is no cluster")),
        }
    }
}

impl Page for ClusterPage {
    fn status(&self) -> Value {
        let clusters: Vec<_> = self.all().iter().map(|it| ClusterStatus::of(it)).collect();
        json!({ "clusters": clusters })
    }

    fn commands(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("leave", "lets ?node=NAME leave the cluster: its shutdown runs"),
            ("out", "declares ?node=NAME dead: it stops acting as soon as it sees that"),
            ("move", "hands ?shard=REGION/NUMBER to ?node=NAME"),
            ("stop", "stops the whole cluster: the shutdown of every node runs"),
        ]
    }

    fn run(&self, command: &Command) -> Result<Value, CommandError> {
        let cluster = self.chosen(command)?;
        let name = Arc::clone(&cluster.cluster);
        let node = match command.name() {
            "stop" => None,
            _ => {
                let node = NodeId::new(command.required("node")?);
                Some(node.map_err(|error| CommandError::invalid(error.to_string()))?)
            }
        };
        let shard = match command.name() {
            "move" => Some(shard(command.required("shard")?)?),
            _ => None,
        };
        let Some(runtime) = cluster.runtime.get().cloned() else {
            let problem = format!("this process has not joined cluster {name}: ask another node");
            return Err(CommandError::refused(problem));
        };
        let (verb, tasks) = (command.name().to_owned(), cluster.tasks.clone());
        let target = node.clone();
        // On the runtime of the driver: a connection to the store that is opened here must outlive
        // the admin port.
        let operation = async move {
            let operation = async {
                match (verb.as_str(), &target, &shard) {
                    ("leave", Some(node), _) => cluster.request_leave(node).await,
                    ("out", Some(node), _) => cluster.declare_dead(node).await,
                    ("move", Some(node), Some(shard)) => cluster.request_move(shard, node).await,
                    _ => cluster.stop_all().await,
                }
            };
            tokio::time::timeout(PATIENCE, operation).await
        };
        let operation = tasks.spawn_on(operation, &runtime);
        let slow = || format!("cluster {name}: the store did not answer within {PATIENCE:?}");
        let waiting = tokio::time::timeout(PATIENCE + PATIENCE / 8, operation);
        match tokio::runtime::Handle::current().block_on(waiting) {
            Ok(Ok(Ok(Ok(())))) => Ok(json!({ "cluster": &*name, "node": node })),
            Ok(Ok(Ok(Err(error)))) => Err(refused(&error)),
            Ok(Ok(Err(_))) | Err(_) => Err(CommandError::failed(slow())),
            Ok(Err(_)) => Err(CommandError::failed("the runtime of this process has ended")),
        }
    }

    fn metrics(&self, metrics: &mut Metrics) {
        metrics::render(&self.all(), metrics);
    }
}

fn shard(text: &str) -> Result<ShardId, CommandError> {
    let invalid = |problem: String| CommandError::invalid(format!("shard {text:?}: {problem}"));
    let split = split_shard(text);
    let (region, number) =
        split.ok_or_else(|| invalid("write REGION/NUMBER, such as cart/17".to_owned()))?;
    let region = checked("a region", region).map_err(|error| invalid(error.to_string()))?;
    Ok(ShardId { region, number })
}

fn refused(error: &OperateError) -> CommandError {
    let problem = error_text(error);
    match error {
        OperateError::NoSuchNode { .. } | OperateError::MoveRefused { .. } => {
            CommandError::refused(problem)
        }
        OperateError::Store { .. }
        | OperateError::Unreadable { .. }
        | OperateError::Busy { .. } => CommandError::failed(problem),
    }
}
