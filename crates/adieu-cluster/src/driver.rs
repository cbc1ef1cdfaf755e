//! Carries out the decisions of a node's machine: one task that keeps the session, watches the
//! table, commits, and starts and joins singletons.

mod hosting;
mod instances;

use std::pin::Pin;
use std::sync::Arc;

use adieu_core::adapter::error_text;
use adieu_core::{Readiness, Reason};
use hosting::{Hosting, close};
use instances::{Instances, Joined};
use tokio_util::sync::CancellationToken;

use crate::handoff::Handoffs;
use crate::member::{Answer, Declared, Goal, Loss, Next, Stage};
use crate::node::Node;
use crate::proposal::{Proposal, Purpose, Wake};
use crate::records::{ConfigRecord, RegionConfig, RegionKind};
use crate::regions::keep;
use crate::shared::{Failure, Progress, Shared};
use crate::standing::Standing;
use crate::store::{
    Changes, Committed, Session, Snapshot, Standing as SessionStanding, StoreError, Update,
};
use crate::time::{Duration, Instant, now, sleep_until};
use crate::waiting;

/// The version of the records and of the rules for changing them.
pub(crate) const PROTOCOL: u32 = 1;

// The requests to the store that can fail, as they are logged.
const NOT_OPENED: &str = "store not available; retrying";
const NOT_KEPT: &str = "session not kept; retrying";
const NOT_LOADED: &str = "cluster table not loaded; retrying";
const NOT_READ: &str = "cluster record not understood; retrying";
const NOT_WATCHED: &str = "cluster changes lost; loading the table";
const NOT_COMMITTED: &str = "commit not answered";

/// The interval at which a waiting node logs the condition that it waits for.
const LOG_WAIT: Duration = Duration::from_secs(5);

type Pending<T> = Option<Pin<Box<dyn Future<Output = T> + Send>>>;
type Loaded = Result<(Snapshot, Box<dyn Changes>), StoreError>;

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

/// Opens a session. Retries until it succeeds, the error is permanent, or the node is closed.
async fn open(shared: &Shared) -> Option<(Session, Instant)> {
    let ttl = shared.settings.ttl;
    loop {
        let sent = now();
        let opened = tokio::select! {
            biased;
            () = shared.close.cancelled() => return None,
            opened = tokio::time::timeout(ttl / 3, shared.store.open(ttl)) => opened,
        };
        let error = match opened {
            Ok(Ok(session)) => {
                shared.troubles.recovered(&[NOT_OPENED]);
                return Some((session, sent));
            }
            Ok(Err(error)) => error,
            Err(_) => no_answer(shared, "open a session"),
        };
        if !error.may_pass() {
            shared.progress.send_modify(|it| it.failure = Some(Failure::Store(error)));
            return None;
        }
        warn_of(shared, &error, NOT_OPENED);
        let waiting_for = shared.troubles.explained(waiting::STORE);
        shared.progress.send_modify(|it| it.waiting_for = Some(waiting_for));
        tokio::time::sleep(ttl / 20).await;
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

    fn keep(&mut self, node: &mut Node, now: Instant, wake: &mut Wake) {
        match node.keep(now) {
            Next::Wait(until) => wake.at(until),
            Next::Lost => self.standing.lose(),
            Next::Keep(_) if self.keeping.is_some() => wake.at(node.valid_until()),
            Next::Keep(patience) => {
                let (shared, session) = (Arc::clone(&self.shared), self.session.clone());
                wake.at(node.valid_until());
                self.keeping = Some(Box::pin(async move {
                    let kept = tokio::time::timeout(patience, shared.store.keep(&session)).await;
                    let kept = kept.unwrap_or_else(|_| Err(no_answer(&shared, "keep a session")));
                    (now, kept)
                }));
            }
        }
    }

    fn load(&mut self, node: &mut Node, now: Instant, wake: &mut Wake) {
        let needs_load = node.needs_load(now, wake) || self.changes.is_none();
        if !needs_load || self.loading.is_some() {
            return;
        }
        if let Some(retry) = self.retry_load_at.filter(|retry| now < *retry) {
            return wake.at(retry);
        }
        node.load_started();
        let shared = Arc::clone(&self.shared);
        self.loading = Some(Box::pin(async move {
            let prefix = shared.keys.prefix();
            let load = async {
                let snapshot = shared.store.load(prefix).await?;
                let changes = shared.store.changes(prefix, snapshot.revision).await?;
                Ok((snapshot, changes))
            };
            let loaded = tokio::time::timeout(shared.settings.ttl, load).await;
            loaded.unwrap_or_else(|_| Err(no_answer(&shared, "load a table")))
        }));
    }

    fn commit(&mut self, Proposal { what, commit }: Proposal) {
        let shared = Arc::clone(&self.shared);
        self.committing = Some(Box::pin(async move {
            let patience = shared.settings.ttl / 3;
            let answer = tokio::time::timeout(patience, shared.store.commit(&commit)).await;
            (what, answer.unwrap_or_else(|_| Err(no_answer(&shared, "commit"))))
        }));
    }

    fn is_ready(&self) -> bool {
        let Some(shutdown) = self.shared.shutdown.upgrade() else {
            // The shutdown was dropped without having run: there is no phase to leave in.
            self.shared.close.cancel();
            return false;
        };
        // Until this node is a member, the cluster itself makes the process `Starting`, which hides a
        // cordon.
        let may_serve = matches!(shutdown.readiness(), Readiness::Starting | Readiness::Ready);
        may_serve && !shutdown.is_cordoned()
    }

    /// Publishes the progress of this node to the tasks of the phases and to the shutdown.
    fn publish(&mut self, node: &Node) {
        let shared = &self.shared;
        shared.progress.send_if_modified(|before| {
            let mut after = Progress::of(node, before);
            if after.waiting_for.as_deref() == Some(waiting::STORE) {
                after.waiting_for = Some(shared.troubles.explained(waiting::STORE));
            }
            let incompatible = node.member.incompatible().cloned().map(Failure::Incompatible);
            after.failure = after.failure.or(incompatible);
            let changes = *before != after;
            *before = after;
            changes
        });
        let now = now();
        for moved in self.handoffs.see(now, node.me().as_ref(), node.view()) {
            shared.counters.moved(moved, now);
        }
        if self.stage != node.stage() {
            let (before, after) = (self.stage, node.stage());
            self.stage = after;
            self.report(before, after, node.member.loss());
        }
        let is_running = self.begun.is_cancelled();
        if !is_running {
            self.report_wait();
        }
        if node.is_asked_to_leave() && node.member.goal() == Goal::Stay && !is_running {
            self.begins.get_or_insert(Reason::ClusterLeaving);
        }
    }

    /// Logs every 5 s the condition that a joining node waits for. During a shutdown, the shutdown
    /// logs it.
    fn report_wait(&mut self) {
        let what = self.shared.progress.borrow().waiting_for.clone();
        let Some(what) = what else {
            self.waits = None;
            return;
        };
        let since = match &mut self.waits {
            Some((before, since)) if *before == what => since,
            waits => return *waits = Some((what, now())),
        };
        if now() - *since >= LOG_WAIT {
            *since = now();
            let (cluster, node) = (Arc::clone(&self.shared.cluster), self.shared.id.clone());
            self.shared.log(move || {
                tracing::info!(%cluster, %node, waiting_for = what, "still waiting");
            });
        }
    }

    fn report(&mut self, before: Stage, after: Stage, loss: Option<Loss>) {
        let (cluster, node) = (Arc::clone(&self.shared.cluster), self.shared.id.clone());
        match loss {
            None => self.shared.log(move || {
                tracing::info!(%cluster, %node, from = %before, to = %after, "cluster state");
            }),
            Some(loss) => {
                self.shared.log(move || {
                    tracing::error!(%cluster, %node, %loss, "node lost its place in the cluster");
                });
                self.standing.lose();
                if self.begun.is_cancelled() && (Stage::Up..=Stage::Exiting).contains(&before) {
                    self.report_loss(loss);
                }
                let shutdown = self.shared.shutdown.upgrade();
                if shutdown.is_some_and(|shutdown| shutdown.runs_when_down()) {
                    self.begins.get_or_insert(Reason::ClusterDowning);
                }
            }
        }
    }

    /// Adds a loss to the report of the shutdown that runs: the tasks of its phases cannot report
    /// it, because they find nothing left to do.
    fn report_loss(&self, loss: Loss) {
        let lost = format!("lost its place while the shutdown ran: {loss}");
        let singletons = self.shared.progress.borrow().singletons.join(", ");
        self.shared.troubles.find(match singletons.as_str() {
            "" => lost,
            names => format!("{lost}; not handed over: {names}"),
        });
    }

    /// Reports whether this node is a member, as a condition of the readiness. Called outside the
    /// machine's lock.
    fn report_readiness(&mut self) {
        if self.reported == self.stage {
            return;
        }
        self.reported = self.stage;
        match self.stage {
            Stage::Up => self.shared.check.mark_ready(),
            Stage::Down => {
                let loss = self.shared.progress.borrow().loss;
                let loss = loss.map_or_else(String::new, |loss| format!(": {loss}"));
                self.shared.check.mark_failed(format!("lost its place{loss}"));
            }
            // The shutdown makes the process unready while it leaves.
            Stage::Outside | Stage::Joining | Stage::Leaving | Stage::Exiting | Stage::Removed => {}
        }
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

    /// A record of a newer build: the view cannot be trusted, so the table is loaded again, in case
    /// the record changes.
    fn cannot_read(&mut self, node: &mut Node, error: &crate::view::UnreadableRecord) {
        warn_of(&self.shared, error, NOT_READ);
        self.changes = None;
        self.retry_load_at = Some(now() + self.shared.settings.ttl / 3);
        node.load_failed();
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
        let closed = self.shared.store.close(&self.session);
        match tokio::time::timeout(self.shared.settings.ttl / 3, closed).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => warn_of(&self.shared, &error, "session not closed; it expires"),
            Err(_) => {
                let error = no_answer(&self.shared, "close a session");
                warn_of(&self.shared, &error, "session not closed; it expires");
            }
        }
    }
}

async fn ready<T>(pending: &mut Pending<T>) -> T {
    match pending {
        Some(pending) => pending.await,
        None => std::future::pending().await,
    }
}

async fn next(changes: &mut Option<Box<dyn Changes>>) -> Result<Update, StoreError> {
    match changes {
        Some(changes) => changes.next().await,
        None => std::future::pending().await,
    }
}

async fn sleep(wake: Wake) {
    match wake.get() {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

fn no_answer(shared: &Shared, verb: &'static str) -> StoreError {
    StoreError::unavailable(shared.store.name(), verb, "no answer in time")
}

fn warn_of(shared: &Shared, error: &(dyn std::error::Error + 'static), event: &'static str) {
    let (cluster, error) = (Arc::clone(&shared.cluster), error_text(error));
    if shared.troubles.failed(event, &error, now()) {
        shared.log(move || tracing::warn!(%cluster, error, "{event}"));
    }
}
