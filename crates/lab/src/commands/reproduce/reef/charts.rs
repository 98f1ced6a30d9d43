//! The plots, figure by figure.

use super::measure::{Moment, Pick, Run};
use super::plan::{
    BATCHES, BEST_EFFORT_PER_S, CONNECTIONS, HALF, INTERVALS_US, LIMITS, LOADS, MOST, NAMED_BATCHES, PACKED,
    SCHEMES, Server, WORKERS, Who, World,
};
use super::{Measured, rows};
use headroom_record::report::{Chart, Curve, Stroke};
use headroom_sim::threads::ThreadsScenario;
use headroom_units::Seconds;

fn curve(label: impl Into<String>, points: Vec<(f64, f64)>, stroke: Stroke) -> Curve {
    Curve {
        label: label.into(),
        points,
        stroke,
    }
}

/// A figure of the mean of each world's runs, over what the world is of.
fn swept(
    measured: &Measured,
    label: impl Into<String>,
    (server, who): (Server, Who),
    worlds: impl IntoIterator<Item = (f64, World)>,
    pick: Pick,
) -> Curve {
    let points = worlds
        .into_iter()
        .map(|(over, world)| (over, measured.mean(server, world, who, pick)));
    curve(label, points.collect(), Stroke::Marked)
}

fn chart(title: &str, unit: &str, over: &str, curves: Vec<Curve>) -> Chart {
    Chart {
        title: title.to_owned(),
        unit: unit.to_owned(),
        over: Some(over.to_owned()),
        curves,
        ..Chart::default()
    }
}

fn reef() -> Who {
    Who::reef(NAMED_BATCHES[0])
}

fn connections() -> impl Iterator<Item = (f64, World)> {
    CONNECTIONS
        .into_iter()
        .map(|count| (f64::from(count), World::Connections(count)))
}

/// Figure 2: what a core draws on average in a period in its deepest state.
pub fn figure_2() -> Chart {
    let machine = ThreadsScenario::default().machine;
    let states = &machine.processor.idle_states;
    let lengths_us = (1..=50).map(|step| f64::from(step) * 100.0);
    let mut curves = Vec::new();
    let mut marks = Vec::new();
    if let (Some(shallowest), Some(deepest)) = (states.first(), states.last()) {
        let points = lengths_us.map(|us| {
            let length = Seconds::new(us * 1e-6);
            (us, deepest.mean_power(length, shallowest.power).get())
        });
        curves.push(curve(
            "a core's mean power in C6, with entry and exit",
            points.collect(),
            Stroke::Line,
        ));
        marks.push((
            "running".to_owned(),
            machine.processor.frequency.busy_at_top().get(),
        ));
        marks.push((format!("idle in {}", shallowest.name), shallowest.power.get()));
    }
    Chart {
        marks,
        logarithmic: true,
        ..chart("Figure 2: power over C6 residency", "W", "µs in C6", curves)
    }
}

/// The profile: throughput over workers at once.
pub fn profile(measured: &Measured) -> Chart {
    // Beyond, the curves are flat.
    let shown = || WORKERS.into_iter().filter(|count| *count <= 128);
    let worlds = || shown().map(|count| (f64::from(count), World::Workers(count)));
    let each = Server::ALL.into_iter().map(|server| {
        let pick = |run: &Run| run.throughput_per_s;
        swept(measured, server.name(), (server, reef()), worlds(), pick)
    });
    chart(
        "Throughput with 512 connections over workers at once",
        "queries/s",
        "workers at once",
        each.collect(),
    )
}

/// Figure 3: instructions per query.
pub fn figure_3(measured: &Measured) -> Chart {
    let mut curves = Vec::new();
    for server in Server::ALL {
        for (label, who) in [("alone", Who::ALONE), ("REEF", reef())] {
            let label = format!("{}, {label}", server.name());
            curves.push(swept(measured, label, (server, who), connections(), |run| {
                run.ipq
            }));
        }
    }
    chart(
        "Figure 3: instructions per query, of those with one thread",
        "times",
        "connections",
        curves,
    )
}

/// Figures 4 and 5: threads packed on fewer cores.
pub fn packed(measured: &Measured) -> Vec<Chart> {
    let worlds = || PACKED.map(|cores| (f64::from(cores), World::Packed(cores)));
    let server = Server::Mongodb;
    let both = |pick: Pick| -> Vec<Curve> {
        [("alone", Who::ALONE), ("REEF", reef())]
            .map(|(label, who)| swept(measured, label, (server, who), worlds(), pick))
            .to_vec()
    };
    let states = |who: Who| -> Vec<Curve> {
        let picks: [(&str, Pick); 3] = [
            ("R: runs or could", |run| run.runnable_percent),
            ("S: waits for client or turn", |run| run.sleeping_percent),
            ("D: waits for the disk", |run| run.disk_percent),
        ];
        picks
            .map(|(label, pick)| swept(measured, label, (server, who), worlds(), pick))
            .to_vec()
    };
    let mut variability = Vec::new();
    for (label, who) in [("alone", Who::ALONE), ("REEF", reef())] {
        let picks: [(&str, Pick); 2] = [("P99", rows::p99_ratio), ("P99.9", rows::p999_ratio)];
        for (tail, pick) in picks {
            let label = format!("{tail}, {label}");
            variability.push(swept(measured, label, (server, who), worlds(), pick));
        }
    }
    vec![
        chart(
            "Figure 4: throughput",
            "queries/s",
            "cores",
            both(|run| run.throughput_per_s),
        ),
        chart("Figure 4(a): threads, alone", "%", "cores", states(Who::ALONE)),
        chart("Figure 4(b): threads, REEF", "%", "cores", states(reef())),
        chart("Figure 5: power", "W", "cores", both(|run| run.power_w)),
        chart("Figure 5: tail latency over mean", "times", "cores", variability),
    ]
}

/// Idle periods over load.
pub fn idle(measured: &Measured) -> Vec<Chart> {
    let server = Server::Mongodb;
    let worlds = || LOADS.map(|load| (f64::from(load), World::Load(load)));
    let both = |pick: Pick| -> Vec<Curve> {
        [("alone", Who::ALONE), ("REEF", reef())]
            .map(|(label, who)| swept(measured, label, (server, who), worlds(), pick))
            .to_vec()
    };
    let periods = [("alone", Who::ALONE), ("REEF", reef())]
        .into_iter()
        .filter_map(|(label, who)| {
            let run = measured.of(server, World::Load(HALF), who).first()?;
            let shown = run.idle.iter().filter(|(micros, _)| *micros <= 10_000.0);
            Some(curve(label, shown.copied().collect(), Stroke::Line))
        });
    let load = "load in % of the throughput at saturation";
    vec![
        chart(
            "Idle periods at half load: time in those of at most so long",
            "% of idle time",
            "µs",
            periods.collect(),
        ),
        chart(
            "C6 opportunity (Equation 2)",
            "%",
            load,
            both(|run| run.opportunity_percent),
        ),
        chart("Power", "W", load, both(|run| run.power_w)),
        Chart {
            logarithmic: true,
            ..chart("P99", "ms", load, both(|run| run.p99_ms))
        },
    ]
}

/// Figure 9: the load limit.
pub fn figure_9(measured: &Measured) -> Vec<Chart> {
    let worlds = || LIMITS.map(|limit| (f64::from(limit), World::Limit(limit)));
    let each = |pick: Pick| -> Vec<Curve> {
        NAMED_BATCHES
            .map(|batch| {
                let who = (Server::Mongodb, Who::reef(batch));
                swept(measured, format!("N {batch}"), who, worlds(), pick)
            })
            .to_vec()
    };
    let over = "load limit in % of the throughput at saturation";
    vec![
        chart(
            "Figure 9: throughput",
            "queries/s",
            over,
            each(|run| run.throughput_per_s),
        ),
        chart("Figure 9: EE(TPP)", "queries/s/W", over, each(|run| run.ee_tpp)),
        chart("Figure 9: EE(P99)", "queries/s/W", over, each(|run| run.ee_p99)),
        chart(
            "Figure 9: EE(P99.9)",
            "queries/s/W",
            over,
            each(|run| run.ee_p999),
        ),
    ]
}

/// Figure 10: the batch size.
pub fn figure_10(measured: &Measured) -> Vec<Chart> {
    let of = |label: &str, pick: Pick| {
        let points = BATCHES.into_iter().map(|batch| {
            let who = Who::reef(batch);
            let mean = measured.mean(Server::Mongodb, World::Connections(MOST), who, pick);
            (f64::from(batch), mean)
        });
        curve(label, points.collect(), Stroke::Marked)
    };
    vec![
        chart(
            "Figure 10: energy efficiency",
            "queries/s/W",
            "N, queries in a turn",
            vec![
                of("EE(TPP)", |run| run.ee_tpp),
                of("EE(P99)", |run| run.ee_p99),
                of("EE(P99.9)", |run| run.ee_p999),
            ],
        ),
        chart(
            "Figure 10: power",
            "W",
            "N, queries in a turn",
            vec![of("power", |run| run.power_w)],
        ),
    ]
}

/// Figure 11: what a turn costs.
pub fn figure_11(measured: &Measured) -> Chart {
    let worlds = INTERVALS_US.map(|us| (f64::from(us).log10() - 3.0, World::Interval(us)));
    let pick = |run: &Run| run.overhead_us;
    let curves = vec![swept(measured, "ours", (Server::Mongodb, reef()), worlds, pick)];
    Chart {
        marks: vec![("the paper: converges to 16 µs".to_owned(), 16.0)],
        ..chart(
            "Figure 11: CPU time of a turn that is no query's work",
            "µs",
            "D as the logarithm of its ms: 0 is 1 ms, 3 is 1 s",
            curves,
        )
    }
}

/// Figures 12 and 13: over the server alone.
pub fn over_alone(measured: &Measured, figure: &str, server: Server) -> Vec<Chart> {
    let who = [
        ("AppleS", Who::APPLES),
        ("REEF, N 2", Who::reef(NAMED_BATCHES[0])),
        ("REEF, N 8", Who::reef(NAMED_BATCHES[1])),
    ];
    let picks: [(&str, Pick); 6] = [
        ("EE(TPP)", |run| run.ee_tpp),
        ("EE(P99)", |run| run.ee_p99),
        ("EE(P99.9)", |run| run.ee_p999),
        ("throughput", |run| run.throughput_per_s),
        ("P99", |run| run.p99_ms),
        ("P99.9", |run| run.p999_ms),
    ];
    let charts = picks.map(|(title, pick)| {
        let curves = who.map(|(label, who)| {
            let points = connections().map(|(count, world)| {
                let alone = measured.mean(server, world, Who::ALONE, pick);
                (count, measured.mean(server, world, who, pick) / alone)
            });
            curve(label, points.collect(), Stroke::Marked)
        });
        Chart {
            marks: vec![("alone".to_owned(), 1.0)],
            ..chart(
                &format!("{figure}: {title} over that alone, {}", server.name()),
                "times",
                "connections",
                curves.to_vec(),
            )
        }
    });
    charts.to_vec()
}

/// Figure 14: power and idle states.
pub fn figure_14(measured: &Measured, server: Server) -> Vec<Chart> {
    let who = [
        ("alone", Who::ALONE),
        ("AppleS", Who::APPLES),
        ("REEF, N 2", reef()),
    ];
    let each = |pick: Pick| -> Vec<Curve> {
        who.map(|(label, who)| swept(measured, label, (server, who), connections(), pick))
            .to_vec()
    };
    let name = server.name();
    vec![
        chart(
            &format!("Figure 14: power, {name}"),
            "W",
            "connections",
            each(|run| run.power_w),
        ),
        chart(
            &format!("Figure 14: cores busy, {name}"),
            "%",
            "connections",
            each(|run| run.cores_busy_percent),
        ),
        chart(
            &format!("Figure 14: cores in C6, {name}"),
            "%",
            "connections",
            each(rows::deepest),
        ),
    ]
}

/// Figures 19 and 20: the first seed's periods.
pub fn tightened(measured: &Measured) -> Vec<Chart> {
    let each = |pick: fn(&Moment) -> f64| -> Vec<Curve> {
        SCHEMES
            .into_iter()
            .filter_map(|who| {
                let run = measured.of(Server::Mongodb, World::Tightened, who).first()?;
                let points = run.moments.iter().map(|moment| (moment.at_s, pick(moment)));
                Some(curve(who.name(), points.collect(), Stroke::Line))
            })
            .collect()
    };
    let charts = [
        (
            "Figure 19: cores without connections",
            "cores",
            each(|moment| moment.cold),
        ),
        (
            "Figure 19: cores of the strictest area",
            "cores",
            each(|moment| moment.hot),
        ),
        (
            "Figure 20: connections that miss an SLO by their last 128 latencies",
            "of 16",
            each(|moment| moment.missed),
        ),
        (
            "Figure 20: best-effort throughput over its target",
            "times",
            each(|moment| moment.best_effort_per_s / BEST_EFFORT_PER_S),
        ),
    ];
    charts
        .into_iter()
        .map(|(title, unit, curves)| Chart {
            title: title.to_owned(),
            unit: unit.to_owned(),
            curves,
            ..Chart::default()
        })
        .collect()
}
