//! The reproduction as a sheet: the paper's figures in its order.

use super::super::rows::{Row, compared};
use super::live::{FIGURES, Live};
use super::measure::Run;
use super::plan::{APPLICATIONS, LIMIT, MOST, MOST_WORKERS, Server, THREADS, World};
use super::{Measured, ReefPaperArgs, charts, populations};
use headroom_record::report::{Chart, Grid, Section, Sheet};
use headroom_record::statistics::Estimate;
use headroom_sim::threads::{GateFigures, QueryArrivals, ThreadsScenario};

/// What is left out, by name, and why.
pub const LEFT_OUT: [(&str, &str); 4] = [
    (
        "Caches and memory bandwidth (Figure 21)",
        "the three applications compute and do nothing else; SATORI divides cores, the paper's divides caches and bandwidth too",
    ),
    (
        "CPU frequency (Figures 10, 14 and 16 to 18)",
        "no frequency governor is modelled; the busy share of the cores stands beside the paper's number",
    ),
    (
        "Cgroup(cpu) beside PSLO and UTSLO (Figures 15 and 16)",
        "with the equal weights of the paper it is the fair scheduler that every run here has anyway",
    ),
    (
        "Figure 8",
        "it draws how a policy is asked; Figures 1, 6 and 7 are drawings too",
    ),
];

/// The calibration: which figure, its value, and what it is from.
pub fn calibration(measured: &Measured) -> Vec<[String; 3]> {
    let mongodb = ThreadsScenario::default();
    let mysql = ThreadsScenario::mysql(MOST);
    let gate = GateFigures::default();
    let machine = &mongodb.machine;
    let processor = &machine.processor;
    let milliseconds =
        |scenario: &ThreadsScenario| scenario.query.instructions / scenario.query.instructions_per_s * 1e3;
    let think_s = match mongodb.arrivals {
        QueryArrivals::Closed { think_s, .. } => think_s,
        QueryArrivals::Open { .. } => 0.0,
    };
    let mut lines = vec![
        (
            "cores".to_owned(),
            format!("{} in {} packages", processor.cores, processor.packages),
            "Section 5: 2 x 12 cores, Xeon E5-2650; hyperthreads are not modelled",
        ),
        (
            "idle states".to_owned(),
            processor
                .idle_states
                .iter()
                .map(|state| {
                    format!(
                        "{} {} W from {:.0} µs",
                        state.name,
                        state.power.get(),
                        state.break_even.get() * 1e6
                    )
                })
                .collect::<Vec<_>>()
                .join(", "),
            "Linux' table for this processor; C6 breaks even at 1 ms (Figure 2); watts are those of a server processor, assumed",
        ),
        (
            "watts".to_owned(),
            format!(
                "a running core {:.0}, a package beside its cores {:.0}, disks {:.0}",
                processor.frequency.busy_at_top().get(),
                processor.uncore.get(),
                mongodb.disk.power_w
            ),
            "assumed; counted is what the paper counts (Section 3.1): processors, memory, storage",
        ),
        (
            "CPU work of a query".to_owned(),
            format!(
                "MongoDB-like {:.2} ms, MySQL-like {:.2} ms, exponential",
                milliseconds(&mongodb),
                milliseconds(&mysql)
            ),
            "assumed: some six cores of a MongoDB that its disks bound (Figure 4a), a MySQL that its processor bounds",
        ),
        (
            "instructions per query over threads".to_owned(),
            "MongoDB-like 1.05 at 64, 1.27 from 128 on; MySQL-like 1.11 at 64 to 6.14 at 512".to_owned(),
            "Figure 3; straight between what is printed, over threads that run or wait for the disk",
        ),
        (
            "disks".to_owned(),
            format!(
                "{} accesses at once, {:.1} ms each, one in {:.0} % and {:.0} % of the queries",
                mongodb.disk.parallel,
                mongodb.disk.service_s * 1e3,
                mongodb.disk.probability * 100.0,
                mysql.disk.probability * 100.0
            ),
            "five SATA SSDs (Section 5); times and shares are assumed",
        ),
        (
            "clients".to_owned(),
            format!(
                "closed loop, {:.1} ms from answer to query; at part load Poisson",
                think_s * 1e3
            ),
            "assumed; the paper's are closed",
        ),
        (
            "applications beside the server".to_owned(),
            format!(
                "{} with {THREADS} threads each, which never wait",
                APPLICATIONS.join(", ")
            ),
            "assumed: the paper names them (Section 5.4), and neither their threads nor their inputs",
        ),
        (
            "a switch, a signal".to_owned(),
            format!(
                "{:.1} µs, {:.2} µs",
                mongodb.kernel.switch_s * 1e6,
                gate.wake_s * 1e6
            ),
            "\"a few microseconds\" (Section 3.2), and Section 4",
        ),
        (
            "linger".to_owned(),
            format!(
                "{:.1} ms with the slot for the next query of a turn",
                gate.linger_s * 1e3
            ),
            "ours: the paper does not say how a batch of a client that waits for answers is filled",
        ),
        (
            "D".to_owned(),
            format!("from the load limit of {LIMIT} % by the regulator of live control, once every 0.1 s"),
            "Section 3.4; at least the break-even time or 0",
        ),
    ];
    for server in Server::ALL {
        if let Some(profile) = measured.profile(server) {
            lines.push((
                format!("{}: C, AppleS' P, saturation", server.name()),
                format!(
                    "{} workers, {} users, {:.0} queries/s",
                    profile.workers, profile.users, profile.saturated_per_s
                ),
                "measured first: C the least up to one core less than there are within 2 % of the most, P by AppleS' curve through 8, 32 and \
                 500 workers",
            ));
        }
    }
    lines.push((
        "C as built".to_owned(),
        format!("{MOST_WORKERS} workers, which give their slots back while they wait for the disk"),
        "what `headroom wrap` does; the paper's C bounds accesses too, so that its workers keep them",
    ));
    let line = |(figure, value, why): (String, String, &str)| [figure, value, why.to_owned()];
    lines.into_iter().map(line).collect()
}

/// The sheet.
pub fn sheet(measured: &Measured, rows: &[Row], args: &ReefPaperArgs) -> Sheet {
    let section = |title: &str, figures: &[&str], charts: Vec<Chart>| Section {
        title: title.to_owned(),
        tables: vec![compared(rows, figures)],
        charts,
        ..Section::default()
    };
    let words = |header: &[&str], rows: Vec<Vec<String>>| Grid {
        words: (0..header.len()).collect(),
        header: header.iter().map(|&name| name.to_owned()).collect(),
        rows,
        caption: String::new(),
    };
    let mut remarks = vec![
        "Simulated: ours are figures of a model of a server with a thread per connection, not of MongoDB and MySQL. Given are the paper's \
         instructions per query over threads and the break-even time of C6; work, disks and watts are assumed; everything on call is a \
         prediction."
            .to_owned(),
        Estimate::explained(args.seeds),
        "The disks serve first come, first served, so that a server that they bound has a short tail alone, which the paper's has not: \
         over the server alone no tail gets shorter there."
            .to_owned(),
        "REEF here keeps a worker's slot while it waits for the disk, as its C is to bound accesses; `as built` is what `headroom wrap` does, \
         which gives it back."
            .to_owned(),
    ];
    if args.duration < 10.0 {
        remarks.push(format!(
            "Runs of {} s: a look, not a reproduction.",
            args.duration
        ));
    }
    let mut sections = vec![
        Section {
            title: "One calibration for all figures".to_owned(),
            tables: vec![words(
                &["of the server", "value", "why"],
                calibration(measured).into_iter().map(Vec::from).collect(),
            )],
            charts: vec![charts::profile(measured)],
            ..Section::default()
        },
        section(
            "Figure 2: what deep sleep costs",
            &["2"],
            vec![charts::figure_2()],
        ),
        section(
            "Figure 3: instructions per query",
            &["3"],
            vec![charts::figure_3(measured)],
        ),
        section(
            "Figures 4 and 5: threads packed on fewer cores, MongoDB-like",
            &["4", "5"],
            charts::packed(measured),
        ),
        section(
            "Idle periods over load, MongoDB-like",
            &["Eq. 2"],
            charts::idle(measured),
        ),
        section("Figure 9: the load limit", &["9"], charts::figure_9(measured)),
        section("Figure 10: the batch size", &["10"], charts::figure_10(measured)),
        section(
            "Figure 11: what a turn costs",
            &["11"],
            vec![charts::figure_11(measured)],
        ),
        section(
            "Figure 12: MongoDB-like",
            &["12"],
            charts::over_alone(measured, "Figure 12", Server::Mongodb),
        ),
        section(
            "Figure 13: MySQL-like",
            &["13"],
            charts::over_alone(measured, "Figure 13", Server::Mysql),
        ),
        section(
            "Figure 14: power and idle states",
            &["14"],
            Server::ALL
                .into_iter()
                .flat_map(|server| charts::figure_14(measured, server))
                .collect(),
        ),
        Section {
            text: vec![populations::BEFORE.to_owned()],
            ..section(
                "Figures 15 and 16: connections with SLOs",
                &["15", "16"],
                Vec::new(),
            )
        },
        section("Figure 17: the kernel's schedulers", &["17"], Vec::new()),
        section(
            "Figures 18 to 20: divided cores, SLOs tightened",
            &["18", "19", "20"],
            charts::tightened(measured),
        ),
        section(
            "Figure 21: MySQL-like beside three applications that compute",
            &["21"],
            Vec::new(),
        ),
    ];
    sections.push(Section {
        title: "Left out".to_owned(),
        tables: vec![words(
            &["what", "why"],
            LEFT_OUT
                .iter()
                .map(|(what, why)| vec![(*what).to_owned(), (*why).to_owned()])
                .collect(),
        )],
        ..Section::default()
    });
    sections.push(Section {
        title: "All runs".to_owned(),
        tables: Server::ALL
            .into_iter()
            .map(|server| every(measured, server))
            .collect(),
        ..Section::default()
    });
    Sheet {
        kind: "headroom reproduce".to_owned(),
        title: "REEF: threads on call, the paper's evaluation, simulated".to_owned(),
        lead: format!(
            "The numbers of Li, Jiang, Che and Wang, SoCC 2025, compared with ours: {} seeds of {} s.",
            args.seeds, args.duration
        ),
        facts: vec![format!("headroom {}", env!("CARGO_PKG_VERSION"))],
        remarks,
        sections,
        provenance: None,
    }
}

/// What real servers did.
pub fn live(live: &Live, rows: &[Row]) -> Section {
    Section {
        title: "Live: real servers, alone and wrapped".to_owned(),
        text: vec![
            "Measured by scripts/oncall/live on the machine on which it was run, not simulated: the server on one processor, its clients on another. \
             Latencies are the clients'; watts are the meter's of that machine, estimated where it has no sensor."
                .to_owned(),
        ],
        tables: std::iter::once(compared(rows, &FIGURES)).chain(live.tables()).collect(),
        ..Section::default()
    }
}

/// Every run of a server.
fn every(measured: &Measured, server: Server) -> Grid {
    let cases = measured.cases.iter().zip(&measured.runs);
    let rows = cases
        .filter(|(case, _)| case.server == server)
        .map(|(case, runs)| {
            let of = |pick: fn(&Run) -> f64, decimals: usize| {
                let values: Vec<f64> = runs.iter().map(pick).collect();
                Estimate::of(&values).map_or_else(|| "-".to_owned(), |estimate| estimate.written(decimals))
            };
            let name = match case.world {
                World::Workers(_) => "everybody in turn, N 2".to_owned(),
                _ => case.who.name(),
            };
            vec![
                case.world.name(),
                name,
                of(|run| run.throughput_per_s, 0),
                of(|run| run.mean_ms, 2),
                of(|run| run.p99_ms, 2),
                of(|run| run.p999_ms, 2),
                of(|run| run.power_w, 1),
                of(|run| run.ee_tpp, 1),
                of(|run| run.ee_p99, 1),
                of(|run| run.ee_p999, 1),
                of(|run| run.ipq, 2),
                of(|run| run.switches, 2),
                of(|run| run.cores_busy_percent, 1),
                of(|run| run.disks_busy_percent, 1),
                of(|run| run.opportunity_percent, 1),
                of(super::rows::deepest, 1),
                of(|run| run.delay_ms, 2),
            ]
        });
    Grid {
        caption: server.name().to_owned(),
        header: [
            "world",
            "who",
            "queries/s",
            "mean ms",
            "P99 ms",
            "P99.9 ms",
            "W simulated",
            "EE(TPP)",
            "EE(P99)",
            "EE(P99.9)",
            "IPQ",
            "switches",
            "cores busy %",
            "disks busy %",
            "C6 opportunity %",
            "in C6 %",
            "D ms",
        ]
        .map(str::to_owned)
        .to_vec(),
        rows: rows.collect(),
        words: vec![0, 1],
    }
}
