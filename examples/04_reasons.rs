//! Reasons: the first one wins, tasks can read it, and it may carry data.

use adieu::{CustomReason, Phase, Reason, Shutdown, TaskCx};

#[derive(Debug, PartialEq)]
struct AdminEndpoint {
    user: &'static str,
}

impl CustomReason for AdminEndpoint {
    fn name(&self) -> &str {
        "admin-endpoint"
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let shutdown = Shutdown::new();
    shutdown.add_task(Phase::CLUSTER_LEAVE, "leave cluster", async |cx: TaskCx| {
        match cx.reason() {
            Reason::ClusterDowning => println!("removed by the cluster: nothing to leave"),
            reason => match reason.downcast_ref::<AdminEndpoint>() {
                Some(AdminEndpoint { user }) => println!("requested by {user}"),
                None => println!("leaving because of {reason}"),
            },
        }
    })?;

    // Three concurrent calls return the same report.
    let (first, second, third) = tokio::join!(
        shutdown.run(AdminEndpoint { user: "ops" }),
        shutdown.run(Reason::ClusterLeaving),
        shutdown.completed(),
    );
    println!("{}, {}, {}", first?.reason, second?.reason, third?.reason);
    Ok(())
}
