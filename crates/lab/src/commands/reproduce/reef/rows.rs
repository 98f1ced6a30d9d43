//! The paper's numbers, ours, and where they differ: by how much, and why.

use super::super::rows::Row;
use super::super::why;
use super::measure::{Pick, Run};
use super::plan::{CONNECTIONS, MOST, NAMED_BATCHES, PACKED, Server, Who, World};
use super::{Measured, colocated, divided, populations, regulator};
use headroom_record::statistics::Estimate;
use headroom_sim::threads::ThreadsScenario;

/// Why tails differ where the disks are the bottleneck.
pub const FIFO: &str =
    "disks that serve first come, first served leave the server hardly a tail that turns could shorten";
/// Why power differs.
pub const FLOOR: &str = "the cores' part is small here: the packages' uncore and the disks draw the same however threads are scheduled, and D \
                         is 0 while the server is saturated";
/// Why AppleS comes so near.
pub const RETRIES: &str = "AppleS' sleeping threads cost no CPU time here: what its retries cost on a real server is not modelled, and REEF's \
                           advantage over it is mostly that";
/// Why a little throughput is lost.
pub const SLOTS: &str = "C is below the number of cores, and its workers keep their slots while they wait: neither cores nor disks are always busy";
/// Why nothing is said of frequencies.
pub const TOP: &str = "no governor is modelled, cores run at their highest frequency: the busy share of the cores stands for what one would see";

/// A number of the paper.
#[derive(Clone, Copy)]
pub struct Printed {
    pub text: &'static str,
    pub value: f64,
}

/// A number of the paper that ours is to reach.
pub const fn printed(text: &'static str, value: f64) -> Option<Printed> {
    Some(Printed { text, value })
}

/// A row without a verdict but what is said of it.
pub fn plain(
    figure: &'static str,
    what: impl Into<String>,
    paper: &'static str,
    ours: &[f64],
    decimals: usize,
    why: &str,
) -> Row {
    Row {
        figure,
        what: what.into(),
        paper,
        ours: Estimate::of(ours),
        decimals,
        why: why.to_owned(),
    }
}

/// A gain in percent or, with `none` at 1, a ratio: by how much it falls short of the paper's, and why.
pub fn gain(
    figure: &'static str,
    what: impl Into<String>,
    paper: Option<Printed>,
    (ours, none): (&[f64], f64),
    cause: &str,
) -> Row {
    let estimate = Estimate::of(ours);
    let short = paper
        .zip(estimate)
        .map(|(paper, ours)| why::of_gain(ours, (paper.value, none), cause));
    Row {
        figure,
        what: what.into(),
        paper: paper.map_or("not printed", |paper| paper.text),
        ours: estimate,
        decimals: if none == 0.0 { 1 } else { 2 },
        why: short.unwrap_or_default(),
    }
}

/// Percent more of ratios.
pub fn more(ratios: &[f64]) -> Vec<f64> {
    ratios.iter().map(|ratio| (ratio - 1.0) * 100.0).collect()
}

/// Percent less of ratios.
pub fn less(ratios: &[f64]) -> Vec<f64> {
    ratios.iter().map(|ratio| (1.0 - ratio) * 100.0).collect()
}

/// P99 over the mean.
pub fn p99_ratio(run: &Run) -> f64 {
    run.p99_ms / run.mean_ms
}

/// P99.9 over the mean.
pub fn p999_ratio(run: &Run) -> f64 {
    run.p999_ms / run.mean_ms
}

/// Cores' time in the deepest idle state, percent.
pub fn deepest(run: &Run) -> f64 {
    run.idle_percent.last().copied().unwrap_or(0.0)
}

/// REEF with the N for tails.
pub fn reef() -> Who {
    Who::reef(NAMED_BATCHES[0])
}

/// All rows.
pub fn rows(measured: &Measured) -> Vec<Row> {
    let mut rows = figure_2();
    rows.extend(figure_3(measured));
    rows.extend(packed(measured));
    rows.extend(regulator::rows(measured));
    for (figure, server) in [("12", Server::Mongodb), ("13", Server::Mysql)] {
        rows.extend(over_apples(measured, figure, server));
    }
    rows.extend(figure_14(measured));
    rows.extend(populations::rows(measured));
    rows.extend(divided::rows(measured));
    rows.extend(colocated::rows(measured));
    rows
}

/// One core's physics, which no run is needed for.
fn figure_2() -> Vec<Row> {
    let processor = ThreadsScenario::default().machine.processor;
    let states = &processor.idle_states;
    let (Some(shallowest), Some(c6)) = (states.first(), states.last()) else {
        return Vec::new();
    };
    // P t = P_C6 t + E: the length at which a period in C6 draws as much as one at P.
    let even_us =
        |reference_w: f64| c6.transition_j(shallowest.power.get()) / (reference_w - c6.power.get()) * 1e6;
    let running = processor.frequency.busy_at_top().get();
    vec![
        plain(
            "2",
            "shortest C6 period that draws less than a running core, µs",
            "300",
            &[even_us(running)],
            0,
            "the running core's 4 W are assumed",
        ),
        plain(
            "2",
            "shortest C6 period that draws less than the shallowest state, µs",
            "1000",
            &[even_us(shallowest.power.get())],
            0,
            "given: it is the model's break-even time",
        ),
    ]
}

fn figure_3(measured: &Measured) -> Vec<Row> {
    const CURVE: &str = "the curve is given over threads that run or wait for the disk, and some of them wait for their client";
    let mut rows = Vec::new();
    for (server, points) in [
        (
            Server::Mongodb,
            [(64, "1.05"), (128, "1.27"), (512, "1.27")].as_slice(),
        ),
        (Server::Mysql, [(64, "1.11"), (512, "6.14")].as_slice()),
    ] {
        let name = server.name();
        for (count, paper) in points {
            let ours = measured.each(server, World::Connections(*count), Who::ALONE, |run| run.ipq);
            let near = paper.parse::<f64>().ok().zip(Estimate::of(&ours));
            let why = near.map_or_else(String::new, |(paper, ours)| why::of_near(ours, paper, 2.0, CURVE));
            let what = format!("{name}, {count} connections alone: instructions per query");
            rows.push(plain("3", what, paper, &ours, 2, &why));
        }
        let ours = measured.each(server, World::Connections(MOST), reef(), |run| run.ipq);
        let what = format!("{name}, {MOST} connections, REEF: instructions per query");
        let paper = "as undersubscribed";
        rows.push(plain("3", what, paper, &ours, 2, ""));
    }
    rows
}

/// Figures 4 and 5.
fn packed(measured: &Measured) -> Vec<Row> {
    let server = Server::Mongodb;
    let each = |cores: u32, who: Who, pick: Pick| measured.each(server, World::Packed(cores), who, pick);
    let all = PACKED.iter().copied().max().unwrap_or(2);
    let enough = |who: Who| {
        let mean = |cores: u32| measured.mean(server, World::Packed(cores), who, |run| run.throughput_per_s);
        PACKED
            .into_iter()
            .find(|cores| mean(*cores) >= 0.98 * mean(all))
            .unwrap_or(all)
    };
    let mut rows = Vec::new();
    for (name, who, paper) in [("alone", Who::ALONE, "6"), ("REEF", reef(), "not printed")] {
        let ours = enough(who);
        let why = match (who == Who::ALONE, ours) {
            (true, 6) | (false, _) => "",
            (true, _) => {
                "instructions grow by 1.27 with 512 threads in the disks' queue, so that six cores' work is more than six cores"
            }
        };
        let what = format!("{name}: cores whose throughput is within 2 % of that with {all}");
        rows.push(plain("4", what, paper, &[f64::from(ours)], 0, why));
        for (state, pick, paper) in [
            ("R", (|run| run.runnable_percent) as Pick, "falls with cores"),
            ("D", |run| run.disk_percent, "rises with cores"),
        ] {
            for cores in [2, all] {
                let what = format!("{name}, {cores} cores: threads in {state}, %");
                let paper = if who == Who::ALONE { paper } else { "not printed" };
                rows.push(plain("4", what, paper, &each(cores, who, pick), 1, ""));
            }
        }
        for cores in [2, 8, all] {
            let what = format!("{name}, {cores} cores: P99.9 over mean");
            let (paper, why) = match who == Who::ALONE {
                true => ("rises from 2 to 8 cores", FIFO),
                false => ("stable", ""),
            };
            rows.push(plain("5", what, paper, &each(cores, who, p999_ratio), 2, why));
        }
        let (few, many) = (each(8, who, |run| run.power_w), each(all, who, |run| run.power_w));
        let ours: Vec<f64> = many.iter().zip(few).map(|(many, few)| many - few).collect();
        let what = format!("{name}: power with {all} cores over that with 8, W");
        let paper = if who == Who::ALONE { "rises" } else { "not printed" };
        let why =
            "with 8 cores one package has nothing to do and sleeps, which its uncore's watts are saved by";
        rows.push(plain("5", what, paper, &ours, 1, why));
    }
    rows.sort_by_key(|row| row.figure);
    rows
}

/// Figures 12 and 13.
fn over_apples(measured: &Measured, figure: &'static str, server: Server) -> Vec<Row> {
    let mut rows = over_both(measured, figure, server);
    let world = World::Connections(MOST);
    let why = match server {
        Server::Mongodb => {
            "slots are given back in disk waits, so that C bounds no accesses where the disks are the bottleneck"
        }
        Server::Mysql => "",
    };
    let ratios = |pick: Pick| measured.ratios(server, (world, Who::ALONE), (world, Who::WRAP), pick);
    let picks: [(&str, Pick); 3] = [
        ("EE(TPP)", |run| run.ee_tpp),
        ("EE(P99.9)", |run| run.ee_p999),
        ("throughput", |run| run.throughput_per_s),
    ];
    for (name, pick) in picks {
        let what = format!("{MOST} connections, as built over alone: {name} more, %");
        rows.push(plain(figure, what, "not printed", &more(&ratios(pick)), 1, why));
    }
    rows
}

fn over_both(measured: &Measured, figure: &'static str, server: Server) -> Vec<Row> {
    let cause = match server {
        Server::Mongodb => RETRIES,
        Server::Mysql => "",
    };
    let mut rows = Vec::new();
    for count in [CONNECTIONS[0], MOST] {
        let world = World::Connections(count);
        for (from, base) in [("AppleS", Who::APPLES), ("alone", Who::ALONE)] {
            let ratios = |pick: Pick| measured.ratios(server, (world, base), (world, reef()), pick);
            let paper = match base == Who::APPLES {
                true => "more, most at many connections",
                false => "more",
            };
            let picks: [(&str, Pick, &str); 4] = [
                ("EE(TPP)", |run| run.ee_tpp, paper),
                ("EE(P99)", |run| run.ee_p99, paper),
                ("EE(P99.9)", |run| run.ee_p999, paper),
                ("throughput", |run| run.throughput_per_s, "not less"),
            ];
            for (name, pick, paper) in picks {
                let ours = more(&ratios(pick));
                let falls = Estimate::of(&ours).is_some_and(|ours| ours.mean < -1.0);
                let why = match (falls, name) {
                    (false, _) => "",
                    (true, "EE(P99)" | "EE(P99.9)") if server == Server::Mongodb => FIFO,
                    (true, "throughput" | "EE(TPP)") => SLOTS,
                    _ => cause,
                };
                let what = format!("{count} connections, REEF over {from}: {name} more, %");
                rows.push(plain(figure, what, paper, &ours, 1, why));
            }
        }
    }
    rows
}

fn figure_14(measured: &Measured) -> Vec<Row> {
    let mut rows = Vec::new();
    for server in Server::ALL {
        for (from, base) in [("AppleS", Who::APPLES), ("alone", Who::ALONE)] {
            let is_papers = server == Server::Mongodb && base == Who::APPLES;
            // The mean over numbers of connections, seed by seed.
            let mean_of = |pick: Pick, sign: f64| -> Vec<f64> {
                let each = CONNECTIONS.map(|count| {
                    let world = World::Connections(count);
                    less(&measured.ratios(server, (world, base), (world, reef()), pick))
                });
                let seeds = each.iter().map(Vec::len).min().unwrap_or(0);
                let mean = |seed: usize| each.iter().map(|one| one[seed]).sum::<f64>() / each.len() as f64;
                (0..seeds).map(|seed| sign * mean(seed)).collect()
            };
            let name = format!("{}, REEF over {from}", server.name());
            let paper = |number: Option<Printed>| number.filter(|_| is_papers);
            let ours = mean_of(|run| run.power_w, 1.0);
            let what = format!("{name}: power less, %");
            rows.push(gain(
                "14",
                what,
                paper(printed("12.10", 12.1)),
                (&ours, 0.0),
                FLOOR,
            ));
            let ours = mean_of(|run| run.cores_busy_percent, 1.0);
            let what = format!("{name}: CPU frequency less, here busy share of the cores less, %");
            rows.push(gain(
                "14",
                what,
                paper(printed("42.25", 42.25)),
                (&ours, 0.0),
                TOP,
            ));
            let apart = CONNECTIONS.map(|count| {
                let world = World::Connections(count);
                let (with, without) = (
                    measured.mean(server, world, reef(), deepest),
                    measured.mean(server, world, base, deepest),
                );
                with - without
            });
            let ours = [apart.iter().sum::<f64>() / apart.len() as f64];
            let what = format!("{name}: cores' time in C6 more, points");
            let said = match is_papers {
                true => (
                    "28.86",
                    "a saturated server wakes each idle core more often than C6 pays, as D is 0",
                ),
                false => ("not printed", ""),
            };
            rows.push(plain("14", what, said.0, &ours, 1, said.1));
        }
    }
    rows
}
