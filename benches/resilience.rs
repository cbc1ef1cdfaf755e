//! The cost of a policy, compared with peers, in nanoseconds for each call; and the share that remains of a real
//! axum server that gets three times the requests it can answer.
//!
//! Every call ends at once, so all that is measured is the policy. Futures are polled once.

#[path = "resilience/overload.rs"]
mod overload;
#[path = "resilience/redis.rs"]
mod redis;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::hint::black_box;
use std::pin::pin;
use std::sync::{Arc, Barrier};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use adieu::{Config, Shutdown};
use adieu_benches::{Claim, main as bench};
use adieu_resilience::measure::ClosedBreaker;
use adieu_resilience::{Breaker, Bulkhead, Policies, Policy, PolicyBuilder, Rate, Redis};
use failsafe::CircuitBreaker as _;
use overload::Limit;
use overload::Work::{Constant, Varied};
use tower::{Layer, Service, ServiceExt};
use tower_resilience::circuitbreaker::CircuitBreakerLayer;

/// Calls that are timed together.
const BATCH: u32 = 1_000;
/// How long a case runs: much longer than it takes until all its threads run.
const TIME: Duration = Duration::from_millis(300);

/// Far above what a case can use.
const PERMITS: u32 = 9_000_000;

/// Counts allocations of each thread, without a write that threads share.
struct Allocations;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

#[global_allocator]
static ALLOCATOR: Allocations = Allocations;

// SAFETY: every call is forwarded to the system's allocator; this type only counts.
unsafe impl GlobalAlloc for Allocations {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller fulfils the contract, which is that of the system's allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above.
        unsafe { System.realloc(at, layout, size) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }
}

fn main() {
    bench(
        "resilience",
        7,
        &[
            ("1 thread: closed breaker", || closed(1)),
            ("2 threads: closed breaker", || closed(2)),
            ("1 thread: policy with a breaker", || policy(1, with_breaker)),
            ("2 threads: policy with a breaker", || policy(2, with_breaker)),
            ("1 thread: recloser", || recloser(1)),
            ("2 threads: recloser", || recloser(2)),
            ("1 thread: failsafe", || failsafe(1)),
            ("2 threads: failsafe", || failsafe(2)),
            ("1 thread: tower-resilience", || tower_resilience(1)),
            ("2 threads: tower-resilience", || tower_resilience(2)),
            ("1 thread: rate limit", || policy(1, with_rate)),
            ("1 thread: governor", || governor(1)),
            ("whole policy", || policy(1, whole)),
            ("allocations of 1,000 calls", allocations),
            ("whole policy on a runtime", || on_runtime(false)),
            ("whole policy, shared", || on_runtime(true)),
            ("peak answers a second", || overload::peak(Varied)),
            ("unloaded p99", || overload::unloaded(Varied)),
            ("3x: answers a second without limit", || overload::answers(Limit::None, Varied)),
            ("3x: p99 without limit", || overload::p99(Limit::None, Varied)),
            ("3x: answers a second, fixed", || overload::answers(Limit::Fixed, Varied)),
            ("3x: p99, fixed", || overload::p99(Limit::Fixed, Varied)),
            ("3x: answers a second, adaptive", || overload::answers(Limit::Adaptive, Varied)),
            ("3x: p99, adaptive", || overload::p99(Limit::Adaptive, Varied)),
            ("3x: answers a second, adaptive with a queue", || {
                overload::answers(Limit::AdaptiveWithQueue, Varied)
            }),
            ("3x: p99, adaptive with a queue", || overload::p99(Limit::AdaptiveWithQueue, Varied)),
            ("unloaded p99, constant work", || overload::unloaded(Constant)),
            ("3x: p99, adaptive, constant work", || overload::p99(Limit::Adaptive, Constant)),
            ("3x: answers a second, aimd", || overload::answers(Limit::Aimd, Varied)),
            ("3x: p99, aimd", || overload::p99(Limit::Aimd, Varied)),
            ("3x: answers a second, tower-resilience", || {
                overload::answers(Limit::TowerResilience, Varied)
            }),
            ("3x: p99, tower-resilience", || overload::p99(Limit::TowerResilience, Varied)),
        ],
        &[
            figure("closed breaker, in nanoseconds", "1 thread: closed breaker", 15.0),
            Claim::ratio(
                "closed breaker, two threads against one",
                "2 threads: closed breaker",
                "1 thread: closed breaker",
                1.2,
            ),
            Claim::ratio(
                "closed breaker, two threads, against recloser",
                "2 threads: closed breaker",
                "2 threads: recloser",
                0.3,
            ),
            Claim::ratio(
                "closed breaker, two threads, against failsafe",
                "2 threads: closed breaker",
                "2 threads: failsafe",
                0.3,
            ),
            Claim::ratio(
                "closed breaker, two threads, against tower-resilience",
                "2 threads: closed breaker",
                "2 threads: tower-resilience",
                0.3,
            ),
            record(
                "policy with a breaker, two threads, against tower-resilience",
                "2 threads: policy with a breaker",
                "2 threads: tower-resilience",
            ),
            Claim::ratio(
                "policy with a breaker, two threads against one",
                "2 threads: policy with a breaker",
                "1 thread: policy with a breaker",
                1.2,
            ),
            Claim::ratio(
                "policy with a rate limit, against governor alone",
                "1 thread: rate limit",
                "1 thread: governor",
                f64::INFINITY,
            ),
            figure("rate, bulkhead, breaker and timeout, in nanoseconds", "whole policy", 250.0),
            figure("allocations of 1,000 calls", "allocations of 1,000 calls", 0.0),
            Claim::ratio(
                "shared policy against a local one",
                "whole policy, shared",
                "whole policy on a runtime",
                1.1,
            ),
            // 1 / 0.9
            Claim::ratio(
                "3x overload: peak against the answered rate with an adaptive bulkhead",
                "peak answers a second",
                "3x: answers a second, adaptive",
                1.112,
            ),
            Claim::ratio(
                "3x overload: p99 with an adaptive bulkhead, against unloaded",
                "3x: p99, adaptive",
                "unloaded p99",
                2.0,
            ),
            record(
                "the same with a queue of eight",
                "3x: p99, adaptive with a queue",
                "unloaded p99",
            ),
            record(
                "the same with constant work",
                "3x: p99, adaptive, constant work",
                "unloaded p99, constant work",
            ),
            record("the same with AIMD", "3x: p99, aimd", "unloaded p99"),
            record("the same with a fixed bulkhead", "3x: p99, fixed", "unloaded p99"),
            record("the same without a limit", "3x: p99 without limit", "unloaded p99"),
            record("the same with tower-resilience", "3x: p99, tower-resilience", "unloaded p99"),
            record(
                "3x overload: peak against the answered rate with a queue of eight",
                "peak answers a second",
                "3x: answers a second, adaptive with a queue",
            ),
            record(
                "3x overload: peak against the answered rate with AIMD",
                "peak answers a second",
                "3x: answers a second, aimd",
            ),
            record(
                "the same with a fixed bulkhead",
                "peak answers a second",
                "3x: answers a second, fixed",
            ),
            record(
                "the same without a limit",
                "peak answers a second",
                "3x: answers a second without limit",
            ),
            record(
                "the same with tower-resilience",
                "peak answers a second",
                "3x: answers a second, tower-resilience",
            ),
        ],
    );
}

fn figure(what: &'static str, ours: &'static str, at_most: f64) -> Claim {
    Claim { what, ours, against: None, per: (1.0, 1.0), at_most }
}

fn record(what: &'static str, ours: &'static str, against: &'static str) -> Claim {
    Claim::ratio(what, ours, against, f64::INFINITY)
}

/// Runs `call` on this many threads at once. Returns the time of one call on each thread: the median of
/// short batches, most of which are over before other load on the machine interrupts the thread.
fn on(threads: usize, call: impl FnMut() + Clone + Send + 'static) -> f64 {
    let start = Arc::new(Barrier::new(threads));
    let workers: Vec<_> = (0..threads)
        .map(|_| {
            let (start, mut call) = (Arc::clone(&start), call.clone());
            std::thread::spawn(move || {
                start.wait();
                let (began, mut batches) = (Instant::now(), Vec::new());
                while began.elapsed() < TIME {
                    batches.push(batch(&mut call));
                }
                median(batches)
            })
        })
        .collect();
    let times: Vec<f64> =
        workers.into_iter().map(|worker| worker.join().expect("a time")).collect();
    times.iter().sum::<f64>() / times.len() as f64
}

fn batch(call: &mut impl FnMut()) -> f64 {
    let began = Instant::now();
    for _ in 0..BATCH {
        call();
    }
    began.elapsed().as_secs_f64() * 1e9 / f64::from(BATCH)
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// The output of a future that is ready when it is first polled.
fn ready<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("a call that ends at once has waited"),
    }
}

fn closed(threads: usize) -> f64 {
    let breaker = Arc::new(ClosedBreaker::new(&Breaker::at(0.5)));
    on(threads, move || assert!(black_box(&breaker).admit_and_settle()))
}

fn with_breaker(policy: PolicyBuilder) -> PolicyBuilder {
    policy.breaker(Breaker::at(0.5))
}

fn with_rate(policy: PolicyBuilder) -> PolicyBuilder {
    policy.rate(Rate::per_second(PERMITS).burst(PERMITS))
}

fn whole(policy: PolicyBuilder) -> PolicyBuilder {
    let policy = policy.rate(Rate::per_second(PERMITS).burst(PERMITS)).bulkhead(Bulkhead::of(64));
    policy.breaker(Breaker::at(0.5)).timeout(Duration::from_secs(1))
}

fn start(build: impl Fn(PolicyBuilder) -> PolicyBuilder) -> (Policy, Shutdown) {
    let shutdown = Shutdown::configured(Config::for_tests()).expect("a shutdown");
    (build(Policy::new("bench")).start(&shutdown).expect("a policy"), shutdown)
}

fn policy(threads: usize, build: fn(PolicyBuilder) -> PolicyBuilder) -> f64 {
    let (policy, _shutdown) = start(build);
    on(threads, move || {
        let called = ready(policy.call(async |_| Ok::<_, ()>(())));
        assert!(black_box(called).is_ok());
    })
}

fn recloser(threads: usize) -> f64 {
    let breaker = Arc::new(recloser::Recloser::default());
    on(threads, move || assert!(breaker.call(|| Ok::<_, ()>(())).is_ok()))
}

fn failsafe(threads: usize) -> f64 {
    let breaker = failsafe::Config::new().build();
    on(threads, move || assert!(breaker.call(|| Ok::<_, ()>(())).is_ok()))
}

/// Its breaker has an asynchronous lock, so the calls of two threads wait for each other.
fn tower_resilience(threads: usize) -> f64 {
    let service = tower::service_fn(|(): ()| async { Ok::<_, std::io::Error>(()) });
    let service = CircuitBreakerLayer::builder().build().expect("valid").layer(service);
    let start = Arc::new(Barrier::new(threads));
    let workers: Vec<_> = (0..threads)
        .map(|_| {
            let (start, mut service) = (Arc::clone(&start), service.clone());
            let work = async move {
                let (first, mut batches) = (Instant::now(), Vec::new());
                while first.elapsed() < TIME {
                    let began = Instant::now();
                    for _ in 0..BATCH {
                        let service = service.ready().await.expect("closed");
                        assert!(service.call(()).await.is_ok());
                    }
                    batches.push(began.elapsed().as_secs_f64() * 1e9 / f64::from(BATCH));
                }
                median(batches)
            };
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().build();
                start.wait();
                runtime.expect("a runtime").block_on(work)
            })
        })
        .collect();
    let times: Vec<f64> =
        workers.into_iter().map(|worker| worker.join().expect("a time")).collect();
    times.iter().sum::<f64>() / times.len() as f64
}

fn governor(threads: usize) -> f64 {
    let permits = std::num::NonZeroU32::new(PERMITS).expect("not zero");
    let quota = governor::Quota::per_second(permits).allow_burst(permits);
    let limiter = Arc::new(governor::RateLimiter::direct(quota));
    on(threads, move || assert!(limiter.check().is_ok()))
}

fn allocations() -> f64 {
    let (policy, _shutdown) = start(whole);
    let call = || assert!(ready(policy.call(async |_| Ok::<_, ()>(()))).is_ok());
    // The first call of a thread makes its counters.
    (0..100).for_each(|_| call());
    let before = ALLOCATIONS.get();
    (0..1_000).for_each(|_| call());
    (ALLOCATIONS.get() - before) as f64
}

/// A policy on a runtime whose loop keeps it shared, or that is not shared.
fn on_runtime(is_shared: bool) -> f64 {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    // In both cases, so that it costs the same.
    let server = redis::Server::start();
    let (policy, shutdown) = runtime.block_on(async { start(whole) });
    let policies: Policies = [policy.clone()].into_iter().collect();
    let _policies = runtime.block_on(async {
        if !is_shared {
            return policies;
        }
        let store = Redis::connect(&server.url()).await.expect("a connection");
        policies.shared(store, "bench").expect("shared")
    });
    shutdown.mark_started();
    runtime.block_on(async {
        let (first, mut batches) = (Instant::now(), Vec::new());
        while first.elapsed() < 3 * TIME {
            let began = Instant::now();
            for _ in 0..BATCH {
                assert!(policy.call(async |_| Ok::<_, ()>(())).await.is_ok());
            }
            batches.push(began.elapsed().as_secs_f64() * 1e9 / f64::from(BATCH));
        }
        // The first calls teach how many permits this process needs.
        median(batches.split_off(batches.len() / 2))
    })
}
