//! Why we stop: the first reason wins, tasks can read it, and it may carry data.

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
    shutdown.add_task(Phase::CLUSTER_LEAVE, "say goodbye", async |cx: TaskCx| {
        match cx.reason() {
            Reason::ClusterDowning => println!("we were put out: no goodbye"),
            reason => match reason.downcast_ref::<AdminEndpoint>() {
                Some(AdminEndpoint { user }) => println!("{user} has sent us away"),
                None => println!("goodbye, because of {reason}"),
            },
        }
    })?;

    // Three who ask at the same time await the same report.
    let (first, second, third) = tokio::join!(
        shutdown.run(AdminEndpoint { user: "ops" }),
        shutdown.run(Reason::ClusterLeaving),
        shutdown.completed(),
    );
    println!("{}, {}, {}", first?.reason, second?.reason, third?.reason);
    Ok(())
}
