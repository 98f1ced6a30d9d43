//! Figures 18 to 20: divided cores, and SLOs that are tightened while the server runs.

use super::super::rows::Row;
use super::Measured;
use super::measure::Pick;
use super::plan::{SCHEMES, Server, World};
use super::populations::compared_with;
use super::rows::{deepest, gain, less, more, plain, printed};
use headroom_record::statistics::Estimate;

const WORLD: World = World::Tightened;
/// Why power falls by less.
const COLD: &str = "both leave as many cores cold, and power is that of the same work on the others";

/// Why the consolidation draws more.
const FEWEST: &str = "Algorithm 1 gives best effort the fewest cores that serve its 12,500/s, and all others to the connections with SLOs, which in \
                      a closed loop send as much as they are served: no core is cold";

/// All rows.
pub fn rows(measured: &Measured) -> Vec<Row> {
    let server = Server::Mongodb;
    let [demeter, reef_demeter, consolidated] = SCHEMES.map(|who| (WORLD, who));
    let numbers = [
        (20.43, "20.43"),
        (1.7516, "1.75 (75.16 % more)"),
        (1.4346, "1.43 (43.46 % more)"),
        (0.0, "not printed"),
        (27.91, "27.91"),
        (11.99, "11.99"),
    ];
    let mut rows = compared_with(
        measured,
        "18",
        (demeter, reef_demeter),
        &numbers,
        super::rows::FIFO,
    );
    let ratios = |first, second, pick: Pick| measured.ratios(server, first, second, pick);
    let ours = less(&ratios(demeter, reef_demeter, |run| run.power_w));
    let name = format!("{} over {}", reef_demeter.1.name(), demeter.1.name());
    rows.push(gain(
        "18",
        format!("{name}: power less, %"),
        printed("18.24", 18.24),
        (&ours, 0.0),
        COLD,
    ));
    let asleep = |who| measured.each(server, WORLD, who, deepest);
    let ours: Vec<f64> = asleep(reef_demeter.1)
        .iter()
        .zip(asleep(demeter.1))
        .map(|(with, without)| with - without)
        .collect();
    rows.push(gain(
        "18",
        format!("{name}: cores' time in C6 more, points"),
        printed("20.65", 20.65),
        (&ours, 0.0),
        COLD,
    ));
    let ours = less(&ratios(demeter, reef_demeter, |run| run.sensitive_per_s));
    rows.push(plain(
        "18",
        format!("{name}: throughput of connections with SLOs less, %"),
        "less",
        &ours,
        1,
        "",
    ));
    let ours: Vec<f64> = ratios(reef_demeter, consolidated, |run| run.power_w);
    let name = format!("{} over {}", consolidated.1.name(), reef_demeter.1.name());
    rows.push(plain(
        "18",
        format!("{name}: power, times"),
        "close",
        &ours,
        3,
        FEWEST,
    ));
    for who in SCHEMES {
        let what = format!("{}: throughput of connections with SLOs, queries/s", who.name());
        let ours = measured.each(server, WORLD, who, |run| run.sensitive_per_s);
        rows.push(plain("18", what, "not printed", &ours, 0, ""));
        let cold = measured.each(server, WORLD, who, |run| run.cold_cores);
        rows.push(plain(
            "19",
            format!("{}: cores without connections", who.name()),
            "not printed",
            &cold,
            1,
            "",
        ));
        let kept = measured.each(server, WORLD, who, |run| run.kept_percent);
        let what = format!(
            "{}: periods in which all 16 keep their SLOs by their last 128 latencies, %",
            who.name()
        );
        rows.push(plain("20", what, "most with QoS-WC", &kept, 0, ""));
        let missed = measured.each(server, WORLD, who, |run| run.missed);
        let what = format!("{}: queries over target, of what may be", who.name());
        let over = Estimate::of(&missed).is_some_and(|missed| missed.mean > 1.0);
        let why = if over {
            "of the class that is worst off, with the time right after the targets fell"
        } else {
            ""
        };
        rows.push(plain("20", what, "at most 1 but for spikes", &missed, 2, why));
    }
    for (name, from) in [
        ("PSLO + REEF + Demeter", reef_demeter),
        ("PSLO + Demeter", demeter),
    ] {
        let ours = more(&ratios(from, consolidated, |run| run.best_effort_per_s));
        let what = format!("QoS-WC over {name}: best-effort throughput more, %");
        rows.push(gain("20", what, printed("7.60", 7.6), (&ours, 0.0), FEWEST));
    }
    rows
}
