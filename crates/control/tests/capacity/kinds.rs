//! The servers of the table.

use super::model::Random;
use super::servers::{Kind, Taken};

const STEADY: &[f64] = &[];
const NO_PAUSE: (f64, f64) = (f64::INFINITY, 0.0);
/// When something changes.
const CHANGE_S: f64 = 30.0;

fn slept(_: &mut Random, _: Taken) -> (f64, f64) {
    (0.0, 0.1)
}

pub fn exponential(random: &mut Random, _: Taken) -> (f64, f64) {
    (0.0, random.exponential(0.1))
}

/// Lognormal, of a squared coefficient of variation of 4.
pub fn lognormal(random: &mut Random, _: Taken) -> (f64, f64) {
    let sigma2 = 5.0f64.ln();
    (0.0, 0.1 * (random.normal() * sigma2.sqrt() - sigma2 / 2.0).exp())
}

/// A load that it bears, of exponential service.
const BELOW: Kind = Kind {
    takes: exponential,
    seconds: 600,
    shows: false,
    ..SLEEP
};

/// A change in overload, of exponential service.
const CHANGES: Kind = Kind {
    takes: exponential,
    load: |_| 130.0,
    most: 130.0,
    changed_s: &[CHANGE_S],
    seconds: 90,
    ..SLEEP
};

pub const SLEEP: Kind = Kind {
    name: "8 workers that sleep 100 ms",
    backlog: 128,
    workers: |_| 8,
    cores: f64::INFINITY,
    takes: slept,
    pauses_s: NO_PAUSE,
    load: |_| 100.0,
    most: 100.0,
    truth: |_| 80.0,
    seconds: 60,
    changed_s: STEADY,
    shows: true,
    in_bunches: false,
    parts: (0.0, 0.0),
    holding: None,
    is_loops: false,
};

/// An event loop on one core that accepts all who wait, then serves them in turn.
const BUNCHES: Kind = Kind {
    workers: |_| 1,
    cores: 1.0,
    takes: |random, _| (random.exponential(0.005), 0.0),
    truth: |_| 200.0,
    seconds: 120,
    backlog: 511,
    in_bunches: true,
    ..SLEEP
};

/// One that accepts at once, of exponential service, overloaded.
const LOOP: Kind = Kind {
    name: "event loop, CPU 5 ms, overloaded",
    workers: |_| usize::MAX,
    cores: 1.0,
    takes: |random, _| (random.exponential(0.005), 0.0),
    load: |_| 240.0,
    most: 240.0,
    truth: |_| 200.0,
    is_loops: true,
    ..SLEEP
};

const EIGHT_TO_FOUR: fn(f64) -> usize = |at_s| if at_s < CHANGE_S { 8 } else { 4 };
const FOUR_TO_EIGHT: fn(f64) -> usize = |at_s| if at_s < CHANGE_S { 4 } else { 8 };

pub const KINDS: &[Kind] = &[
    SLEEP,
    Kind {
        name: "8 workers, 100 ms exponential",
        takes: |random, _| (0.0, random.exponential(0.1)),
        ..SLEEP
    },
    Kind {
        name: "8 workers, 100 ms lognormal, SCV 4",
        takes: |random, _| {
            let sigma2 = 5.0f64.ln();
            (0.0, 0.1 * (random.normal() * sigma2.sqrt() - sigma2 / 2.0).exp())
        },
        ..SLEEP
    },
    Kind {
        name: "8 workers, 5 or 500 ms (1 in 10)",
        takes: |random, _| (0.0, if random.uniform() < 0.1 { 0.5 } else { 0.005 }),
        truth: |_| 8.0 / 0.0545,
        load: |_| 190.0,
        most: 190.0,
        ..SLEEP
    },
    Kind {
        name: "8 workers on 8 cores, CPU 13 ms",
        cores: 8.0,
        takes: |random, _| (random.exponential(8.0 / 600.0), 0.0),
        load: |_| 720.0,
        most: 720.0,
        truth: |_| 600.0,
        ..SLEEP
    },
    Kind {
        name: "32 workers on 2 cores, CPU 10 ms",
        cores: 2.0,
        takes: |random, _| (random.exponential(0.01), 0.0),
        load: |_| 240.0,
        most: 240.0,
        truth: |_| 200.0,
        ..SLEEP
    },
    Kind {
        name: "16 workers, CPU 5 ms and 90 ms of waiting, 2 cores",
        cores: 2.0,
        workers: |_| 16,
        takes: |random, _| (random.exponential(0.005), 0.09),
        load: |_| 205.0,
        most: 205.0,
        // Sixteen workers of 95 ms each would serve 168; sharing two cores takes a little of it.
        truth: |_| 165.0,
        ..SLEEP
    },
    Kind {
        name: "256 workers that wait 500 ms",
        workers: |_| 256,
        takes: |random, _| (0.0005, 0.5 + random.exponential(0.0005)),
        load: |_| 610.0,
        most: 610.0,
        truth: |_| 511.0,
        ..SLEEP
    },
    Kind {
        name: "4 workers, 500 ms",
        workers: |_| 4,
        takes: |_, _| (0.0, 0.5),
        load: |_| 10.0,
        most: 10.0,
        truth: |_| 8.0,
        seconds: 90,
        ..SLEEP
    },
    Kind {
        name: "8 workers, 8 ms",
        takes: |_, _| (0.0, 0.008),
        load: |_| 1_200.0,
        most: 1_200.0,
        truth: |_| 1_000.0,
        ..SLEEP
    },
    Kind {
        name: "1 worker, 20 ms exponential",
        workers: |_| 1,
        takes: |random, _| (0.0, random.exponential(0.02)),
        load: |_| 60.0,
        most: 60.0,
        truth: |_| 50.0,
        ..SLEEP
    },
    Kind {
        name: "backlog 5, sleep",
        backlog: 5,
        ..SLEEP
    },
    Kind {
        name: "backlog 5, exponential",
        backlog: 5,
        takes: |random, _| (0.0, random.exponential(0.1)),
        ..SLEEP
    },
    Kind {
        name: "backlog 5, load 82 of 80",
        backlog: 5,
        load: |_| 82.0,
        ..SLEEP
    },
    Kind {
        name: "backlog 16, exponential",
        backlog: 16,
        takes: |random, _| (0.0, random.exponential(0.1)),
        ..SLEEP
    },
    Kind {
        name: "backlog 511",
        backlog: 511,
        ..SLEEP
    },
    Kind {
        name: "backlog 4096",
        backlog: 4_096,
        ..SLEEP
    },
    Kind {
        name: "8 to 4 workers, overloaded",
        workers: EIGHT_TO_FOUR,
        truth: |at_s| if at_s < CHANGE_S { 80.0 } else { 40.0 },
        changed_s: &[CHANGE_S],
        ..SLEEP
    },
    Kind {
        name: "8 to 4 workers, exponential, overloaded",
        workers: EIGHT_TO_FOUR,
        takes: |random, _| (0.0, random.exponential(0.1)),
        truth: |at_s| if at_s < CHANGE_S { 80.0 } else { 40.0 },
        changed_s: &[CHANGE_S],
        ..SLEEP
    },
    Kind {
        name: "8 to 4 workers, then 30/s",
        workers: EIGHT_TO_FOUR,
        load: |at_s| if at_s < 15.0 { 100.0 } else { 30.0 },
        truth: |at_s| if at_s < CHANGE_S { 80.0 } else { 40.0 },
        changed_s: &[CHANGE_S],
        seconds: 120,
        ..SLEEP
    },
    Kind {
        name: "8 to 4 workers, exponential, then 30/s",
        workers: EIGHT_TO_FOUR,
        takes: |random, _| (0.0, random.exponential(0.1)),
        load: |at_s| if at_s < 15.0 { 100.0 } else { 30.0 },
        truth: |at_s| if at_s < CHANGE_S { 80.0 } else { 40.0 },
        changed_s: &[CHANGE_S],
        seconds: 120,
        ..SLEEP
    },
    Kind {
        name: "4 to 8 workers, overloaded",
        workers: FOUR_TO_EIGHT,
        truth: |at_s| if at_s < CHANGE_S { 40.0 } else { 80.0 },
        changed_s: &[CHANGE_S],
        ..SLEEP
    },
    Kind {
        name: "4 to 8 workers, exponential, 60/s",
        workers: FOUR_TO_EIGHT,
        takes: |random, _| (0.0, random.exponential(0.1)),
        load: |_| 60.0,
        truth: |at_s| if at_s < CHANGE_S { 40.0 } else { 80.0 },
        changed_s: &[CHANGE_S],
        ..SLEEP
    },
    Kind {
        name: "100 to 200 ms a request",
        takes: |random, taken| {
            (
                0.0,
                random.exponential(if taken.at_s < CHANGE_S { 0.1 } else { 0.2 }),
            )
        },
        truth: |at_s| if at_s < CHANGE_S { 80.0 } else { 40.0 },
        changed_s: &[CHANGE_S],
        ..SLEEP
    },
    Kind {
        name: "200 to 100 ms a request",
        takes: |random, taken| {
            (
                0.0,
                random.exponential(if taken.at_s < CHANGE_S { 0.2 } else { 0.1 }),
            )
        },
        truth: |at_s| if at_s < CHANGE_S { 40.0 } else { 80.0 },
        changed_s: &[CHANGE_S],
        ..SLEEP
    },
    Kind {
        name: "shrinking: one worker less each 10 s",
        workers: |at_s| 8 - ((at_s / 10.0) as usize).min(5),
        load: |_| 100.0,
        truth: |at_s| 10.0 * (8.0 - (at_s / 10.0).floor().min(5.0)),
        changed_s: &[10.0, 20.0, 30.0, 40.0, 50.0],
        seconds: 80,
        ..SLEEP
    },
    Kind {
        name: "growing: one worker more each 10 s",
        workers: |at_s| 3 + ((at_s / 10.0) as usize).min(5),
        load: |_| 100.0,
        truth: |at_s| 10.0 * (3.0 + (at_s / 10.0).floor().min(5.0)),
        changed_s: &[10.0, 20.0, 30.0, 40.0, 50.0],
        seconds: 80,
        ..SLEEP
    },
    Kind {
        name: "pauses of 0.3 s in 5",
        takes: |random, _| (0.0, random.exponential(0.1)),
        pauses_s: (5.0, 0.3),
        // What it serves at most in overload.
        truth: |_| 75.2,
        seconds: 120,
        ..SLEEP
    },
    Kind {
        name: "pauses of 3 s in 60, at 40 % load after 10 s",
        takes: |random, _| (0.0, random.exponential(0.1)),
        pauses_s: (60.0, 3.0),
        load: |at_s| if at_s < 10.0 { 100.0 } else { 32.0 },
        seconds: 240,
        ..SLEEP
    },
    Kind {
        name: "bursts: 100 in 0.5 s each 10 s, else 10/s",
        takes: |random, _| (0.0, random.exponential(0.1)),
        load: |at_s| if at_s % 10.0 < 0.5 { 200.0 } else { 10.0 },
        most: 200.0,
        seconds: 240,
        ..SLEEP
    },
    Kind {
        name: "wave over 100 s, to 120 %",
        takes: |random, _| (0.0, random.exponential(0.1)),
        load: |at_s| 52.0 - 44.0 * (at_s * std::f64::consts::TAU / 100.0).cos(),
        seconds: 300,
        ..SLEEP
    },
    Kind {
        name: "light load, 24/s of 80",
        takes: |random, _| (0.0, random.exponential(0.1)),
        load: |_| 24.0,
        seconds: 300,
        ..SLEEP
    },
    Kind {
        name: "event loop, one core, CPU 5 ms",
        workers: |_| usize::MAX,
        cores: 1.0,
        takes: |random, _| (random.exponential(0.005), 0.0),
        load: |_| 150.0,
        most: 150.0,
        truth: |_| 200.0,
        shows: false,
        is_loops: true,
        ..SLEEP
    },
    LOOP,
    Kind {
        name: "event loop, CPU 8 ms, 180/s",
        takes: |_, _| (0.008, 0.0),
        load: |_| 180.0,
        most: 180.0,
        truth: |_| 125.0,
        ..LOOP
    },
    Kind {
        name: "two event loops, CPU 20 ms lognormal, SCV 4",
        cores: 2.0,
        takes: |random, _| {
            let sigma2 = 5.0f64.ln();
            (0.02 * (random.normal() * sigma2.sqrt() - sigma2 / 2.0).exp(), 0.0)
        },
        load: |_| 130.0,
        most: 130.0,
        truth: |_| 100.0,
        ..LOOP
    },
    Kind {
        name: "event loop, CPU 5 ms, then something behind it 100 ms",
        takes: |random, _| (random.exponential(0.005), random.exponential(0.1)),
        ..LOOP
    },
    Kind {
        name: "event loop, 95 % load",
        load: |_| 190.0,
        most: 190.0,
        shows: false,
        seconds: 300,
        ..LOOP
    },
    Kind {
        name: "event loop, CPU 5 to 10 ms, overloaded",
        takes: |random, taken| {
            (
                random.exponential(if taken.at_s < CHANGE_S { 0.005 } else { 0.01 }),
                0.0,
            )
        },
        load: |at_s| if at_s < CHANGE_S { 210.0 } else { 130.0 },
        truth: |at_s| if at_s < CHANGE_S { 200.0 } else { 100.0 },
        changed_s: &[CHANGE_S],
        seconds: 90,
        ..LOOP
    },
    Kind {
        name: "event loop, CPU 10 to 5 ms, overloaded",
        takes: |random, taken| {
            (
                random.exponential(if taken.at_s < CHANGE_S { 0.01 } else { 0.005 }),
                0.0,
            )
        },
        load: |at_s| if at_s < CHANGE_S { 105.0 } else { 240.0 },
        truth: |at_s| if at_s < CHANGE_S { 100.0 } else { 200.0 },
        changed_s: &[CHANGE_S],
        seconds: 90,
        ..LOOP
    },
    Kind {
        name: "event loop, overloaded, then 100/s",
        load: |at_s| if at_s < CHANGE_S { 230.0 } else { 100.0 },
        shows: false,
        ..LOOP
    },
    Kind {
        name: "50 % load, exponential",
        load: |_| 40.0,
        ..BELOW
    },
    Kind {
        name: "70 % load, exponential",
        load: |_| 56.0,
        ..BELOW
    },
    Kind {
        name: "90 % load, exponential",
        load: |_| 72.0,
        ..BELOW
    },
    Kind {
        name: "50 % load, lognormal, SCV 4",
        takes: lognormal,
        load: |_| 40.0,
        ..BELOW
    },
    Kind {
        name: "70 % load, lognormal, SCV 4",
        takes: lognormal,
        load: |_| 56.0,
        ..BELOW
    },
    Kind {
        name: "90 % load, lognormal, SCV 4",
        takes: lognormal,
        load: |_| 72.0,
        ..BELOW
    },
    Kind {
        name: "90 % load, sleep",
        takes: slept,
        load: |_| 72.0,
        ..BELOW
    },
    Kind {
        name: "backlog 5, 70 % load, exponential",
        backlog: 5,
        load: |_| 56.0,
        ..BELOW
    },
    Kind {
        name: "backlog 5, 70 % load, lognormal, SCV 4",
        backlog: 5,
        takes: lognormal,
        load: |_| 56.0,
        ..BELOW
    },
    Kind {
        name: "pauses of 0.5 s in 10, at 30 % load after 20 s",
        pauses_s: (10.0, 0.5),
        load: |at_s| if at_s < 20.0 { 100.0 } else { 24.0 },
        ..BELOW
    },
    Kind {
        name: "pauses of 0.5 s in 10, at 70 % load after 20 s",
        pauses_s: (10.0, 0.5),
        load: |at_s| if at_s < 20.0 { 100.0 } else { 56.0 },
        ..BELOW
    },
    Kind {
        name: "8 to 6 workers, exponential",
        workers: |at_s| if at_s < CHANGE_S { 8 } else { 6 },
        truth: |at_s| if at_s < CHANGE_S { 80.0 } else { 60.0 },
        ..CHANGES
    },
    Kind {
        name: "8 to 6 workers, lognormal, SCV 4",
        takes: lognormal,
        workers: |at_s| if at_s < CHANGE_S { 8 } else { 6 },
        truth: |at_s| if at_s < CHANGE_S { 80.0 } else { 60.0 },
        ..CHANGES
    },
    Kind {
        name: "4 to 5 workers, exponential",
        workers: |at_s| if at_s < CHANGE_S { 4 } else { 5 },
        truth: |at_s| if at_s < CHANGE_S { 40.0 } else { 50.0 },
        ..CHANGES
    },
    Kind {
        name: "40 workers, 500 ms exponential, bursts: 2 s of 200/s in 20, else 5/s",
        workers: |_| 40,
        takes: |random, _| (0.0, random.exponential(0.5)),
        load: |at_s| if at_s % 20.0 < 2.0 { 200.0 } else { 5.0 },
        most: 200.0,
        ..BELOW
    },
    Kind {
        name: "400 workers, 5 s exponential, bursts: 2 s of 200/s in 20, else 5/s",
        workers: |_| 400,
        takes: |random, _| (0.0, random.exponential(5.0)),
        load: |at_s| if at_s % 20.0 < 2.0 { 200.0 } else { 5.0 },
        most: 200.0,
        shows: false,
        ..BELOW
    },
    Kind {
        name: "8 workers, 595/s, exponential",
        takes: |random, _| (0.0, random.exponential(8.0 / 595.0)),
        load: |_| 700.0,
        most: 700.0,
        truth: |_| 595.0,
        ..SLEEP
    },
    Kind {
        name: "256 workers, 595/s, 430 ms exponential",
        workers: |_| 256,
        takes: |random, _| (0.0, random.exponential(256.0 / 595.0)),
        load: |_| 700.0,
        most: 700.0,
        truth: |_| 595.0,
        ..SLEEP
    },
    Kind {
        name: "event loop that accepts all who wait, then serves in turn, CPU 5 ms",
        load: |_| 250.0,
        most: 250.0,
        ..BUNCHES
    },
    Kind {
        name: "event loop that accepts all who wait, then serves in turn, 30 % load",
        load: |_| 60.0,
        shows: false,
        ..BUNCHES
    },
    Kind {
        name: "event loop that accepts all who wait, then serves in turn, 90 % load",
        load: |_| 180.0,
        most: 180.0,
        shows: false,
        ..BUNCHES
    },
    Kind {
        name: "backlog 8, and from 15 s on 40/s that reset after a part of a request",
        backlog: 8,
        parts: (40.0, 15.0),
        ..SLEEP
    },
    Kind {
        name: "8 to 4 workers, and from 15 s on 40/s that reset after a part of a request",
        workers: EIGHT_TO_FOUR,
        truth: |at_s| if at_s < CHANGE_S { 80.0 } else { 40.0 },
        changed_s: &[CHANGE_S],
        parts: (40.0, 15.0),
        ..SLEEP
    },
    Kind {
        name: "4 to 8 workers, and from 15 s on 40/s that reset after a part of a request",
        workers: FOUR_TO_EIGHT,
        truth: |at_s| if at_s < CHANGE_S { 40.0 } else { 80.0 },
        changed_s: &[CHANGE_S],
        parts: (40.0, 15.0),
        ..SLEEP
    },
];
