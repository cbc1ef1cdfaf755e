//! One replica leads. When it shuts down, its work ends, then the lock is released, then another
//! replica leads. Here the replicas are in one program. With another backend they can be machines.

use std::time::Duration;

use adieu::fleet::{LeadError, Leadership, Lock, LockSpec, Memory, Owner, Term};
use adieu::{Config, Reason, Shutdown};

type Error = Box<dyn std::error::Error + Send + Sync>;

fn replica(locks: &Memory, name: &'static str, shutdown: &Shutdown) -> Result<Leadership, Error> {
    let spec = LockSpec::new("sweeper").ttl(Duration::from_secs(3));
    let lock = Lock::new(locks.clone(), spec, &Owner::new(name)?)?;
    let leadership = lock.lead(shutdown, move |term: Term| async move {
        term.stopped().await;
        println!("{name} cleans up");
    })?;
    shutdown.mark_started();
    Ok(leadership)
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let locks = Memory::new();
    let (one, two) =
        (Shutdown::configured(Config::for_tests())?, Shutdown::configured(Config::for_tests())?);
    let first = replica(&locks, "one", &one)?;
    println!("one leads with fence {}", first.until_leading().await);
    let second = replica(&locks, "two", &two)?;
    println!("two: {}, leading: {}", two.readiness(), second.leading().is_some());

    let report = one.run(Reason::Unknown).await?;
    println!("one: {}, leading: {}", report.outcome, first.leading().is_some());
    println!("two leads with fence {}", second.until_leading().await);
    second.resign().await;
    println!("two: leading: {}", second.leading().is_some());
    let report = two.run(Reason::Unknown).await?;
    println!("two: {}", report.outcome);

    // Readiness must not depend on leadership: a rolling restart would wait for itself.
    let three = Shutdown::new();
    let _promise = three.add_promise("sweeper");
    let lock = Lock::new(locks, "sweeper", &Owner::this_process())?;
    let refused = lock.lead(&three, async |_| {});
    println!("refused: {}", matches!(refused, Err(LeadError::ReadinessNeedsLeadership { .. })));
    Ok(())
}
