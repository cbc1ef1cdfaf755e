//! `adieu cluster move`: a shard is handed to a node.

use adieu::cluster::adapter::split_shard;

use super::seen::{Clusters, Seen};
use super::{Move, encoded};
use crate::admin::{IDLE_POLL, Page};
use crate::consent;
use crate::duration::short;
use crate::ending::{Failure, Printout};
use crate::screen::interrupted;

pub(super) async fn run(args: &Move) -> Result<Printout, Failure> {
    let Move { shard, change, wait } = args;
    let (region, number) = parsed(shard)?;
    let seen = change.known().await?;
    let (node, cluster, target) = (&change.node, &seen.cluster, change.connect.target());
    let (owner, _) = seen.shard(region, number);
    let owner = owner.map_or_else(|| "no node owns it".to_owned(), |it| format!("{it} owns it"));
    let question = format!("move {shard} of cluster {cluster} to {node}? Now {owner}.");
    consent::ask(&question, change.yes)?;
    let path = format!("{}&shard={}", change.path("move", &seen), encoded(shard));
    change.connect.command(&path).await?;
    let Some(wait) = wait else {
        return Ok(Printout::success(format!("{shard} of cluster {cluster} moves to {node}\n")));
    };
    let moved = moved(args, &seen, region, number);
    tokio::select! {
        biased;
        () = interrupted() => Err(Failure::interrupted(format!("{shard} continues to move"))),
        moved = tokio::time::timeout(*wait, moved) => match moved {
            Ok(Ok(())) => {
                Ok(Printout::success(format!("{shard} of cluster {cluster} has moved to {node}\n")))
            }
            Ok(Err(failure)) => Err(failure),
            Err(_) => Err(Failure::no(format!(
                "{node} does not own {shard} of cluster {cluster} after {}; see adieu cluster status \
                 {target}",
                short(*wait)
            ))),
        },
    }
}

fn parsed(shard: &str) -> Result<(&str, u32), Failure> {
    split_shard(shard).filter(|(region, _)| !region.is_empty()).ok_or_else(|| {
        Failure::input(format!("{shard:?} is not a shard; write REGION/NUMBER, such as cart/17"))
    })
}

/// Waits until the node owns the shard, as far as the queried node can see.
async fn moved(args: &Move, before: &Seen, region: &str, number: u32) -> Result<(), Failure> {
    let Move { shard, change, .. } = args;
    let Seen { cluster, node: asked, .. } = before;
    let node = &change.node;
    let unseen = || {
        Failure::unable(format!(
            "{shard} of cluster {cluster} was requested to move to {node}, but {asked}, which was \
             asked, is itself no longer in the cluster; see adieu cluster status with the admin port \
             of another node"
        ))
    };
    let (first, _) = before.shard(region, number);
    let mut was_moving = false;
    loop {
        let Page::Shown(page) = change.connect.page("/cluster").await? else {
            return Err(unseen());
        };
        let now = Clusters::new(page).and_then(|now| now.named(cluster));
        if let Some(now) = now {
            if now.is_blind() {
                return Err(unseen());
            }
            match now.shard(region, number) {
                (Some(owner), _) if owner == node => return Ok(()),
                (_, Some(_)) => was_moving = true,
                // The node began to leave before it received the shard.
                (Some(owner), None) if was_moving && Some(owner) != first => {
                    return Err(Failure::no(format!(
                        "{shard} of cluster {cluster} has moved to {owner}, because {node} could no \
                         longer receive it"
                    )));
                }
                (_, None) => {}
            }
        }
        tokio::time::sleep(IDLE_POLL).await;
    }
}
