use super::*;
use proptest::prelude::*;

const INTERVAL: Duration = Duration::from_millis(500);

/// A backend with so many workers that take so long, and a listen queue of so many; a noise on each answer.
struct Workers {
    workers: f64,
    response_s: f64,
    listens: f64,
    /// Of the response time, the standard deviation.
    varies: f64,
}

impl Workers {
    const fn new(workers: f64, response_s: f64, listens: f64) -> Self {
        Self {
            workers,
            response_s,
            listens,
            varies: 0.0,
        }
    }

    /// What is seen of an interval with so many at a time.
    fn seen(&self, window: f64, answers: u32) -> Seen {
        let mean_s = self.response_s * (window / self.workers).max(1.0);
        Seen {
            answers,
            sum_s: f64::from(answers) * mean_s,
            squares_s2: f64::from(answers) * mean_s * mean_s * (1.0 + self.varies * self.varies),
            overrun: (window > self.workers + self.listens).then_some(window as usize),
        }
    }
}

/// Windows, by interval, and the listen queue's overruns.
fn followed(window: &mut Window, backend: &Workers, intervals: u32) -> (Vec<f64>, usize) {
    let mut sizes = Vec::new();
    let mut overruns = 0;
    for _ in 0..intervals {
        let now = window.chosen + INTERVAL;
        let seen = backend.seen(window.size() as f64, 100);
        overruns += usize::from(seen.overrun.is_some());
        window.limits(window.size());
        window.follow(seen, INTERVAL, now);
        sizes.push(window.size);
    }
    (sizes, overruns)
}

fn window() -> Window {
    Window::new(1, Instant::now())
}

#[test]
fn a_service_that_only_takes_its_time_is_asked_for_a_batch_at_once() {
    for varies in [0.0, 2.0] {
        let wide = Workers {
            varies,
            ..Workers::new(1e9, 0.1, 0.0)
        };
        let (sizes, _) = followed(&mut window(), &wide, 120);
        assert!(sizes[119] > 200.0, "{varies}: {}", sizes[119]);
    }
}

#[test]
fn as_many_are_asked_as_workers_are_there_and_a_short_listen_queue_bears_it() {
    for workers in [1.0, 4.0, 32.0, 64.0] {
        let backend = Workers::new(workers, 0.1, 5.0);
        let (sizes, overruns) = followed(&mut window(), &backend, 1000);
        assert_eq!(overruns, 0, "{workers}");
        let late = &sizes[200..];
        let range = workers..=workers + 5.0;
        assert!(
            late.iter().all(|size| range.contains(&size.floor())),
            "{workers}: {:?}",
            &late[..40]
        );
    }
}

#[test]
fn a_listen_queue_that_no_response_time_shows_runs_over_seldom() {
    // Answers vary so much that no queue of five is seen among them.
    let backend = Workers {
        varies: 3.0,
        ..Workers::new(32.0, 0.1, 5.0)
    };
    let mut window = window();
    // An hour of intervals.
    let (sizes, overruns) = followed(&mut window, &backend, 7200);
    assert!((1..=12).contains(&overruns), "{overruns}");
    assert!(sizes[200..].iter().all(|size| *size >= 20.0));
    // With more workers it is let again, though not at once.
    let more = Workers {
        varies: 3.0,
        ..Workers::new(320.0, 0.1, 5.0)
    };
    let (sizes, overruns) = followed(&mut window, &more, 7200);
    assert!(
        sizes[20] < 40.0 && sizes[7199] > 150.0,
        "{} {}",
        sizes[20],
        sizes[7199]
    );
    assert!(overruns <= 12, "{overruns}");
}

#[test]
fn a_service_that_becomes_slower_for_good_is_asked_in_parallel_again() {
    let mut window = window();
    followed(&mut window, &Workers::new(1e9, 0.01, 0.0), 60);
    let (sizes, _) = followed(&mut window, &Workers::new(1e9, 0.1, 0.0), 120);
    // At first it is taken for a queue.
    assert!(sizes[2] < 20.0, "{:?}", &sizes[..3]);
    assert!(sizes[119] > 100.0, "{}", sizes[119]);
}

#[test]
fn a_queue_of_ones_own_is_not_taken_for_the_service() {
    // The first that is seen is a queue already, and it is not believed for long.
    let backend = Workers::new(16.0, 0.1, 1e9);
    let mut window = window();
    window.size = 64.0;
    let (sizes, _) = followed(&mut window, &backend, 1000);
    assert!(
        sizes[100..].iter().all(|size| (16.0..=20.0).contains(size)),
        "{sizes:?}"
    );
}

#[test]
fn what_a_window_does_is_judged_a_response_time_after_it() {
    let mut window = window();
    let slow = Workers::new(1e9, 5.0, 0.0);
    let begun = window.chosen;
    let mut changes = 0;
    for interval in 1..=100 {
        let before = window.size;
        window.limits(window.size());
        window.follow(slow.seen(before, 10), INTERVAL, begun + interval * INTERVAL);
        changes += usize::from(window.size != before);
    }
    // Fifty seconds are ten response times.
    assert_eq!(changes, 10);
}

#[test]
fn as_many_as_there_are_anyway_may_be_on_their_way() {
    let mut window = window();
    // By their turns 40 were on their way, and no queue showed.
    window.limits(40);
    let now = window.chosen + INTERVAL;
    window.follow(Workers::new(1e9, 0.1, 0.0).seen(40.0, 100), INTERVAL, now);
    assert!((41..50).contains(&window.size()), "{}", window.size());
}

#[test]
fn a_window_that_was_not_used_up_stays() {
    let mut window = window();
    let now = window.chosen;
    for interval in 1..100 {
        let seen = Workers::new(1e9, 0.1, 0.0).seen(4.0, 100);
        window.follow(seen, INTERVAL, now + interval * INTERVAL);
    }
    assert_eq!(window.size(), FEW);
}

proptest! {
    #[test]
    fn whatever_is_seen_a_few_may_go(
        seen in prop::collection::vec((0_u32..200, 0.0..1e6_f64, 0.0..1e6_f64, prop::option::of(0_usize..100_000), any::<bool>()), 1..300),
        cores in 1_usize..65,
    ) {
        let mut window = Window::new(cores, Instant::now());
        for (answers, sum_s, more, overrun, is_limited) in seen {
            let sum_s = if answers == 0 { 0.0 } else { sum_s };
            // The sum of squares is never below the square of the sum by the count.
            let squares_s2 = if answers == 0 { 0.0 } else { sum_s * sum_s / f64::from(answers) + more };
            if is_limited {
                window.limits(window.size());
            }
            let now = window.chosen + INTERVAL;
            window.follow(Seen { answers, sum_s, squares_s2, overrun }, INTERVAL, now);
            prop_assert!(window.size() >= 1 && window.size.is_finite());
            if let Some(ceiling) = window.ceiling {
                prop_assert!(window.size <= ceiling.size);
            }
        }
    }
}
