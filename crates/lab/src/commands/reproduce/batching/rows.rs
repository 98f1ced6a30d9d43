//! The paper's numbers, ours, and where ours fall short: by how much, and why.

use super::super::rows::Row;
use super::super::why;
use super::Measured;
use super::measure::Run;
use super::plan::{
    BATCHING, BOTH, CACHES_MB, DVFS, HARMFUL, LIVE, NONE, SEEK, SEEK_DVFS, SIZES_KB, TABLE_2, Who, World,
};
use headroom_record::statistics::Estimate;

/// Why the paper's control is no better than an interval that stays.
const STEERS: &str = "it steers to the SLA (Equation 10), not to the least mean";
/// Why ours is not.
const SLOW: &str = "requests that are held are late at once, and what that saves shows after several response times: a comparison takes \
                    dozens of them, and its first intervals are short";
/// Why the fixed intervals' curve lies elsewhere.
const CURVE: &str = "in a closed loop without pauses an interval delays nobody while the tiers are busy all the time: only from about \
                     the time that they need for everybody's requests does it";
/// Why energy differs.
const ENERGY: &str = "the paper estimates by the frequency alone; here a core that is slower is busy for longer, and the rest of the \
                      machine draws what it draws";
/// Why the power control saves as it does.
const RULES: &str = "the paper does not print its rule table, ours stands for it; a service that is busy all the time needs the highest \
                     frequency";
/// What a loss must not exceed where batching cannot help, percent.
const MAX_LOSS_PERCENT: f64 = 2.0;

/// A number of the paper that ours is to reach.
#[derive(Clone, Copy)]
struct Printed {
    text: &'static str,
    value: f64,
}

const fn printed(text: &'static str, value: f64) -> Option<Printed> {
    Some(Printed { text, value })
}

/// A row of a gain: where the paper's lies above the interval of ours, it is said by how much, and why.
fn gain(figure: &'static str, what: String, paper: Option<Printed>, ours: &[f64], cause: &str) -> Row {
    let estimate = Estimate::of(ours);
    let short = paper
        .zip(estimate)
        .map(|(paper, ours)| why::of_gain(ours, (paper.value, 0.0), cause));
    Row {
        figure,
        what,
        paper: paper.map_or("-", |paper| paper.text),
        ours: estimate,
        decimals: 1,
        why: short.unwrap_or_default(),
    }
}

/// Of the figure `pick`, whose gain is printed as `paper`: how much of it a batch can bring here.
fn spared(measured: &Measured, pick: Figure, paper: Option<Printed>) -> String {
    let all = measured.ratios((World::Dynamic, NONE), (World::Collapsing, NONE), pick.of);
    let all: Vec<f64> = all
        .into_iter()
        .map(|ratio| (ratio - 1.0) * pick.sign * 100.0)
        .collect();
    paper.map_or_else(String::new, |paper| {
        why::of_spared(Estimate::of(&all), paper.value)
    })
}

/// A figure of a run, and 1 where more of it is a gain, -1 where less is.
#[derive(Clone, Copy)]
struct Figure {
    of: fn(&Run) -> f64,
    sign: f64,
}

const TIME: Figure = Figure {
    of: response,
    sign: -1.0,
};
const RATE: Figure = Figure {
    of: throughput,
    sign: 1.0,
};

/// Why a law gains less than the paper's: what an interval that stays gains in the same service is not the law's lack.
fn lacking(measured: &Measured, (world, who): (World, Who), pick: Figure, paper: Option<Printed>) -> String {
    let less = spared(measured, pick, paper);
    let fixed = match world {
        World::Dynamic => measured.best_fixed(),
        _ => Who::Interval(300),
    };
    let mean = |values: &[f64]| Estimate::of(values).map_or(f64::NAN, |estimate| estimate.mean);
    match who {
        Who::Interval(_) => less,
        Who::Laws(_) | Who::EachBatch(_) => format!(
            "its interval is {:.0} ms in the mean, where {} takes {:.1} % off the response time; the rest: {less}",
            mean(&measured.each(world, who, |run| run.interval_ms)),
            fixed.name(),
            mean(&measured.less(world, fixed, response)),
        ),
    }
}

/// A row of a figure that is no gain.
fn plain(
    figure: &'static str,
    what: String,
    paper: &'static str,
    ours: &[f64],
    decimals: usize,
    why: &str,
) -> Row {
    Row {
        figure,
        what,
        paper,
        ours: Estimate::of(ours),
        decimals,
        why: why.to_owned(),
    }
}

const fn response(run: &Run) -> f64 {
    run.response_ms
}
const fn throughput(run: &Run) -> f64 {
    run.throughput_per_s
}
const fn power(run: &Run) -> f64 {
    run.power_w
}
const fn per_request(run: &Run) -> f64 {
    run.energy_per_request_mj
}
const fn by_frequency(run: &Run) -> f64 {
    run.by_frequency_w
}
const fn hits(run: &Run) -> f64 {
    run.hit_percent
}
const fn late(run: &Run) -> f64 {
    run.over_percent
}

/// All rows.
pub fn rows(measured: &Measured) -> Vec<Row> {
    let mut rows = calibrated(measured);
    rows.extend(table_2(measured));
    rows.extend(table_3(measured));
    rows.extend(energy(measured));
    rows.extend(table_4(measured));
    rows.extend(figure_12(measured));
    rows.extend(collapsing(measured));
    rows.extend(harmless(measured));
    rows
}

/// What the calibration is held against.
fn calibrated(measured: &Measured) -> Vec<Row> {
    let users = measured.plan.calibration.stationary_users;
    let texts = ["712", "1091"];
    let each = users.into_iter().zip(texts).map(|(users, paper)| {
        let ours = measured.each(World::Stationary(users), NONE, response);
        let what = format!("{users} users, no batching: mean response time, ms");
        plain("calibration", what, paper, &ours, 0, "")
    });
    each.collect()
}

fn table_2(measured: &Measured) -> Vec<Row> {
    let best = measured.best_fixed();
    let mut rows = Vec::new();
    let without = measured.each(World::Dynamic, NONE, response);
    rows.push(plain(
        "II",
        "no batching: mean response time, ms".to_owned(),
        "about 941: 10 % over 847",
        &without,
        0,
        "",
    ));
    for (ms, paper) in TABLE_2
        .iter()
        .filter(|(ms, _)| measured.plan.intervals_ms.contains(ms))
    {
        let ours = measured.each(World::Dynamic, Who::Interval(*ms), response);
        let Some(estimate) = Estimate::of(&ours) else {
            continue;
        };
        let paper_ms = paper.parse::<f64>();
        let why = paper_ms.map_or_else(|_| String::new(), |ms| why::of_near(estimate, ms, 10.0, CURVE));
        rows.push(plain(
            "II",
            format!("{ms} ms: mean response time, ms"),
            paper,
            &ours,
            0,
            &why,
        ));
    }
    if let Who::Interval(ms) = best {
        let what = "the interval of the least mean response time, ms".to_owned();
        rows.push(plain(
            "II",
            what,
            "300",
            &[f64::from(ms)],
            0,
            if ms == 300 { "" } else { CURVE },
        ));
    }
    rows
}

/// Table III and Figures 7 and 8: the dynamic load.
fn table_3(measured: &Measured) -> Vec<Row> {
    let best = measured.best_fixed();
    let cases = [
        (best, printed("10", 10.0), printed("6", 6.0)),
        (BATCHING, printed("18", 18.0), printed("13", 13.0)),
        (BOTH, printed("18", 18.0), printed("13", 13.0)),
        (LIVE, None, None),
        (SEEK, printed("18", 18.0), printed("13", 13.0)),
        (SEEK_DVFS, None, None),
        (DVFS, None, None),
    ];
    let mut rows = Vec::new();
    for (who, time, rate) in cases {
        let (world, name) = (World::Dynamic, who.name());
        let cause = lacking(measured, (world, who), TIME, time);
        let what = format!("{name}: mean response time less than without, %");
        rows.push(gain(
            "III",
            what,
            time,
            &measured.less(world, who, response),
            &cause,
        ));
        let cause = lacking(measured, (world, who), RATE, rate);
        let what = format!("{name}: throughput more than without, %");
        rows.push(gain(
            "III",
            what,
            rate,
            &measured.more(world, who, throughput),
            &cause,
        ));
    }
    for (who, cause) in [(BATCHING, STEERS), (SEEK, SLOW)] {
        let over_best = measured.less_than((World::Dynamic, best), (World::Dynamic, who), response);
        let what = format!(
            "{}: mean response time less than with the best fixed interval, %",
            who.name()
        );
        rows.push(gain("7", what, printed("7", 7.0), &over_best, cause));
    }
    for who in [NONE, best, BATCHING, SEEK] {
        let ours = measured.each(World::Dynamic, who, hits);
        rows.push(plain(
            "8",
            format!("{}: cache hit rate, %", who.name()),
            "not printed",
            &ours,
            1,
            "",
        ));
        let ours = measured.each(World::Dynamic, who, late);
        rows.push(plain(
            "7",
            format!("{}: samples over the SLA, %", who.name()),
            "not printed",
            &ours,
            0,
            "",
        ));
    }
    rows
}

/// Figure 9: power.
fn energy(measured: &Measured) -> Vec<Row> {
    let mut rows = Vec::new();
    for (who, paper) in [
        (DVFS, printed("7", 7.0)),
        (BOTH, printed("13", 13.0)),
        (SEEK_DVFS, None),
        (BATCHING, None),
        (SEEK, None),
    ] {
        let (world, name) = (World::Dynamic, who.name());
        let what = format!("{name}: energy saved, estimated by the frequency alone as in the paper, %");
        rows.push(gain(
            "9",
            what,
            paper,
            &measured.less(world, who, by_frequency),
            RULES,
        ));
        let what = format!("{name}: energy saved, simulated, %");
        rows.push(gain("9", what, paper, &measured.less(world, who, power), ENERGY));
        let what = format!("{name}: energy per request saved, simulated, %");
        rows.push(gain(
            "9",
            what,
            None,
            &measured.less(world, who, per_request),
            ENERGY,
        ));
    }
    rows
}

/// Table IV, Figures 10 and 11.
fn table_4(measured: &Measured) -> Vec<Row> {
    let [under, over] = measured.plan.calibration.stationary_users;
    let mut rows = Vec::new();
    let papers = [
        (
            under,
            printed("13 (712 to 619 ms; the table has 15)", 13.1),
            printed("14", 14.0),
            printed("7", 7.0),
            "10",
        ),
        (
            over,
            printed("16 (1091 to 917 ms; the table has 19)", 15.9),
            printed("17", 17.0),
            printed("3", 3.0),
            "11",
        ),
    ];
    for (users, time, rate, saved, figure) in papers {
        let world = World::Stationary(users);
        for who in [BATCHING, LIVE, SEEK, BOTH, SEEK_DVFS, Who::Interval(300), DVFS] {
            let is_batching = who != DVFS;
            let (time, rate) = (time.filter(|_| is_batching), rate.filter(|_| is_batching));
            let cause = lacking(measured, (world, who), TIME, time);
            let name = format!("{users} users, {}", who.name());
            let what = format!("{name}: mean response time less than without, %");
            rows.push(gain(
                figure,
                what,
                time,
                &measured.less(world, who, response),
                &cause,
            ));
            let cause = lacking(measured, (world, who), RATE, rate);
            let what = format!("{name}: throughput more than without, %");
            rows.push(gain(
                figure,
                what,
                rate,
                &measured.more(world, who, throughput),
                &cause,
            ));
            let what = format!("{name}: energy saved, estimated by the frequency alone, %");
            let with_power = matches!(who, BOTH | SEEK_DVFS | DVFS);
            rows.push(gain(
                figure,
                what,
                saved.filter(|_| with_power),
                &measured.less(world, who, by_frequency),
                RULES,
            ));
        }
        let ratio = measured.ratios((world, NONE), (world, BATCHING), hits);
        let what = format!("{users} users, batching: cache hit rate over that without");
        let paper = (users == over).then_some(Printed {
            text: "3",
            value: 3.0,
        });
        let cause =
            "why is not known: the paper prints no hit rate, only that it is three times that without";
        let why = paper.zip(Estimate::of(&ratio));
        let why = why.map_or_else(String::new, |(paper, ours)| {
            why::of_gain(ours, (paper.value, 1.0), cause)
        });
        let paper = paper.map_or("-", |paper| paper.text);
        rows.push(plain(figure, what, paper, &ratio, 1, &why));
    }
    rows
}

/// Figure 12: only that the improvement falls with the cache and rises with the size is printed.
fn figure_12(measured: &Measured) -> Vec<Row> {
    let mut rows = Vec::new();
    for who in [BATCHING, SEEK] {
        for mb in CACHES_MB {
            for kb in SIZES_KB {
                let ours = measured.less(World::Cache(mb, kb), who, response);
                if ours.is_empty() {
                    continue;
                }
                let what = format!(
                    "{}, {mb} MB, {kb} KB: mean response time less than without, %",
                    who.name()
                );
                rows.push(plain(
                    "12",
                    what,
                    "less with a larger cache, more with larger requests",
                    &ours,
                    1,
                    "",
                ));
            }
        }
    }
    rows
}

/// What batching is worth beside a cache whose requests wait for each other's fetches.
fn collapsing(measured: &Measured) -> Vec<Row> {
    let mut rows = Vec::new();
    let world = World::Collapsing;
    let by_itself = measured.less_than((World::Dynamic, NONE), (world, NONE), response);
    let what = "collapsing alone, no batching: mean response time less than without both, %".to_owned();
    rows.push(gain("collapse", what, None, &by_itself, ""));
    for who in [Who::Interval(300), BATCHING, SEEK] {
        let what = format!(
            "{}: mean response time less than with collapsing alone, %",
            who.name()
        );
        rows.push(gain(
            "collapse",
            what,
            None,
            &measured.less(world, who, response),
            "",
        ));
    }
    rows
}

/// Where batching can only cost time: how much more it is.
fn harmless(measured: &Measured) -> Vec<Row> {
    let mut rows = Vec::new();
    for world in HARMFUL {
        for who in [SEEK, LIVE, BATCHING] {
            let ours = measured.more(world, who, response);
            let cause = match who {
                SEEK => "",
                _ => ": as published it tries intervals to learn, and steers to the SLA",
            };
            let why = Estimate::of(&ours);
            let why = why.map_or_else(String::new, |ours| why::of_loss(ours, MAX_LOSS_PERCENT, cause));
            let what = format!(
                "{}, {}: mean response time more than without, %",
                world.name(),
                who.name()
            );
            let paper = if who == SEEK {
                "at most 2, ours to keep"
            } else {
                "-"
            };
            rows.push(plain("harm", what, paper, &ours, 1, &why));
        }
    }
    rows
}
