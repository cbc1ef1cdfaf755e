//! Dead letters: messages that were refused, or accepted and never processed.

use std::time::Duration;

use adieu_actors::ractor::{Letter, actor};
use adieu_actors::{ActorSystem, DeadLetter, NodeEnding, NodePath, Undelivered};
use adieu_core::Deadline;
use ractor::{Actor, ActorProcessingErr, ActorRef};

use crate::frameworks::{Framework, Job, Log, Ractor, Script};

const LONG: Duration = Duration::from_secs(60);

async fn s169_a_refused_message_is_a_dead_letter<F: Framework>() {
    let (system, log) = (ActorSystem::new("shop"), Log::default());
    let stopped = F::spawn(&system, None, "stopped", Script::new(&log)).await.unwrap();
    let sender = F::spawn(&system, None, "sender", Script::new(&log)).await.unwrap();
    let path = NodePath::user().child("stopped").unwrap();
    assert!(system.stop(&path, LONG).await.unwrap().is_clean());
    assert!(system.stop(&path, LONG).await.is_none());
    let to = stopped.clone();
    let job = Job::new(move || async move {
        assert!(!F::send(&to, Job::forever()).await);
    });
    assert!(F::send(&sender, job).await);
    assert!(system.await_quiescence(Deadline::after(LONG)).await);
    assert!(!F::send(&stopped, Job::forever()).await);

    assert_eq!(system.dead_letter_count(), 2);
    let letters = system.dead_letters();
    assert_eq!(letters.len(), 2);
    assert!(letters.iter().all(|letter| letter.to == path));
    assert!(letters.iter().all(|letter| letter.because == Undelivered::Stopped));
    let from = letters[0].from.as_ref().map(NodePath::as_str);
    assert_eq!((from, letters[1].from.as_ref()), (Some("/user/sender"), None));
    assert!(letters[0].message.is_some_and(|message| message.ends_with("Job")));
    assert!(letters[0].to_string().ends_with("from /user/sender, which had stopped"));
}

/// Returns a system with an actor that has stopped, so that it refuses messages.
async fn with_a_stopped_actor<F: Framework>() -> (ActorSystem, F::Ref) {
    let (system, log) = (ActorSystem::new("shop"), Log::default());
    let stopped = F::spawn(&system, None, "stopped", Script::new(&log)).await.unwrap();
    let path = NodePath::user().child("stopped").unwrap();
    system.stop(&path, LONG).await.unwrap();
    (system, stopped)
}

async fn s350_all_dead_letters_are_counted_and_the_latest_thousand_are_kept<F: Framework>() {
    let (system, stopped) = with_a_stopped_actor::<F>().await;
    for _ in 0..1500 {
        assert!(!F::send(&stopped, Job::forever()).await);
    }
    assert_eq!(system.dead_letter_count(), 1500);
    assert_eq!(system.dead_letters().len(), 1000);
}

async fn s351_a_subscription_receives_dead_letters_and_delays_no_sender<F: Framework>() {
    let (system, stopped) = with_a_stopped_actor::<F>().await;
    let mut subscription = system.subscribe_to_dead_letters();
    // More than are queued for a subscriber that does not read.
    for _ in 0..1500 {
        assert!(!F::send(&stopped, Job::forever()).await);
    }
    drop(stopped);
    assert_eq!(system.dead_letter_count(), 1500);
    let last = system.dead_letters().pop();
    drop(system);
    let mut received = Vec::new();
    while let Some(letter) = subscription.next().await {
        received.push(letter);
    }
    assert_eq!((received.len(), received.pop()), (1024, last));
}

on_kameo_and_ractor![
    s169_a_refused_message_is_a_dead_letter,
    s350_all_dead_letters_are_counted_and_the_latest_thousand_are_kept,
    s351_a_subscription_receives_dead_letters_and_delays_no_sender,
];

#[tokio::test(start_paused = true)]
async fn s350_unprocessed_messages_of_a_killed_actor_are_counted() {
    let (system, log) = (ActorSystem::new("shop"), Log::default());
    let stuck = Ractor::spawn(&system, None, "stuck", Script::new(&log)).await.unwrap();
    assert!(Ractor::send(&stuck, Job::forever()).await);
    for _ in 0..1500 {
        assert!(Ractor::send(&stuck, Job::forever()).await);
    }
    let report = system.shutdown(Duration::ZERO).await.unwrap();
    assert_eq!(report.dead_letters(), 1501, "{report}");
    assert_eq!(system.dead_letter_count(), report.dead_letters());
    assert_eq!(system.dead_letters().len(), 1000);
}

/// Processes no message to the end. A letter stays unopened.
struct Stuck;

impl Actor for Stuck {
    type Msg = Letter<u32>;
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<Self::Msg>, (): ()) -> Result<(), ActorProcessingErr> {
        Ok(())
    }

    async fn handle(
        &self,
        _: ActorRef<Self::Msg>,
        letter: Self::Msg,
        (): &mut (),
    ) -> Result<(), ActorProcessingErr> {
        std::future::pending::<()>().await;
        drop(letter);
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn s342_an_unopened_letter_is_counted_once() {
    let system = ActorSystem::new("shop");
    let stuck = system.spawn("stuck", actor(Stuck, ())).await.unwrap();
    for number in 0..3 {
        stuck.post(number).unwrap();
    }
    let report = system.shutdown(Duration::from_secs(1)).await.unwrap();
    assert_eq!((report.dead_letters(), system.dead_letter_count()), (3, 3), "{report}");
}

/// Processes no message to the end. Its messages are not letters.
struct StuckWithoutLetters;

impl Actor for StuckWithoutLetters {
    type Msg = u32;
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<u32>, (): ()) -> Result<(), ActorProcessingErr> {
        Ok(())
    }

    async fn handle(
        &self,
        _: ActorRef<u32>,
        _: u32,
        (): &mut (),
    ) -> Result<(), ActorProcessingErr> {
        std::future::pending().await
    }
}

#[tokio::test(start_paused = true)]
async fn s343_an_unknown_number_of_dead_letters_is_reported_as_unknown() {
    let system = ActorSystem::new("shop");
    let stuck = system.spawn("stuck", actor(StuckWithoutLetters, ())).await.unwrap();
    for number in 0..3 {
        stuck.send(number).unwrap();
    }
    let report = system.shutdown(Duration::from_secs(1)).await.unwrap();
    let node = report.node("/user/stuck").unwrap();
    assert_eq!((node.ending(), node.dead_letters()), (&NodeEnding::Killed, None));
    assert!(
        report.to_string().contains("/user/stuck was killed, dead letters unknown"),
        "{report}"
    );
}

#[tokio::test]
async fn a_dead_letter_of_a_node_of_the_application_is_counted() {
    let system = ActorSystem::new("shop");
    let mut subscription = system.subscribe_to_dead_letters();
    let path = NodePath::user().child("mine").unwrap();
    let letter = DeadLetter::new(path, Undelivered::Stopped);
    system.add_dead_letter(&letter);
    assert_eq!(system.dead_letter_count(), 1);
    assert_eq!(system.dead_letters(), std::slice::from_ref(&letter));
    assert_eq!(subscription.next().await, Some(letter));
}
