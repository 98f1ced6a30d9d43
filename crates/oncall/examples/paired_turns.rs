//! What settings bring to one running server, in short turns one after the other: a machine that other machines share is as fast in one
//! turn as in the next, and not from run to run.
//!
//! ```console
//! $ headroom wrap --steered --name db -- mariadbd ... &     # and clients that keep it busy
//! $ cargo run --release --example paired_turns -- REGION 20 0.5 open 4,8,200 1,1,0
//! ```
//!
//! REGION is the one in the file that `wrap --steered` says; then how many rounds of turns, the seconds of each, and the settings: `open`, or C, N and the
//! linger in microseconds. Of each setting it prints queries per second over those of the first setting in the same round, geometric mean with its 95 %
//! confidence, and switches and latencies as the workers count them.

use headroom_oncall::{Levers, Steering, Totals};
use std::path::Path;
use std::time::{Duration, Instant};

/// What a turn begins with is the turn before's.
const SETTLES: Duration = Duration::from_millis(60);

fn levers(word: &str) -> Levers {
    if word == "open" {
        return Levers::default();
    }
    let numbers: Vec<u32> = word
        .split(',')
        .map(|number| number.parse().expect("C,N,LINGER_US"))
        .collect();
    let [concurrency, batch, linger] = numbers[..] else {
        panic!("{word}: C,N,LINGER_US or open")
    };
    Levers {
        enabled: true,
        concurrency,
        batch,
        linger: Duration::from_micros(linger.into()),
        delay: Duration::ZERO,
    }
}

/// A mean of logarithms as a ratio, and how far it may be off by chance.
fn ratio(logarithms: &[f64]) -> (f64, f64) {
    let count = logarithms.len() as f64;
    let mean = logarithms.iter().sum::<f64>() / count;
    let variance = logarithms.iter().map(|one| (one - mean).powi(2)).sum::<f64>() / (count - 1.0);
    (mean.exp(), mean.exp() * 2.0 * (variance / count).sqrt())
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [region, rounds, seconds, settings @ ..] = &words[..] else {
        panic!("REGION ROUNDS SECONDS SETTING...")
    };
    let steering = Steering::attach(Path::new(region)).expect("the region");
    let rounds: usize = rounds.parse().expect("rounds");
    let length = Duration::from_secs_f64(seconds.parse().expect("seconds"));
    let mut rates = vec![Vec::new(); settings.len()];
    let mut sums: Vec<Totals> = vec![Totals::default(); settings.len()];
    for round in 0..rounds {
        let mut order: Vec<usize> = (0..settings.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for at in order {
            steering.command(levers(&settings[at]), Some(Duration::from_secs(60)));
            std::thread::sleep(SETTLES);
            let (began, before) = (Instant::now(), steering.totals());
            std::thread::sleep(length);
            let turn = steering.totals().since(&before);
            rates[at].push(turn.queries as f64 / began.elapsed().as_secs_f64());
            let sum = &mut sums[at];
            sum.queries += turn.queries;
            sum.spurious += turn.spurious;
            sum.given_back += turn.given_back;
            sum.without_slot += turn.without_slot;
            sum.latencies.resize(turn.latencies.len(), 0);
            sum.latencies
                .iter_mut()
                .zip(&turn.latencies)
                .for_each(|(sum, one)| *sum += one);
        }
    }
    println!(
        "| setting | queries/s | over {} | P50 ms | P99 ms | P99.9 ms | given back | spurious | without slot |",
        settings[0]
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for (at, setting) in settings.iter().enumerate() {
        let over: Vec<f64> = rates[at]
            .iter()
            .zip(&rates[0])
            .map(|(one, first)| (one / first).ln())
            .collect();
        let (mean, error) = ratio(&over);
        let per_s = rates[at].iter().sum::<f64>() / rounds as f64;
        let [p50, p99, p999] =
            [0.5, 0.99, 0.999].map(|share| sums[at].percentile(share).map_or(f64::NAN, |at| at.get() * 1e3));
        println!(
            "| {setting} | {per_s:.0} | {mean:.3} ± {error:.3} | {p50:.2} | {p99:.1} | {p999:.1} | {} | {} | {} |",
            sums[at].given_back, sums[at].spurious, sums[at].without_slot
        );
    }
}
