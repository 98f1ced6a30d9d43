use super::*;
use proptest::prelude::*;

fn meter() -> StepMeter {
    StepMeter::new(&QueueTuning::default())
}

fn listener(arrivals: u64, accepts: u64, drops: u64, length: u32) -> Listener {
    Listener {
        identity: 7,
        limit: Some(128),
        length: Some(length),
        shortest: Some(length),
        lengths_seen: Some(arrivals * 4),
        arrivals: Some(arrivals),
        accepts: Some(accepts),
        drops: Some(drops),
        unasked: None,
        answered: None,
        connections: None,
        loops_busy: None,
    }
}

fn seen(length_s: f64, listener: Listener) -> QueueObservation {
    QueueObservation {
        length: Seconds::new(length_s),
        sample: ListenerSample::Listening(listener),
    }
}

/// The step between two readings a second apart.
fn between(before: Listener, now: Listener) -> Result<Step, Unusable> {
    let mut meter = meter();
    assert_eq!(meter.take(&seen(1.0, before)), Err(Unusable::First));
    meter.take(&seen(1.0, now))
}

#[test]
fn a_step_is_the_difference_of_two_readings() {
    let step = between(listener(1_000, 990, 5, 5), listener(1_600, 1_580, 11, 9)).unwrap();
    assert_eq!(
        step,
        Step {
            length: Seconds::new(1.0),
            limit: 128.0,
            queue_mean: Some(4.0),
            arrivals: 600.0,
            accepts: 590.0,
            drops: 6.0,
            unasked: None,
            busy: None,
        }
    );
    assert_eq!(step.arrival_rate(), PerSecond::new(600.0));
    assert_eq!(step.service_rate(), PerSecond::new(590.0));
    assert_eq!(step.drop_ratio(), 0.01);
}

#[test]
fn a_counter_that_was_started_anew_is_told_from_one_that_wrapped() {
    let error = between(listener(50_000, 50_000, 40, 0), listener(300, 300, 0, 0)).unwrap_err();
    assert_eq!(error.rule(), "jumped");
    assert!(error.to_string().contains("from 50000 to 300"), "{error}");
    // Only the drops: 40 to 0 is no wrap within a second.
    let error = between(listener(50_000, 50_000, 40, 0), listener(50_300, 50_300, 0, 0)).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("the count of drops went from 40 to 0"),
        "{error}"
    );
}

#[test]
fn a_jump_that_could_be_is_found_by_the_balance() {
    let error = between(listener(1_000, 1_000, 0, 0), listener(21_000, 1_600, 0, 0)).unwrap_err();
    assert_eq!(error.rule(), "inconsistent");
    assert!(error.to_string().contains("does not count this queue"), "{error}");
}

#[test]
fn without_lengths_the_balance_allows_what_a_queue_can_hold() {
    let without = |arrivals, accepts| Listener {
        length: None,
        ..listener(arrivals, accepts, 0, 0)
    };
    assert!(between(without(0, 0), without(500, 400)).is_ok());
    assert!(between(without(0, 0), without(500, 300)).is_err());
}

#[test]
fn what_is_not_counted_is_what_the_others_leave() {
    let uncounted = |mut one: Listener| {
        one.accepts = None;
        one.lengths_seen = None;
        one
    };
    let step = between(
        uncounted(listener(0, 0, 0, 10)),
        uncounted(listener(600, 0, 20, 30)),
    )
    .unwrap();
    assert_eq!((step.accepts, step.queue_mean), (560.0, Some(20.0)));
    let uncounted = |mut one: Listener| {
        one.arrivals = None;
        one
    };
    let step = between(
        uncounted(listener(0, 0, 0, 10)),
        uncounted(listener(0, 560, 20, 30)),
    )
    .unwrap();
    assert_eq!((step.arrivals, step.queue_mean), (600.0, Some(20.0)));
}

#[test]
fn what_cannot_be_derived_is_named() {
    let missing = |change: fn(&mut Listener)| {
        let [mut before, mut now] = [listener(0, 0, 0, 0), listener(600, 600, 0, 0)];
        change(&mut before);
        change(&mut now);
        between(before, now).unwrap_err().to_string()
    };
    assert!(missing(|one| one.drops = None).starts_with("the number of drops"));
    let error = missing(|one| (one.arrivals, one.length) = (None, None));
    assert!(error.starts_with("the number of arrivals"), "{error}");
    let error = missing(|one| (one.accepts, one.length) = (None, None));
    assert!(error.starts_with("the number of accepts"), "{error}");
    let error = missing(|one| (one.lengths_seen, one.length) = (None, None));
    assert!(error.starts_with("the queue length"), "{error}");
    assert!(missing(|one| one.limit = None).contains("set queue_limit"));
    let error = missing(|one| one.length = Some(200));
    assert!(
        error.starts_with("a queue of 200.0 with a limit of 128"),
        "{error}"
    );
}

#[test]
fn a_sample_that_comes_too_early_is_joined_with_the_next() {
    let mut meter = meter();
    meter.take(&seen(1.0, listener(0, 0, 0, 0))).unwrap_err();
    let early = meter.take(&seen(0.2, listener(100, 100, 0, 0))).unwrap_err();
    assert_eq!(early.rule(), "short-step");
    let step = meter.take(&seen(0.8, listener(600, 600, 0, 0))).unwrap();
    assert_eq!((step.length, step.arrivals), (Seconds::new(1.0), 600.0));
}

#[test]
fn the_step_after_one_that_was_not_read_covers_both() {
    let mut meter = meter();
    let unread = QueueObservation {
        length: Seconds::new(1.0),
        sample: ListenerSample::Unread,
    };
    meter.take(&seen(1.0, listener(0, 0, 0, 0))).unwrap_err();
    assert_eq!(meter.take(&unread), Err(Unusable::Unread));
    let step = meter.take(&seen(1.0, listener(1_200, 1_200, 0, 0))).unwrap();
    assert_eq!(step.arrival_rate(), PerSecond::new(600.0));
    // Until it is too long ago.
    for _ in 0..10 {
        meter.take(&unread).unwrap_err();
    }
    let gap = meter.take(&seen(1.0, listener(9_000, 9_000, 0, 0))).unwrap_err();
    assert_eq!(gap.rule(), "gap");
    assert!(meter.take(&seen(1.0, listener(9_600, 9_600, 0, 0))).is_ok());
}

#[test]
fn a_listener_that_went_away_is_compared_with_nothing() {
    let mut meter = meter();
    meter.take(&seen(1.0, listener(0, 0, 0, 0))).unwrap_err();
    let nobody = QueueObservation {
        length: Seconds::new(1.0),
        sample: ListenerSample::Nobody,
    };
    assert_eq!(meter.take(&nobody), Err(Unusable::Nobody));
    assert_eq!(
        meter.take(&seen(1.0, listener(600, 600, 0, 0))),
        Err(Unusable::First)
    );
    let another = Listener {
        identity: 8,
        ..listener(1_200, 1_200, 0, 0)
    };
    assert_eq!(meter.take(&seen(1.0, another)), Err(Unusable::Another));
}

#[test]
fn a_length_that_is_none_starts_the_comparison_anew() {
    for length_s in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let mut meter = meter();
        meter.take(&seen(1.0, listener(0, 0, 0, 0))).unwrap_err();
        let error = meter.take(&seen(length_s, listener(600, 600, 0, 0))).unwrap_err();
        assert_eq!(error.rule(), "bad-length");
        assert_eq!(
            meter.take(&seen(1.0, listener(1_200, 1_200, 0, 0))),
            Err(Unusable::First)
        );
    }
}

prop_compose! {
    fn any_counter()(value: u64, small: bool) -> u64 {
        if small { value % 5_000 } else { value }
    }
}

prop_compose! {
    fn any_listener()(
        identity in 0..2u64,
        limit in proptest::option::of(0..200u32),
        length in proptest::option::of(0..250u32),
        lengths_seen in proptest::option::of(any_counter()),
        arrivals in proptest::option::of(any_counter()),
        accepts in proptest::option::of(any_counter()),
        drops in proptest::option::of(any_counter()),
    ) -> Listener {
        Listener { identity, limit, length, shortest: length, lengths_seen, arrivals, accepts, drops, unasked: None, answered: None, connections: None, loops_busy: None }
    }
}

proptest! {
    /// Whatever is read, what comes out could have happened.
    #[test]
    fn no_step_is_impossible(
        readings in proptest::collection::vec((any_listener(), -0.5..12.0f64, 0..8u8), 1..30),
    ) {
        let mut meter = meter();
        for (listener, length_s, sample) in readings {
            let sample = match sample {
                0 => ListenerSample::Nobody,
                1 => ListenerSample::Unread,
                _ => ListenerSample::Listening(listener),
            };
            let Ok(step) = meter.take(&QueueObservation { length: Seconds::new(length_s), sample }) else { continue };
            prop_assert!(step.check().is_ok());
            // Each count is plausible, and what is derived is a sum of two and the queue.
            prop_assert!(step.arrival_rate().get() <= 2.001e6 && step.service_rate().get() <= 1e6);
            prop_assert!(step.drop_ratio() <= 1.0);
        }
    }

    /// Where counters start has nothing to do with what they count.
    #[test]
    fn a_wrap_changes_nothing(
        start: u64, drops_start: u64, accepts in 0..2_000u64, drops in 0..200u64, growth in 0..100u32,
    ) {
        let arrivals = accepts + drops + u64::from(growth);
        let at = |from: u64, drops_from: u64, share: u64| Listener {
            length: Some(growth * share as u32),
            shortest: Some(growth * share as u32),
            lengths_seen: Some(from.wrapping_add(arrivals * 3 * share)),
            arrivals: Some(from.wrapping_add(arrivals * share)),
            accepts: Some(from.wrapping_add(accepts * share)),
            drops: Some(drops_from.wrapping_add(drops * share)),
            ..listener(0, 0, 0, 0)
        };
        prop_assert_eq!(
            between(at(start, drops_start, 0), at(start, drops_start, 1)),
            between(at(0, 0, 0), at(0, 0, 1))
        );
    }
}
