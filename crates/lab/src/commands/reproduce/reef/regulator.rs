//! Figures 9 to 11, and idle periods at part load: what D and N bring and cost.

use super::super::rows::Row;
use super::Measured;
use super::measure::Pick;
use super::plan::{HALF, INTERVALS_US, LIMITS, MOST, NAMED_BATCHES, Server, Who, World};
use super::rows::{deepest, gain, less, more, plain, printed, reef};

/// What is saved at half load.
const LESS_WORK: &str = "not by deep sleep, of which there is less: a fifth of it is less time that cores run, and the rest transitions between states \
                         and the packages' uncore, which are not told apart";

/// All rows.
pub fn rows(measured: &Measured) -> Vec<Row> {
    let mut rows = idle(measured);
    rows.extend(figure_9(measured));
    rows.extend(figure_10(measured));
    rows.extend(figure_11(measured));
    rows
}

/// Equation 2 at half load, which the paper has no figure of.
fn idle(measured: &Measured) -> Vec<Row> {
    let (server, world) = (Server::Mongodb, World::Load(HALF));
    let mut rows = Vec::new();
    for (name, who) in [("alone", Who::ALONE), ("REEF", reef())] {
        let picks: [(&str, Pick, usize); 5] = [
            ("C6 opportunity, %", |run| run.opportunity_percent, 1),
            (
                "cores' time in idle periods over 1 ms, %",
                |run| run.long_idle_percent,
                1,
            ),
            ("cores' time in C6, %", deepest, 1),
            ("power, W", |run| run.power_w, 1),
            ("P99, ms", |run| run.p99_ms, 2),
        ];
        let name = if who == Who::ALONE {
            name.to_owned()
        } else {
            format!("{name}, D 1 ms")
        };
        for (what, pick, decimals) in picks {
            let ours = measured.each(server, world, who, pick);
            let why = match what {
                "power, W" if who != Who::ALONE => LESS_WORK,
                _ => "",
            };
            rows.push(plain(
                "Eq. 2",
                format!("{HALF} % load, {name}: {what}"),
                "not printed",
                &ours,
                decimals,
                why,
            ));
        }
    }
    rows
}

fn figure_9(measured: &Measured) -> Vec<Row> {
    let server = Server::Mongodb;
    let mut rows = Vec::new();
    for batch in NAMED_BATCHES {
        let who = Who::reef(batch);
        let mean = |limit: u32, pick: Pick| measured.mean(server, World::Limit(limit), who, pick);
        let best = LIMITS
            .into_iter()
            .map(|limit| mean(limit, |run| run.ee_tpp))
            .fold(0.0, f64::max);
        let found = LIMITS
            .into_iter()
            .find(|limit| mean(*limit, |run| run.ee_tpp) >= 0.99 * best);
        let ours: Vec<f64> = found.map(f64::from).into_iter().collect();
        let what = format!("N {batch}: load limit whose EE(TPP) is within 1 % of the best, %");
        rows.push(plain(
            "9",
            what,
            "105",
            &ours,
            0,
            "a limit over the throughput at saturation leaves D at 0: a round cannot be shorter than its queries",
        ));
        for (name, pick) in [
            ("EE(P99)", (|run| run.ee_p99) as Pick),
            ("EE(P99.9)", |run| run.ee_p999),
        ] {
            let (first, second) = ((World::Limit(105), who), (World::Limit(150), who));
            let ours = more(&measured.ratios(server, first, second, pick));
            let what = format!("N {batch}: {name} at 150 % more than at 105 %, %");
            let why = "D is 0 at both, so that they are the same";
            rows.push(plain("9", what, "falls", &ours, 1, why));
        }
    }
    rows
}

fn figure_10(measured: &Measured) -> Vec<Row> {
    let (server, world) = (Server::Mongodb, World::Connections(MOST));
    let [tails, throughput] = NAMED_BATCHES.map(|batch| (world, Who::reef(batch)));
    let ratios = |pick: Pick| measured.ratios(server, throughput, tails, pick);
    const MEAN: &str = "the simulated tail grows with N as the paper's, and the mean that it is divided by does not: in a closed loop it is \
                        the connections over the throughput";
    let (watts, of_tails) = (
        measured.each(server, world, throughput.1, |run| run.power_w),
        measured.each(server, world, tails.1, |run| run.power_w),
    );
    let apart: Vec<f64> = of_tails
        .iter()
        .zip(watts)
        .map(|(two, eight)| two - eight)
        .collect();
    vec![
        gain(
            "10",
            "N 2 over N 8: EE(P99), times",
            printed("3.75", 3.75),
            (&ratios(|run| run.ee_p99), 1.0),
            MEAN,
        ),
        gain(
            "10",
            "N 2 over N 8: EE(P99.9), times",
            printed("3.64", 3.64),
            (&ratios(|run| run.ee_p999), 1.0),
            MEAN,
        ),
        plain(
            "10",
            "N 2: EE(TPP) less than with N 8, %",
            "7",
            &less(&ratios(|run| run.ee_tpp)),
            1,
            "no caches are modelled: a connection's queries gain nothing by following each other",
        ),
        plain(
            "10",
            "N 2: power more than with N 8, W",
            "up to 5.6",
            &apart,
            1,
            "more turns mean more switches and shorter idle periods, as in the paper",
        ),
    ]
}

fn figure_11(measured: &Measured) -> Vec<Row> {
    const COST: &str = "counted is all of a turn of two queries: each wait for the disk or the client's next query leaves its core to an idle state, \
                        which takes 2 to 133 µs to come back from; the paper's has switches, idle states and signals of a batch alone";
    let server = Server::Mongodb;
    let mut rows = Vec::new();
    for (us, paper) in [(INTERVALS_US[0], "up to 40"), (1_000_000, "16")] {
        let ours = measured.each(server, World::Interval(us), reef(), |run| run.overhead_us);
        let what = format!(
            "D {} ms: CPU time of a turn that is no query's work, µs",
            f64::from(us) / 1e3
        );
        rows.push(plain("11", what, paper, &ours, 1, COST));
    }
    let (first, second) = (
        (World::Connections(MOST), reef()),
        (World::Interval(1_000), reef()),
    );
    let ours = less(&measured.ratios(server, first, second, |run| run.throughput_per_s));
    let what = "D never under the break-even time: throughput less than with D 0 at saturation, %";
    let why = "the paper's default; here it costs throughput while all wait, so the regulator has D 0 then";
    rows.push(plain("11", what, "not printed", &ours, 1, why));
    rows
}
