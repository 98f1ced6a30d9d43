//! Streams of samples and waiting requests: everything is bounded, and a slow reader gets what is newest.

use crate::agent_common::{Served, ask, refusal, setting, until};
use headroom_wire::client::Samples;
use headroom_wire::{Refusal, Server};
use std::time::Duration;

const FAST: Duration = Duration::from_millis(10);

async fn number(samples: &mut Samples) -> u64 {
    samples.next().await.unwrap().expect("the stream goes on").number
}

#[tokio::test]
async fn a_slow_reader_gets_the_newest_sample_and_sees_how_many_it_missed() {
    let mut served = Served::start(|_| {});
    // Samples so long that a few fill what may be under way.
    served.fake.set(|inside| inside.zones = 100);
    let client = served.connect().await;
    let mut samples = client.observe(FAST).await.unwrap();
    let mut last = number(&mut samples).await;
    let reads = served.fake.inside.lock().unwrap().reads;
    let fake = served.fake.clone();
    // Counted by the machine's own readings, not by time: at least so many periods pass unread.
    until("a hundred periods", || {
        fake.inside.lock().unwrap().reads >= reads + 100
    })
    .await;
    let mut stale = 0;
    let (mut gap, mut order) = (0, true);
    for _ in 0..30 {
        let next = number(&mut samples).await;
        order &= next > last;
        match next - last {
            1 if gap == 0 => stale += 1,
            missed => gap = gap.max(missed),
        }
        last = next;
    }
    assert!(order, "numbers only grow");
    assert!(
        gap > 50,
        "{stale} old samples were read, and the largest gap was {gap}"
    );
    assert!(stale < 25, "{stale} old samples were under way");
    served.stop().await.unwrap();
}

#[tokio::test]
async fn each_stream_has_its_own_period_and_numbers() {
    let mut served = Served::start(|_| {});
    let client = served.connect().await;
    let mut fast = client.observe(FAST).await.unwrap();
    let mut slow = client.observe(FAST * 10).await.unwrap();
    let slow_one = slow.next().await.unwrap().unwrap();
    let mut seen = Duration::ZERO;
    let mut fast_ones = 0;
    while seen < slow_one.uptime {
        let sample = fast.next().await.unwrap().unwrap();
        seen = sample.uptime;
        fast_ones += 1;
    }
    assert_eq!(slow_one.number, 1);
    assert!(
        slow_one.period >= FAST * 9 && fast_ones >= 2,
        "{fast_ones} in {:?}",
        slow_one.period
    );
    served.stop().await.unwrap();
}

#[tokio::test]
async fn readings_are_shared_between_streams_that_are_due_together() {
    let mut served = Served::start(|_| {});
    let client = served.connect().await;
    let mut streams = Vec::new();
    for _ in 0..4 {
        streams.push(client.observe(Duration::from_millis(200)).await.unwrap());
    }
    let before = served.fake.inside.lock().unwrap().reads;
    let mut periods = 0;
    for _ in 0..5 {
        for samples in &mut streams {
            number(samples).await;
        }
        periods += 1;
    }
    let reads = served.fake.inside.lock().unwrap().reads - before;
    assert!(
        reads <= periods * 2,
        "{reads} readings for {periods} periods of 4 streams"
    );
    served.stop().await.unwrap();
}

#[tokio::test]
async fn streams_are_limited_by_connection_and_altogether_and_freed_by_leaving() {
    let mut served = Served::start(|config| {
        config.observe.streams = 3;
        config.observe.streams_per_connection = 2;
    });
    let (first, second) = (served.connect().await, served.connect().await);
    let mut held = vec![
        first.observe(FAST).await.unwrap(),
        first.observe(FAST).await.unwrap(),
    ];
    let refused = refusal(first.observe(FAST).await);
    assert_eq!(
        refused,
        Refusal::Busy {
            server: Server::Agent,
            what: "streams of samples over one connection".into(),
            limit: 2
        }
    );
    held.push(second.observe(FAST).await.unwrap());
    let refused = refusal(second.observe(FAST).await);
    assert_eq!(
        refused.to_string(),
        "the agent serves 3 streams of samples and no more: close one, or try again later"
    );
    // A controller that disconnects frees its places.
    held.truncate(0);
    drop(first);
    let mut freed = None;
    for _ in 0..500 {
        match second.observe(FAST).await {
            Ok(samples) => {
                freed = Some(samples);
                break;
            }
            Err(_) => tokio::time::sleep(FAST).await,
        }
    }
    number(&mut freed.expect("a place became free")).await;
    served.stop().await.unwrap();
}

#[tokio::test]
async fn requests_beyond_the_queue_are_refused_and_those_in_it_are_answered() {
    let mut served = Served::start(|config| config.waiting = 2);
    let client = served.connect().await;
    served.fake.set(|inside| inside.held_up = true);
    let tasks: Vec<_> = (1..=12)
        .map(|sequence| {
            let client = client.clone();
            tokio::spawn(async move {
                client
                    .apply(ask(1, sequence, Duration::from_secs(60), setting(1.0, 50.0)))
                    .await
            })
        })
        .collect();
    // One is with the machine, two wait, the others are refused at once.
    until("refusals", || {
        tasks.iter().filter(|task| task.is_finished()).count() >= 9
    })
    .await;
    served.fake.set(|inside| inside.held_up = false);
    let (mut done, mut busy) = (0, 0);
    for task in tasks {
        match task.await.unwrap() {
            Ok(_) => done += 1,
            Err(error) => {
                let refused = refusal::<()>(Err(error));
                assert!(
                    matches!(refused, Refusal::Busy { .. } | Refusal::Stale { .. }),
                    "{refused}"
                );
                busy += u32::from(matches!(refused, Refusal::Busy { .. }));
            }
        }
    }
    assert!(busy >= 9 && done >= 1, "{busy} refused, {done} done");
    served.stop().await.unwrap();
}

#[tokio::test]
async fn a_machine_that_is_held_up_still_lets_the_lease_of_a_dead_controller_end() {
    let mut served = Served::start(|_| {});
    let client = served.connect().await;
    let lease = Duration::from_millis(200);
    client.apply(ask(1, 1, lease, setting(1.0, 50.0))).await.unwrap();
    served.fake.set(|inside| inside.held_up = true);
    let waiting = {
        let client = client.clone();
        tokio::spawn(async move { client.apply(ask(1, 2, lease, setting(2.0, 60.0))).await })
    };
    // The write lasts longer than the lease that it is to renew.
    tokio::time::sleep(lease * 2).await;
    served.fake.set(|inside| inside.held_up = false);
    let applied = waiting.await.unwrap().unwrap();
    assert_eq!(
        applied.lease.remaining,
        Duration::ZERO,
        "the lease counts from the request, not from the answer"
    );
    let fake = served.fake.clone();
    until("putting back", || fake.writes().last() == Some(&None)).await;
    served.stop().await.unwrap();
}

#[tokio::test]
async fn a_machine_that_renews_something_is_read_without_anybody_who_asks() {
    let served = Served::start(|_| {});
    let reads = |served: &Served| served.fake.inside.lock().unwrap().reads;
    // What the machine has to renew begins with what is commanded of it.
    served.fake.set(|inside| inside.read_within = Some(FAST));
    let client = served.connect().await;
    let minute = Duration::from_secs(60);
    client.apply(ask(1, 1, minute, setting(2.0, 60.0))).await.unwrap();
    let before = reads(&served);
    until("it is read again and again", || reads(&served) >= before + 10).await;
}
