//! Carries out the decisions of a node's machine: one task that keeps the session, watches the
//! table, commits, and starts and joins singletons.

mod hosting;
mod instances;
mod requests;
mod shown;

use std::sync::Arc;

use adieu_core::Reason;
use adieu_core::adapter::error_text;
use hosting::{Hosting, close};
use instances::{Instances, Joined};
use requests::{
    Loaded, NOT_COMMITTED, NOT_KEPT, NOT_LOADED, NOT_READ, NOT_WATCHED, Pending, close_session,
    next, open, ready, warn_of,
};
use tokio_util::sync::CancellationToken;

use crate::handoff::Handoffs;
use crate::member::{Answer, Declared, Stage};
use crate::node::Node;
use crate::proposal::{Purpose, Wake};
use crate::records::{ConfigRecord, RegionConfig, RegionKind};
use crate::regions::keep;
use crate::shared::Shared;
use crate::standing::Standing;
use crate::store::{Changes, Committed, Session, Standing as SessionStanding, StoreError, Update};
use crate::time::{Duration, Instant, now, sleep_until};

/// The version of the records and of the rules for changing them.
pub(crate) const PROTOCOL: u32 = 1;

struct Driver {
    shared: Arc<Shared>,
    session: Session,
    standing: Arc<Standing>,
    keeping: Pending<(Instant, Result<SessionStanding, StoreError>)>,
    loading: Pending<Loaded>,
    retry_load_at: Option<Instant>,
    committing: Pending<(Purpose, Result<Committed, StoreError>)>,
    changes: Option<Box<dyn Changes>>,
    instances: Instances,
    handoffs: Handoffs,
    hosting: Hosting,
    stage: Stage,
    /// The condition that this node waits for, and when it was last logged or began.
    waits: Option<(String, Instant)>,
    /// The stage that readiness was last derived from.
    reported: Stage,
    /// Fires when the shutdown begins. From then on this node is not ready.
    begun: CancellationToken,
    /// Why the shutdown is to run. Begun outside the machine's lock, because it calls the
    /// application.
    begins: Option<Reason>,
}

/// The next event of the driver.
enum Event {
    Kept(Instant, Result<SessionStanding, StoreError>),
    Loaded(Loaded),
    Committed(Purpose, Result<Committed, StoreError>),
    Changed(Result<Update, StoreError>),
    Instance(Joined),
    Nothing,
}

/// Opens a session and drives the node until it has left, is down, or is closed.
pub(crate) async fn drive(shared: Arc<Shared>) {
    let _over = Over(Arc::clone(&shared));
    // From the beginning, because asks have deadlines before there is a session.
    let keeper = CancellationToken::new();
    let (here, regions) = (Arc::clone(&shared.here), Arc::clone(&shared.regions));
    let _ends_keeper = keeper.clone().drop_guard();
    shared.tasks.spawn(keep(here, regions, keeper));
    if let Some((session, sent)) = open(&shared).await {
        let until = sent + session.ttl.min(shared.settings.ttl) - shared.settings.margin;
        let standing = Arc::new(Standing::new(sent, until));
        let _ = shared.standing.set(Arc::clone(&standing));
        if let Some(runtime) = shared.runtime.get() {
            shared.here.join(Arc::clone(&standing), runtime.clone());
        }
        let declared = declare(&shared, &session);
        *shared.node() = Some(Node::new(shared.settings, shared.keys.clone(), declared, sent));
        let driver = Driver {
            session,
            keeping: None,
            loading: None,
            retry_load_at: None,
            committing: None,
            changes: None,
            instances: Instances::new(&shared, &standing),
            handoffs: Handoffs::default(),
            hosting: Hosting::new(&shared),
            standing,
            stage: Stage::Outside,
            waits: None,
            reported: Stage::Outside,
            begun: shared.shutdown.upgrade().map(|it| it.token()).unwrap_or_default(),
            begins: None,
            shared: Arc::clone(&shared),
        };
        driver.run().await;
    } else {
        close(&shared, shared.settings.ttl / 3).await;
    }
}

/// Reports, when it is dropped, that the driver has ended, even if a store of the application has
/// panicked: the tasks of the phases would wait for a driver that is no longer there.
struct Over(Arc<Shared>);

impl Drop for Over {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let cluster = Arc::clone(&self.0.cluster);
            if let Some(standing) = self.0.standing.get() {
                standing.lose();
            }
            self.0
                .troubles
                .find("the task of the node panicked: nothing was handed over".to_owned());
            self.0.log(move || tracing::error!(%cluster, "the task of the node panicked"));
        }
        self.0.progress.send_modify(|progress| progress.is_over = true);
    }
}

fn declare(shared: &Shared, session: &Session) -> Declared {
    let singletons = shared.singletons();
    let region = RegionConfig { kind: RegionKind::Singleton, shards: 1 };
    let mut record = shared.record.clone();
    let regions = shared.regions.all();
    record.hosts = singletons.keys().cloned().collect();
    let hosted = regions.iter().filter(|region| region.is_hosted());
    record.hosts.extend(hosted.map(|region| Arc::clone(region.name())));
    let singletons = singletons.keys().map(|name| (Arc::clone(name), region));
    let regions = regions.iter().map(|region| (Arc::clone(region.name()), region.config()));
    Declared {
        id: shared.id.clone(),
        session: session.id,
        record,
        config: ConfigRecord { protocol: PROTOCOL, regions: singletons.chain(regions).collect() },
    }
}

// === impl Driver ===

impl Driver {
    async fn run(mut self) {
        loop {
            let wake = self.step();
            if let (Some(reason), Some(shutdown)) =
                (self.begins.take(), self.shared.shutdown.upgrade())
            {
                drop(shutdown.run(reason));
            }
            self.report_readiness();
            if self.is_over() {
                break;
            }
            let happened = self.wait(wake).await;
            self.apply(happened);
        }
        self.end().await;
    }

    /// Returns whether this node has nothing more to do in the cluster.
    fn is_over(&self) -> bool {
        // A commit in flight may be the one that removes this node.
        matches!(self.stage, Stage::Removed | Stage::Down)
            || (self.shared.close.is_cancelled() && self.committing.is_none())
    }

    /// Does the work that is due, and returns when the next is due.
    fn step(&mut self) -> Wake {
        let mut wake = Wake::default();
        let now = now();
        let shared = Arc::clone(&self.shared);
        // Before the machine is locked, because it may report a failed check.
        let is_ready = self.is_ready();
        let mut node = shared.node();
        let Some(node) = node.as_mut() else { return wake };
        if self.standing.is_lost() {
            node.expire();
        }
        // Cordons and failing checks cannot be waited for.
        wake.at(now + (shared.settings.ttl / 20).min(Duration::from_millis(500)));
        node.member.set_ready(is_ready);
        node.member.raise_goal(*shared.goal.borrow());
        self.keep(node, now, &mut wake);
        self.load(node, now, &mut wake);
        // Before the commit, which can then hand over a shard whose instance has just ended. A later
        // step would come with the timer, whose resolution is a millisecond.
        let is_good = node.is_good(now) && self.standing.is_good();
        self.instances.reconcile(node, is_good, now, &mut wake);
        self.hosting.reconcile(node, is_good, now, &mut wake);
        if self.committing.is_none()
            && !shared.close.is_cancelled()
            && let Some(proposal) = node.next(now, &mut wake)
        {
            self.commit(proposal);
        }
        self.publish(node);
        wake
    }

    async fn wait(&mut self, wake: Wake) -> Event {
        let goal = *self.shared.goal.borrow();
        let mut goals = self.shared.goal.subscribe();
        let Self { shared, keeping, loading, committing, changes, instances, .. } = self;
        let (standing, begun) = (&self.standing, &self.begun);
        let has_begun = begun.is_cancelled();
        let is_closing = shared.close.is_cancelled();
        let is_killing = shared.kill.is_cancelled();
        tokio::select! {
            biased;
            (sent, kept) = ready(keeping) => Event::Kept(sent, kept),
            (what, answer) = ready(committing) => Event::Committed(what, answer),
            loaded = ready(loading) => Event::Loaded(loaded),
            Some(ended) = instances.join_next() => Event::Instance(ended),
            () = shared.here.drained.notified() => Event::Nothing,
            changed = next(changes) => Event::Changed(changed),
            _ = goals.wait_for(|now| *now != goal) => Event::Nothing,
            () = begun.cancelled(), if !has_begun => Event::Nothing,
            () = shared.close.cancelled(), if !is_closing => Event::Nothing,
            () = shared.kill.cancelled(), if !is_killing => Event::Nothing,
            () = standing.lost() => Event::Nothing,
            () = sleep(wake) => Event::Nothing,
        }
    }

    fn apply(&mut self, happened: Event) {
        let now = now();
        let shared = Arc::clone(&self.shared);
        let mut node = shared.node();
        let Some(node) = node.as_mut() else { return };
        match happened {
            Event::Kept(sent, kept) => {
                self.keeping = None;
                let answer = match kept {
                    Ok(SessionStanding::Kept) => {
                        shared.troubles.recovered(&[NOT_KEPT]);
                        Answer::Kept
                    }
                    Ok(SessionStanding::Ended) => Answer::Ended,
                    Err(error) => {
                        shared.counters.renewal_failed();
                        warn_of(&shared, &error, NOT_KEPT);
                        Answer::None
                    }
                };
                // The tasks may have seen first that the session is bad.
                if self.standing.is_good() {
                    node.kept(now, sent, answer);
                    self.standing.extend(node.valid_until());
                }
            }
            Event::Loaded(loaded) => {
                self.loading = None;
                self.retry_load_at = Some(now + shared.settings.ttl / 20);
                match loaded {
                    Ok((snapshot, changes)) => {
                        self.changes = Some(changes);
                        if let Err(error) = node.loaded(now, &snapshot) {
                            self.cannot_read(node, &error);
                        } else {
                            self.retry_load_at = None;
                            shared.troubles.recovered(&[NOT_LOADED, NOT_READ, NOT_WATCHED]);
                        }
                    }
                    Err(error) => {
                        warn_of(&shared, &error, NOT_LOADED);
                        node.load_failed();
                    }
                }
            }
            Event::Committed(what, answer) => {
                self.committing = None;
                shared.counters.committed(what, answer.as_ref().ok());
                match answer {
                    Ok(answer) => {
                        shared.troubles.recovered(&[NOT_COMMITTED]);
                        node.committed(now, Some(answer));
                    }
                    Err(StoreError::NoSession { .. }) => node.session_ended(now),
                    Err(error) => {
                        let name = shared.store.name();
                        let error = error_text(&error);
                        if shared.troubles.failed(NOT_COMMITTED, &error, now) {
                            shared.log(move || {
                                tracing::warn!(store = name, ?what, error, "{NOT_COMMITTED}");
                            });
                        }
                        node.committed(now, None);
                    }
                }
            }
            Event::Changed(Ok(Update::Changed { revision, changes })) => {
                if let Err(error) = node.changed(now, revision, &changes) {
                    self.cannot_read(node, &error);
                }
            }
            Event::Changed(Ok(Update::Compacted)) => self.changes = None,
            Event::Changed(Err(error)) => {
                warn_of(&shared, &error, NOT_WATCHED);
                self.changes = None;
                self.retry_load_at = Some(now + shared.settings.ttl / 20);
            }
            Event::Instance(ended) => self.instances.ended(ended, now),
            Event::Nothing => {}
        }
    }

    /// Joins the singletons, and closes the session when nothing can act under it.
    ///
    /// A singleton that blocks its thread cannot be dropped. Its session is kept for as long as it
    /// runs, or until the process ends, so that no other node starts the next instance beside it.
    async fn end(mut self) {
        self.standing.lose();
        if self.stage != Stage::Down {
            self.instances.report_unstopped();
        }
        self.instances.abort_all();
        self.hosting.lose();
        self.shared.here.tasks.close();
        let pause = self.shared.settings.ttl / 3;
        loop {
            let (instances, entities) = (&mut self.instances, &self.shared.here.tasks);
            let ended = async {
                let ended = instances.join_next().await;
                if ended.is_none() {
                    entities.wait().await;
                }
                ended
            };
            match tokio::time::timeout(pause, ended).await {
                Ok(Some(ended)) => self.instances.ended(ended, now()),
                Ok(None) => break,
                // A place that is lost cannot be kept.
                Err(_) if self.stage == Stage::Down => {
                    self.instances.leave_behind();
                    return close(&self.shared, pause).await;
                }
                Err(_) => {
                    let kept = self.shared.store.keep(&self.session);
                    if let Ok(Err(error)) = tokio::time::timeout(pause, kept).await {
                        warn_of(&self.shared, &error, NOT_KEPT);
                    }
                }
            }
        }
        close(&self.shared, pause).await;
        close_session(&self.shared, &self.session).await;
    }
}

async fn sleep(wake: Wake) {
    match wake.get() {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}
