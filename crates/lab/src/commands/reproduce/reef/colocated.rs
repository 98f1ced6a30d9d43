//! Figure 21: the relational server beside three applications that compute.

use super::super::rows::Row;
use super::Measured;
use super::measure::{Pick, Run};
use super::plan::{COLOCATED, MOST, Server, Who, World};
use super::rows::{deepest, gain, less, more, plain, printed};

const SERVER: Server = Server::Mysql;
const WORLD: World = World::Colocated;

/// Why throughput differs by so much.
const CURVE: &str = "instructions per query grow to six times with 512 active threads, as the paper measured, and all of a query is CPU work here";
/// Why the applications come off so.
const FAIR: &str = "without a division each thread has an equal share of its core: beside 23 workers the 24 threads of the applications have about \
                    half of the cores, beside SATORI's division what it gives them";
/// Why the totals are so far apart.
const CORES: &str = "SATORI-style divides cores alone here, neither caches nor bandwidth, and samples one division after another: the server that it \
                     leaves alone on few cores has six times the instructions";
/// Why both together come off worse than REEF.
const SAMPLES: &str = "the search for a division costs: each sample is in force for a period, and cores of the one that is too large idle";

/// All rows.
pub fn rows(measured: &Measured) -> Vec<Row> {
    let [satori, apples, reef, both] = COLOCATED;
    let ratios =
        |first: Who, second: Who, pick: Pick| measured.ratios(SERVER, (WORLD, first), (WORLD, second), pick);
    // Over the server alone on the whole machine; the applications over cores of their own.
    let alone = measured.mean(SERVER, World::Connections(MOST), Who::ALONE, |run| {
        run.throughput_per_s
    });
    let normalised = |run: &Run| (run.throughput_per_s / alone + 3.0 * run.others_share) / 4.0;
    let total = |who: Who| measured.each(SERVER, WORLD, who, normalised);
    let mut rows = vec![
        gain(
            "21",
            "REEF over SATORI-style: throughput of the server more, %",
            printed("57.38", 57.38),
            (&more(&ratios(satori, reef, |run| run.throughput_per_s)), 0.0),
            FAIR,
        ),
        gain(
            "21",
            "REEF over SATORI-style: P99 less, %",
            printed("81.64", 81.64),
            (&less(&ratios(satori, reef, |run| run.p99_ms)), 0.0),
            FAIR,
        ),
        gain(
            "21",
            "REEF over SATORI-style: P99.9 less, %",
            printed("83.00", 83.0),
            (&less(&ratios(satori, reef, |run| run.p999_ms)), 0.0),
            FAIR,
        ),
        gain(
            "21",
            "REEF over SATORI-style: instructions per query less, %",
            printed("61.09", 61.09),
            (&less(&ratios(satori, reef, |run| run.ipq)), 0.0),
            CURVE,
        ),
        plain(
            "21",
            "REEF over SATORI-style: throughput of the applications less, %",
            "3.54",
            &less(&ratios(satori, reef, |run| run.others_share)),
            1,
            FAIR,
        ),
        plain(
            "21",
            "REEF over AppleS: throughput of the applications more, %",
            "more",
            &more(&ratios(apples, reef, |run| run.others_share)),
            1,
            FAIR,
        ),
    ];
    let apart: Vec<f64> = total(reef)
        .iter()
        .zip(total(satori))
        .map(|(reef, satori)| (reef / satori - 1.0) * 100.0)
        .collect();
    rows.push(gain(
        "21",
        "REEF over SATORI-style: normalised total throughput more, %",
        printed("9", 9.0),
        (&apart, 0.0),
        CORES,
    ));
    rows.push(gain(
        "21",
        "REEF + SATORI-style over REEF: throughput of the applications more, %",
        printed("2.78", 2.78),
        (&more(&ratios(reef, both, |run| run.others_share)), 0.0),
        SAMPLES,
    ));
    rows.push(plain(
        "21",
        "REEF + SATORI-style over REEF: throughput of the server more, %",
        "minimal impact",
        &more(&ratios(reef, both, |run| run.throughput_per_s)),
        1,
        SAMPLES,
    ));
    let watts: Vec<f64> = measured.each(SERVER, WORLD, satori, |run| run.power_w);
    let reefs = measured.each(SERVER, WORLD, reef, |run| run.power_w);
    let apart: Vec<f64> = reefs
        .iter()
        .zip(watts)
        .map(|(reef, satori)| reef - satori)
        .collect();
    rows.push(plain(
        "21",
        "REEF over SATORI-style: power more, W",
        "0.7",
        &apart,
        1,
        "SATORI-style gives the applications more cores than they have threads for, and the server few: those cores sleep, and cost throughput",
    ));
    for who in COLOCATED {
        let name = who.name();
        let picks: [(&str, Pick, usize); 5] = [
            (
                "throughput of the server, queries/s",
                |run| run.throughput_per_s,
                0,
            ),
            ("P99, ms", |run| run.p99_ms, 0),
            ("instructions per query", |run| run.ipq, 2),
            ("applications over cores of their own", |run| run.others_share, 2),
            ("cores' time in C6, %", deepest, 1),
        ];
        for (what, pick, decimals) in picks {
            let ours = measured.each(SERVER, WORLD, who, pick);
            rows.push(plain(
                "21",
                format!("{name}: {what}"),
                "not printed",
                &ours,
                decimals,
                "",
            ));
        }
    }
    rows
}
