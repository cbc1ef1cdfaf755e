//! Two hundred random runs for each backend: three replicas compete for one lock, and are suspended,
//! disconnected and killed; the server is restarted. The judge checks the history of each run.
//!
//! Each replica has its own thread and runtime. Blocking the thread suspends the replica, and dropping
//! the runtime kills it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use adieu_core::Deadline;
use adieu_fleet::{ClaimStatus, Lease, Lock, LockBackend, LockSpec, Memory};
use adieu_testkit::proxy::Proxy;
use tokio::runtime::Handle;

use crate::history::{Event, Log, What, assert_sound, machine_time};
use crate::stage::{Kind, Stage};
use crate::support::owner;

const RUNS: u64 = 200;
/// How many runs are in progress at the same time.
const AT_ONCE: u64 = 40;

/// The fault that a replica meets while it holds the lock.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Release,
    Kill,
    Suspend,
    /// Suspended between the check of the lease and the write, and not guarded, so that only the
    /// fence protects.
    SuspendBeforeWrite,
    Disconnect,
}

/// One replica of a run.
struct Replica {
    kind: Kind,
    place: String,
    memory: Memory,
    key: String,
    name: String,
    ttl: Duration,
    log: Log,
    proxy: Option<Arc<Proxy>>,
    /// A runtime whose timers run while the replica is suspended.
    outside: Handle,
    ends: Instant,
    faults: Arc<[AtomicU32; 5]>,
}

impl Replica {
    fn run(self, seed: u64) {
        let mut random = fastrand::Rng::with_seed(seed);
        while Instant::now() < self.ends {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(self.run_until_killed(&mut random));
            // Its locks are not released: the process is gone.
            runtime.shutdown_background();
        }
    }

    /// Acquires and writes until the replica is killed or the run ends.
    async fn run_until_killed(&self, random: &mut fastrand::Rng) {
        let locks: Arc<dyn LockBackend> = if self.kind == Kind::Memory {
            Arc::new(self.memory.clone())
        } else {
            let connecting = self.kind.try_connect(&self.place);
            match tokio::time::timeout(Duration::from_secs(1), connecting).await {
                Ok(Some(locks)) => locks,
                _ => return,
            }
        };
        let spec = LockSpec::new(&self.key).ttl(self.ttl).retry(self.ttl / 20).needs_fence();
        let lock = Lock::new(locks, spec, &owner(&self.name)).unwrap();
        while Instant::now() < self.ends {
            let Ok(lease) = lock.acquire(Deadline::after(self.ttl)).await else { continue };
            self.log.note(machine_time(), lease.fence().get(), What::Held);
            let fault = match random.u8(..100) {
                0..25 => Fault::Release,
                25..45 => Fault::Kill,
                45..60 => Fault::Suspend,
                60..80 => Fault::SuspendBeforeWrite,
                _ => Fault::Disconnect,
            };
            self.faults[fault as usize].fetch_add(1, Ordering::Relaxed);
            let after = self.ttl.mul_f64(random.f64() * 1.5);
            let lasting = self.ttl.mul_f64(random.f64() * 2.0);
            match fault {
                Fault::SuspendBeforeWrite => self.write(&lock, &lease, after, Some(lasting)).await,
                Fault::Release | Fault::Kill | Fault::Suspend | Fault::Disconnect => {
                    let writing = self.write(&lock, &lease, Duration::MAX, None);
                    let failing = async {
                        tokio::time::sleep(after).await;
                        match fault {
                            Fault::Suspend => std::thread::sleep(lasting),
                            Fault::Disconnect => self.disconnect(lasting),
                            Fault::Release | Fault::Kill | Fault::SuspendBeforeWrite => return,
                        }
                        tokio::time::sleep(self.ttl).await;
                    };
                    tokio::select! {
                        _ = lease.guard(writing) => {}
                        () = failing => {}
                    }
                }
            }
            if let Fault::Kill = fault {
                return;
            }
            let _ = lease.release(Deadline::after(self.ttl)).await;
        }
    }

    fn disconnect(&self, lasting: Duration) {
        let Some(proxy) = self.proxy.clone() else { return std::thread::sleep(lasting) };
        proxy.cut();
        self.outside.spawn(async move {
            tokio::time::sleep(lasting).await;
            proxy.mend();
        });
    }

    /// Writes until the lease is lost. If `suspended_for` is set, suspends between a check and a write
    /// after a while, and writes once more.
    async fn write(
        &self,
        lock: &Lock,
        lease: &Lease,
        suspended_after: Duration,
        suspended_for: Option<Duration>,
    ) {
        let (fence, began) = (lease.fence().get(), Instant::now());
        let mut is_last = false;
        while !is_last {
            let checked = machine_time();
            if lease.check().is_err() {
                return;
            }
            self.log.note(checked, fence, What::Believed);
            if let Some(lasting) = suspended_for
                && began.elapsed() > suspended_after
            {
                std::thread::sleep(lasting);
                is_last = true;
            }
            let sent = machine_time();
            let marking = lock.locks().mark(lease.claim(), "written", "");
            match tokio::time::timeout(self.ttl, marking).await {
                Ok(Ok(ClaimStatus::Held)) => {
                    self.log.note(sent, fence, What::Accepted { by: machine_time() });
                }
                Ok(Ok(ClaimStatus::Lost)) => {
                    self.log.note(sent, fence, What::Refused);
                    return;
                }
                Ok(Err(_)) | Err(_) => {}
            }
            tokio::time::sleep(self.ttl / 15).await;
        }
    }
}

async fn two_hundred_runs(kind: Kind) {
    let mut stage = Stage::new(kind);
    let ttl = kind.ttl();
    let faults: Arc<[AtomicU32; 5]> = Arc::default();
    let (seed, began) = (fastrand::u64(..), Instant::now());
    let mut all: Vec<Event> = Vec::new();
    for batch in 0..RUNS / AT_ONCE {
        let ends = Instant::now() + 4 * ttl + kind.late();
        let (mut runs, mut threads) = (Vec::new(), Vec::new());
        for run in 0..AT_ONCE {
            let log = Log::memory();
            for replica in 0..3 {
                let proxy = match stage.address() {
                    Some(address) => Some(Arc::new(Proxy::new(address).await)),
                    None => None,
                };
                let replica = Replica {
                    kind,
                    place: proxy.as_ref().map_or_else(|| stage.place(), |it| it.port().to_string()),
                    memory: stage.memory.clone(),
                    key: format!("job-{batch}-{run}"),
                    name: format!("r{replica}"),
                    ttl,
                    log: log.clone(),
                    proxy,
                    outside: Handle::current(),
                    ends,
                    faults: Arc::clone(&faults),
                };
                let seed = seed.wrapping_add(threads.len() as u64 + batch * 1_000);
                threads.push(std::thread::spawn(move || replica.run(seed)));
            }
            runs.push(log);
        }
        // The server goes down once in each batch, somewhere in the middle.
        tokio::time::sleep(ttl + ttl.mul_f64(fastrand::f64())).await;
        if let Some(server) = &mut stage.server {
            server.kill();
            tokio::time::sleep(ttl.mul_f64(fastrand::f64())).await;
            server.start();
        }
        let joined = tokio::task::spawn_blocking(move || {
            for thread in threads {
                thread.join().unwrap();
            }
        });
        joined.await.unwrap();
        for log in runs {
            let events = log.events();
            assert_sound(&events);
            all.extend(events);
        }
    }
    let count = |wanted: fn(What) -> bool| all.iter().filter(|event| wanted(event.what)).count();
    let held = count(|what| what == What::Held);
    let accepted = count(|what| matches!(what, What::Accepted { .. }));
    let refused = count(|what| what == What::Refused);
    let faults: Vec<u32> = faults.iter().map(|fault| fault.load(Ordering::Relaxed)).collect();
    let [released, killed, suspended, before_write, disconnected] = faults[..] else { panic!() };
    let line = format!(
        "{kind:?}: {RUNS} runs in {:.0?}: {held} grants ({released} released, {killed} killed, \
         {suspended} suspended, {before_write} suspended before a write, {disconnected} \
         disconnected), {accepted} guarded writes, {refused} refused, no two holders at a time \
         (seed {seed})\n",
        began.elapsed()
    );
    std::fs::write(format!("{}/fleet-{kind:?}.txt", env!("CARGO_TARGET_TMPDIR")), &line).unwrap();
    println!("{line}");
    assert!(held as u64 > RUNS / 2 && accepted > held && refused > 0, "nothing happened: {line}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s152_two_hundred_runs_in_memory() {
    two_hundred_runs(Kind::Memory).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s152_two_hundred_runs_with_files() {
    two_hundred_runs(Kind::File).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s152_two_hundred_runs_with_redis() {
    two_hundred_runs(Kind::Redis).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s152_two_hundred_runs_with_rows() {
    two_hundred_runs(Kind::Rows).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s152_two_hundred_runs_with_sessions() {
    two_hundred_runs(Kind::Session).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s152_two_hundred_runs_with_etcd() {
    two_hundred_runs(Kind::Etcd).await;
}
