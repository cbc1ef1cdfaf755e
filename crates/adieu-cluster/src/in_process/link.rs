//! The messages of one node to another, and their answers.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use adieu_core::adapter::lock;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::Net;
use crate::time::{Instant, now, sleep_until};
use crate::transport::{Answer, Envelope, Event, OnEvent, Peer, Refusal, Reply};

/// How many messages a link carries that are not answered.
const OUTSTANDING: usize = 4_096;

/// The sending end of a link.
pub(super) struct Link {
    queue: mpsc::Sender<Queued>,
    ending: Arc<Ending>,
}

type Queued = (Envelope, OnEvent);

/// Whether the events of a link that has ended are being reported. The queue accepts nothing
/// meanwhile, because they would overtake messages that are about to return to their sender.
#[derive(Default)]
struct Ending(Mutex<bool>);

/// The task of a link.
struct Carried {
    net: Arc<Net>,
    me: Peer,
    to: Peer,
    sent: VecDeque<(Instant, u64, Envelope)>,
    answered: VecDeque<(Instant, u64, Event)>,
    /// The receiver of the events of each message, and whether the other node has read it.
    waiting: BTreeMap<u64, (OnEvent, bool)>,
    count: u64,
    queue: mpsc::Receiver<Queued>,
    ending: Arc<Ending>,
    answers: mpsc::UnboundedSender<(u64, Event)>,
}

/// Answers one message.
struct InProcessAnswer {
    number: u64,
    is_ask: bool,
    is_admitted: bool,
    to: Option<mpsc::UnboundedSender<(u64, Event)>>,
}

// === impl Link ===

impl Link {
    pub(super) fn open(
        net: Arc<Net>,
        me: Peer,
        to: Peer,
        close: CancellationToken,
    ) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (queue, sent) = mpsc::channel(OUTSTANDING);
        let ending = Arc::<Ending>::default();
        (Self { queue, ending: Arc::clone(&ending) }, carry(net, me, to, (sent, ending), close))
    }

    pub(super) fn send(&self, envelope: Envelope, on_event: OnEvent) -> Result<(), Box<Envelope>> {
        let is_ending = self.ending.lock();
        if *is_ending {
            return Err(Box::new(envelope));
        }
        self.queue.try_send((envelope, on_event)).map_err(|error| Box::new(error.into_inner().0))
    }
}

async fn carry(
    net: Arc<Net>,
    me: Peer,
    to: Peer,
    (queue, ending): (mpsc::Receiver<Queued>, Arc<Ending>),
    close: CancellationToken,
) {
    #[expect(clippy::disallowed_methods, reason = "an answer for each message that is waiting")]
    let (answers, mut answered) = mpsc::unbounded_channel();
    let mut broken = net.watch(&me, &to);
    let mut this = Carried {
        net,
        me,
        to,
        sent: VecDeque::new(),
        answered: VecDeque::new(),
        waiting: BTreeMap::new(),
        count: 0,
        queue,
        ending,
        answers,
    };
    loop {
        let due = this.advance();
        let has_room = this.waiting.len() < OUTSTANDING;
        tokio::select! {
            biased;
            () = close.cancelled() => break,
            () = broken.cancelled() => {
                this.fail("the link broke");
                broken = this.net.watch(&this.me, &this.to);
            }
            Some((number, event)) = answered.recv() => {
                this.answered.push_back((now() + this.net.delay(), number, event));
            }
            sent = this.queue.recv(), if has_room => match sent {
                Some((envelope, on_event)) => this.accept(envelope, on_event),
                None => break,
            },
            () = sleep(due) => {}
        }
    }
    // Answers that the other node has sent are not lost.
    while let Ok((number, event)) = answered.try_recv() {
        this.answered.push_back((now(), number, event));
    }
    while let Some((_, number, event)) = this.answered.pop_front() {
        this.report(number, event);
    }
    this.queue.close();
    this.fail("this node closes its links");
}

// === impl Carried ===

impl Carried {
    fn accept(&mut self, envelope: Envelope, on_event: OnEvent) {
        self.count += 1;
        self.waiting.insert(self.count, (on_event, false));
        self.sent.push_back((now() + self.net.delay(), self.count, envelope));
    }

    /// Delivers the envelopes whose delay is over, and returns when the next delay ends.
    fn advance(&mut self) -> Option<Instant> {
        let now = now();
        while self.answered.front().is_some_and(|(due, ..)| *due <= now) {
            let Some((_, number, event)) = self.answered.pop_front() else { break };
            self.report(number, event);
        }
        while self.sent.front().is_some_and(|(due, ..)| *due <= now) {
            let Some((_, number, envelope)) = self.sent.pop_front() else { break };
            match self.net.reach(&self.me, &self.to) {
                Ok(_) if !envelope.ticket.send() => {
                    self.report(number, Event::Returned("it was taken back".to_owned()));
                }
                Ok(receiver) => {
                    if let Some((_, is_read)) = self.waiting.get_mut(&number) {
                        *is_read = true;
                    }
                    let answer = InProcessAnswer {
                        number,
                        is_ask: envelope.is_ask,
                        is_admitted: false,
                        to: Some(self.answers.clone()),
                    };
                    receiver.receive(&self.me, envelope, Box::new(answer));
                }
                // All of them return: if the peer could be reached a moment later, the next ones
                // would overtake this one.
                Err(why) => self.fail(&why),
            }
        }
        let due = [self.answered.front().map(|it| it.0), self.sent.front().map(|it| it.0)];
        due.into_iter().flatten().min()
    }

    fn report(&mut self, number: u64, event: Event) {
        let Some((on_event, is_read)) = self.waiting.get_mut(&number) else { return };
        *is_read = true;
        let is_last = event != Event::Admitted;
        on_event(event);
        if is_last {
            self.waiting.remove(&number);
        }
    }

    /// Ends every message that is queued or not answered.
    fn fail(&mut self, why: &str) {
        let ending = Arc::clone(&self.ending);
        {
            let mut is_ending = ending.lock();
            *is_ending = true;
            while let Ok((envelope, on_event)) = self.queue.try_recv() {
                self.accept(envelope, on_event);
            }
        }
        self.sent.clear();
        self.answered.clear();
        for (mut on_event, is_read) in std::mem::take(&mut self.waiting).into_values() {
            on_event(match is_read {
                true => Event::Lost(why.to_owned()),
                false => Event::Returned(why.to_owned()),
            });
        }
        *ending.lock() = false;
    }
}

// === impl Ending ===

impl Ending {
    fn lock(&self) -> MutexGuard<'_, bool> {
        lock(&self.0)
    }
}

// === impl InProcessAnswer ===

impl InProcessAnswer {
    fn send(&self, event: Event) {
        if let Some(to) = &self.to {
            // A link that has ended has reported the message as lost.
            drop(to.send((self.number, event)));
        }
    }

    fn end(mut self, event: Event) {
        self.send(event);
        self.to = None;
    }
}

impl Answer for InProcessAnswer {
    fn admit(&mut self) {
        self.is_admitted = true;
        self.send(Event::Admitted);
    }

    fn refuse(self: Box<Self>, refusal: Refusal) {
        self.end(Event::Refused(refusal));
    }

    fn reply(self: Box<Self>, reply: Reply) {
        self.end(Event::Replied(reply));
    }
}

impl Drop for InProcessAnswer {
    fn drop(&mut self) {
        match (self.is_admitted, self.is_ask) {
            (false, _) => self.send(Event::Refused(Refusal::Moving { newer: None })),
            (true, true) => {
                self.send(Event::Replied(Reply::Unknown("the message was dropped".to_owned())));
            }
            (true, false) => {}
        }
    }
}

impl fmt::Debug for InProcessAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InProcessAnswer").field("number", &self.number).finish_non_exhaustive()
    }
}

async fn sleep(until: Option<Instant>) {
    match until {
        Some(until) => sleep_until(until).await,
        None => std::future::pending().await,
    }
}
