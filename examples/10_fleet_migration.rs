//! A migration that runs once for a whole fleet, whenever its replicas start. Here the replicas are
//! tasks of one program. With `Files` they can be processes, with `Postgres` or `Etcd` machines.

use std::time::Duration;

use adieu::Deadline;
use adieu::fleet::{Files, Lock, LockSpec, Once, OnceCx, Owner};

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Every replica does this before it is ready.
async fn start(locks: &Files, name: &str, step: Step) -> Result<Once<()>, Error> {
    let spec = LockSpec::new("schema").ttl(Duration::from_secs(5)).needs_fence();
    let lock = Lock::new(locks.clone(), spec, &Owner::new(name)?)?;
    let within = Deadline::after(Duration::from_secs(30)); // how long to wait for another replica
    Ok(lock.once_per_fleet("2026-11-add-index", within, step).await?)
}

type Step = fn(OnceCx) -> Stepping;
type Stepping = std::pin::Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;

fn broken(cx: OnceCx) -> Stepping {
    Box::pin(async move {
        println!("attempt {}, fence {}", cx.attempt, cx.lease.fence());
        Err("the disk is full".into())
    })
}

fn migrate(cx: OnceCx) -> Stepping {
    Box::pin(async move {
        println!("attempt {}, fence {}", cx.attempt, cx.lease.fence());
        if cx.is_retry() {
            println!("an earlier attempt was started: check what it has done");
        }
        for _ in 0..3 {
            cx.lease.check()?; // before each write, with which the fence is sent
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    })
}

fn main() -> std::process::ExitCode {
    adieu::main(async |shutdown| {
        let folder = std::env::temp_dir().join(format!("adieu-example-{}", std::process::id()));
        let locks = Files::open(&folder)?;
        if let Err(error) = start(&locks, "one", broken).await {
            println!("{error}: {}", error.source().map(ToString::to_string).unwrap_or_default());
        }
        // One replica runs the migration, and the other waits for it.
        let (two, three) =
            tokio::try_join!(start(&locks, "two", migrate), start(&locks, "three", migrate))?;
        println!("one of them ran it: {}", two != three);
        println!("late: {:?}", start(&locks, "late", migrate).await?);
        shutdown.mark_started();
        println!("ready: {}", shutdown.readiness());
        std::fs::remove_dir_all(folder)?;
        Ok::<_, Error>(())
    })
}
