//! A loop that asks for a lock and does not wait for the answer: nothing may stay locked.

use std::sync::Arc;
use std::time::Duration;

use adieu::fleet::{Lock, Memory, Owner};
use adieu::{Deadline, LoopCx, Phase, Shutdown};
use adieu_testkit::ledger::Fact;

use super::Error;
use super::store::Store;

pub(super) fn add(shutdown: &Shutdown, store: &Arc<Store>) -> Result<(), Error> {
    let lock = Lock::new(Memory::new(), "impatient", &Owner::this_process())?;
    let asked = lock.clone();
    shutdown.add_loop("impatient", move |cx: LoopCx| {
        let lock = asked.clone();
        async move {
            for round in 0u64.. {
                if !cx.may_take().await {
                    return;
                }
                let impatience = async {
                    for _ in 0..round % 8 {
                        tokio::task::yield_now().await;
                    }
                };
                tokio::select! {
                    biased;
                    () = impatience => {}
                    lease = lock.try_acquire() => drop(lease),
                }
                // Also if the future had never to wait: the others have their turn.
                tokio::time::sleep(Duration::from_micros(100)).await;
            }
        }
    })?;
    store.record(Fact::Accepted, "lock", "impatient");
    let store = Arc::clone(store);
    shutdown.add_task(Phase::BEFORE_ACTOR_SYSTEM_TERMINATE, "check lock", async move |_| {
        let is_settled = lock.settled(Deadline::after(Duration::from_secs(2))).await;
        if is_settled && lock.holder().await?.is_none() {
            store.record(Fact::Finished, "lock", "impatient");
        }
        Ok::<_, Error>(())
    })?;
    Ok(())
}
