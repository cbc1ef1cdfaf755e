//! The entities of one node: mailboxes, failures, idle ends, limits.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use adieu_cluster::{AskError, Command, Entity, NotRun, Unknown};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use crate::notes::{Note, Stage, beside};
use crate::stage::{SECOND, config, node_with, until};

#[tokio::test(start_paused = true)]
async fn s1165_a_mailbox_that_is_full_refuses() {
    let stage = Stage::new();
    let one = stage.node_with("one", |it| it, |it| it.mailbox(3)).await;
    let region = one.region.clone();
    let busy = beside(async move { region.at("n").ask(Note::Take(SECOND)).await });
    tokio::time::sleep(SECOND / 2).await;
    for number in 0..3 {
        one.region.at("n").tell(Note::Add(number)).await.unwrap();
    }
    let full = one.region.at("n").tell(Note::Add(3)).await.unwrap_err();
    assert_eq!(full, AskError::NotRun(NotRun::Busy));
    let full = one.region.at("n").ask(Note::Add(4)).await.unwrap_err();
    assert_eq!(full, AskError::NotRun(NotRun::Busy));
    busy.await.unwrap().unwrap();
    until("the rest is handled", || stage.handled.numbers("n") == [0, 1, 2]).await;
}

#[tokio::test(start_paused = true)]
async fn s1166_an_entity_that_fails_or_panics_ends_its_ask_and_the_next_instance_goes_on() {
    let stage = Stage::new();
    let one = stage.node("one").await;
    for fails in [Note::Fail, Note::Panic, Note::Forget] {
        let region = one.region.clone();
        let behind = beside(async move {
            tokio::time::sleep(SECOND / 10).await;
            region.at("n").ask(Note::Add(1)).await
        });
        let begins = one.region.at("n").ask(Note::Take(SECOND));
        let fails = one.region.at("n").ask(fails);
        let (_, failed) = tokio::join!(begins, fails);
        assert!(matches!(failed, Err(AskError::Unknown(_))), "{failed:?}");
        behind.await.unwrap().unwrap();
    }
    assert_eq!(stage.handled.numbers("n"), [1, 1, 1]);
    assert_eq!(stage.handled.starts.load(Ordering::Relaxed), 3);
    let forgot = one.region.at("n").ask(Note::Forget).await.unwrap_err();
    assert_eq!(forgot, AskError::Unknown(Unknown::NoReply));
}

#[tokio::test(start_paused = true)]
async fn s1167_at_its_deadline_an_ask_that_was_not_opened_did_not_run() {
    let stage = Stage::new();
    let one = stage.node("one").await;
    let two = stage.node("two").await;
    for node in [&one, &two] {
        let region = node.region.clone();
        let opened =
            async { region.at("n").ask(Note::Take(3 * SECOND)).within(SECOND).await.unwrap_err() };
        let unopened = async {
            tokio::time::sleep(SECOND / 10).await;
            region.at("n").ask(Note::Add(1)).within(SECOND).await.unwrap_err()
        };
        let (opened, unopened) = tokio::join!(opened, unopened);
        assert_eq!(opened, AskError::Unknown(Unknown::Expired));
        // Another node cannot observe that its message was not opened.
        match node.node.cluster.id().as_str() {
            "one" => assert_eq!(unopened, AskError::NotRun(NotRun::Expired)),
            _ => assert_eq!(unopened, AskError::Unknown(Unknown::Expired)),
        }
        tokio::time::sleep(5 * SECOND).await;
    }
    assert!(stage.handled.numbers("n").is_empty(), "an expired message was opened");
}

#[tokio::test(start_paused = true)]
async fn s1168_an_idle_entity_ends_and_mail_starts_the_next_one_after_it() {
    let stage = Stage::new();
    let one = stage.node_with("one", |it| it, |it| it.idle(10 * SECOND)).await;
    one.add("n", 0).await.unwrap();
    tokio::time::sleep(9 * SECOND).await;
    one.add("n", 1).await.unwrap();
    tokio::time::sleep(9 * SECOND).await;
    assert_eq!(stage.handled.alive(), 1, "it ended too early");
    tokio::time::sleep(3 * SECOND).await;
    assert_eq!(stage.handled.alive(), 0, "it did not end");
    // At every offset around the sweep: `Handled` fails if there are two instances.
    for offset in 0..200_u64 {
        one.add("n", 2 * offset + 2).await.unwrap();
        let pause = Duration::from_millis(9_900 + 7 * offset);
        tokio::time::sleep(pause).await;
        one.add("n", 2 * offset + 3).await.unwrap();
    }
    assert_eq!(stage.handled.numbers("n"), (0..402).collect::<Vec<_>>());
    stage.handled.assert_sound();
}

#[tokio::test(start_paused = true)]
async fn s1169_mail_that_arrives_while_an_entity_ends_starts_the_next_one_after_it() {
    #[derive(Serialize, Deserialize)]
    struct Ping;
    impl Command for Ping {
        type Reply = u32;
    }
    let stage = Stage::new();
    let node = node_with(&stage.store, "one", config(), |it| it);
    let log = Arc::new(Mutex::new((0_u32, Vec::new())));
    let shared = Arc::clone(&log);
    let region = node.cluster.region::<Ping>("pings").shards(1).idle(SECOND);
    let region = region
        .serve(move |mut me: Entity<Ping>| {
            let log = Arc::clone(&shared);
            async move {
                let instance = {
                    let mut log = log.lock().unwrap();
                    log.0 += 1;
                    let instance = log.0;
                    log.1.push(format!("{instance} begins"));
                    instance
                };
                while let Some(mail) = me.next().await {
                    mail.reply(instance);
                }
                // The stop hook takes its time.
                tokio::time::sleep(5 * SECOND).await;
                assert!(me.next().await.is_none(), "mail after the last mail");
                log.lock().unwrap().1.push(format!("{instance} ended"));
            }
        })
        .unwrap();
    let _node = node.joined().await;
    assert_eq!(region.at("n").ask(Ping).await.unwrap(), 1);
    tokio::time::sleep(2 * SECOND).await;
    assert_eq!(region.at("n").ask(Ping).within(20 * SECOND).await.unwrap(), 2);
    assert_eq!(log.lock().unwrap().1, ["1 begins", "1 ended", "2 begins"]);
}

#[tokio::test(start_paused = true)]
async fn s1170_at_the_limit_the_entity_that_was_idle_for_the_longest_time_ends() {
    let stage = Stage::new();
    let one = stage.node_with("one", |it| it.entities(3), |it| it).await;
    for (number, key) in ["a", "b", "c"].into_iter().enumerate() {
        one.add(key, number as u64).await.unwrap();
        tokio::time::sleep(SECOND).await;
    }
    one.add("a", 10).await.unwrap();
    one.add("d", 11).await.unwrap();
    assert_eq!(stage.handled.most.load(Ordering::Relaxed), 3);
    assert_eq!(stage.handled.alive(), 3);
    let starts = stage.handled.starts.load(Ordering::Relaxed);
    one.add("a", 12).await.unwrap();
    one.add("c", 13).await.unwrap();
    assert_eq!(stage.handled.starts.load(Ordering::Relaxed), starts, "a or c was evicted, not b");
}

#[tokio::test(start_paused = true)]
async fn s1171_entities_start_no_faster_than_the_rate() {
    let stage = Stage::new();
    let one = stage.node_with("one", |it| it.entity_starts(10), |it| it).await;
    let begun = tokio::time::Instant::now();
    let mut asks = JoinSet::new();
    for number in 0..30_u64 {
        let region = one.region.clone();
        asks.spawn(async move { region.at(format!("n-{number}")).ask(Note::Add(number)).await });
    }
    while let Some(asked) = asks.join_next().await {
        asked.unwrap().unwrap();
    }
    let took = begun.elapsed();
    // Ten at once, and then ten each second.
    assert!((2 * SECOND..2 * SECOND + SECOND / 10).contains(&took), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn s1172_an_entity_that_cannot_start_is_tried_again_with_pauses() {
    #[derive(Serialize, Deserialize)]
    struct Ping;
    impl Command for Ping {
        type Reply = u32;
    }
    let stage = Stage::new();
    let node = node_with(&stage.store, "one", config(), |it| it);
    let starts = Arc::new(Mutex::new(0_u32));
    let counts = Arc::clone(&starts);
    let region = node.cluster.region::<Ping>("pings").shards(1);
    let region = region
        .serve(move |mut me: Entity<Ping>| {
            let starts = Arc::clone(&counts);
            async move {
                let start = {
                    let mut starts = starts.lock().unwrap();
                    *starts += 1;
                    *starts
                };
                if start < 4 {
                    return Err("the database is not there yet");
                }
                while let Some(mail) = me.next().await {
                    mail.reply(start);
                }
                Ok(())
            }
        })
        .unwrap();
    let _node = node.joined().await;
    let begun = tokio::time::Instant::now();
    assert_eq!(region.at("n").ask(Ping).await.unwrap(), 4);
    // 50, 100 and 200 milliseconds.
    assert!((SECOND / 3..SECOND / 2).contains(&begun.elapsed()), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn s1173_a_shard_that_opens_can_wake_its_entities() {
    let stage = Stage::new();
    let opened = Arc::new(Mutex::new(Vec::new()));
    let note = Arc::clone(&opened);
    let one = stage
        .node_with(
            "one",
            |it| it,
            |it| {
                it.on_open(move |shard| {
                    let note = Arc::clone(&note);
                    async move { note.lock().unwrap().push(shard) }
                })
            },
        )
        .await;
    until("all are open", || opened.lock().unwrap().len() == 16).await;
    one.add("n", 1).await.unwrap();
    assert!(opened.lock().unwrap().contains(&one.region.shard_of("n")));
}

#[tokio::test(start_paused = true)]
async fn s1174_a_singleton_receives_messages_and_runs_without_them() {
    #[derive(Serialize, Deserialize)]
    struct Who;
    impl Command for Who {
        type Reply = (String, u64);
    }
    let stage = Stage::new();
    let begun = Arc::new(Mutex::new(Vec::new()));
    let declare = |name: &'static str| {
        let node = node_with(&stage.store, name, config(), |it| it.in_process(&stage.network));
        let begun = Arc::clone(&begun);
        let singleton = node.cluster.singleton_entity("sweeper", move |mut me: Entity<Who>| {
            begun.lock().unwrap().push(name);
            async move {
                while let Some(mail) = me.next().await {
                    mail.reply((name.to_owned(), me.fence().get()));
                }
            }
        });
        (node, singleton.unwrap())
    };
    let (one, from_one) = declare("one");
    let (two, from_two) = declare("two");
    let one = one.joined().await;
    until("it runs without mail", || *begun.lock().unwrap() == ["one"]).await;
    let two = two.joined().await;
    let (owner, fence) = from_two.ask(Who).await.unwrap();
    assert_eq!(owner, "one");
    assert_eq!(from_one.ask(Who).await.unwrap(), (owner, fence));
    let (report, took) = one.leave().await;
    assert!(report.is_clean() && took < SECOND, "{took:?}: {report}");
    let (owner, next) = from_two.ask(Who).await.unwrap();
    assert!(owner == "two" && next > fence);
    assert_eq!(*begun.lock().unwrap(), ["one", "two"]);
    let status = two.cluster.status();
    assert_eq!(status.singletons[0].owner.as_ref().unwrap().as_str(), "two");
}

#[tokio::test(start_paused = true)]
async fn an_entity_sees_whether_the_sender_waits_for_a_reply() {
    #[derive(Serialize, Deserialize)]
    struct Ping;
    impl Command for Ping {
        type Reply = Vec<bool>;
    }
    let stage = Stage::new();
    let node = node_with(&stage.store, "one", config(), |it| it);
    let region = node.cluster.region::<Ping>("pings").shards(1);
    let region = region
        .serve(async |mut me: Entity<Ping>| {
            let mut asked = Vec::new();
            while let Some(mail) = me.next().await {
                asked.push(mail.is_ask());
                mail.reply(asked.clone());
            }
        })
        .unwrap();
    let _node = node.joined().await;
    region.at("n").tell(Ping).await.unwrap();
    assert_eq!(region.at("n").ask(Ping).await.unwrap(), [false, true]);
}

/// Runs a loop on the only thread, and returns how often it had run when the test ran again.
async fn loops<F: Future<Output = ()> + Send + 'static>(
    mut next: impl FnMut() -> F + Send + 'static,
) -> usize {
    const MOST: usize = 100_000;
    let count = Arc::new(AtomicUsize::new(0));
    let counts = Arc::clone(&count);
    let running = beside(async move {
        while counts.fetch_add(1, Ordering::Relaxed) < MOST {
            next().await;
        }
    });
    tokio::task::yield_now().await;
    let seen = count.load(Ordering::Relaxed);
    running.abort();
    drop(running.await);
    assert!(seen > 0, "the loop has not begun");
    seen
}

#[tokio::test(start_paused = true)]
async fn s1821_a_loop_of_tells_or_refused_asks_yields_to_other_tasks() {
    let stage = Stage::new();
    let one = stage.node_with("one", |it| it, |it| it.mailbox(1)).await;
    for (what, is_ask) in [("tells", false), ("asks", true)] {
        let region = one.region.clone();
        let seen = loops(move || {
            let region = region.clone();
            async move {
                // The mailbox is full, so both end at their first poll.
                match is_ask {
                    true => drop(region.at("full").ask(Note::Take(SECOND)).await),
                    false => drop(region.at("full").tell(Note::Take(SECOND)).await),
                }
            }
        });
        let seen = seen.await;
        assert!(seen < 1_000, "{seen} {what} without a yield");
    }
}

#[tokio::test(start_paused = true)]
async fn s1821_an_entity_that_always_has_mail_yields_to_other_tasks() {
    let store = adieu_cluster::store::Memory::new();
    let node = node_with(&store, "one", config(), |it| it.in_process(&Default::default()));
    let opened = Arc::new(AtomicUsize::new(0));
    let counts = Arc::clone(&opened);
    let region = node.cluster.region::<Note>("notes").shards(1).mailbox(100_000);
    let region = region
        .serve(move |mut me: Entity<Note>| {
            let counts = Arc::clone(&counts);
            async move {
                while let Some(mail) = me.next().await {
                    counts.fetch_add(1, Ordering::Relaxed);
                    drop(mail);
                }
            }
        })
        .unwrap();
    let _node = node.joined().await;
    drop(region.at("n").ask(Note::Add(0)).await);
    opened.store(0, Ordering::Relaxed);
    let tells = (0..5_000).map(|number| region.at("n").tell(Note::Add(number)));
    // Without a yield in between, so that all of them wait.
    for tell in tells {
        tokio::task::coop::unconstrained(tell.into_future()).await.unwrap();
    }
    tokio::task::yield_now().await;
    let seen = opened.load(Ordering::Relaxed);
    assert!((1..1_000).contains(&seen), "{seen} mails without a yield");
}
