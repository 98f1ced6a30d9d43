//! The plots: Table II's curve, and the first seed's samples.

use super::Measured;
use super::plan::{BATCHING, BOTH, DVFS, NONE, SEEK, SEEK_DVFS, TABLE_2, Who, World};
use headroom_record::report::{Chart, Curve, Stroke};
use headroom_record::statistics::Estimate;
use headroom_sim::tiers::TiersSample;

fn curve(label: String, points: Vec<(f64, f64)>, stroke: Stroke) -> Curve {
    Curve {
        label,
        points,
        stroke,
    }
}

/// Table II, the paper's curve and ours.
pub fn table_2(measured: &Measured) -> Chart {
    let mean = |who: Who| {
        let each = measured.each(World::Dynamic, who, |run| run.response_ms);
        Estimate::of(&each).map(|estimate| estimate.mean)
    };
    let ours = measured.plan.intervals_ms.iter();
    let ours = ours.filter_map(|ms| Some((f64::from(*ms), mean(Who::Interval(*ms))?)));
    let paper = TABLE_2
        .iter()
        .filter_map(|(ms, response)| Some((f64::from(*ms), response.parse().ok()?)));
    let paper: Vec<(f64, f64)> = paper.collect();
    let ends = [paper.first(), paper.last()].map(|point| point.map_or(0.0, |point| point.0));
    // What has no fixed interval goes across. These lie together, so that the legend has their figures.
    let across = [("no batching", NONE), ("batching", BATCHING), ("seek", SEEK)];
    let across = across.into_iter().filter_map(|(label, who)| {
        let mean = mean(who)?;
        let points = ends.iter().map(|end| (*end, mean)).collect();
        Some(curve(format!("{label}, {mean:.0} ms"), points, Stroke::Line))
    });
    let mut curves = vec![
        curve("the paper".to_owned(), paper.clone(), Stroke::Quiet),
        curve("ours".to_owned(), ours.collect(), Stroke::Marked),
    ];
    curves.extend(across);
    Chart {
        title: "Table II: mean response time".to_owned(),
        unit: "ms".to_owned(),
        over: Some("the interval in ms".to_owned()),
        curves,
        ..Chart::default()
    }
}

/// A figure of each sample of the first seed.
fn samples(measured: &Measured, world: World, who: Who, pick: fn(&TiersSample) -> f64) -> Option<Curve> {
    let run = measured.of(world, who).first()?;
    let begins_s = run.samples.first()?.at.get() - measured.plan.calibration.step_s;
    let points = run
        .samples
        .iter()
        .map(|sample| (sample.at.get() - begins_s, pick(sample)));
    Some(curve(who.name(), points.collect(), Stroke::Line))
}

fn response_ms(sample: &TiersSample) -> f64 {
    sample
        .counts
        .mean_response()
        .map_or(f64::NAN, |mean| mean.as_millis())
}
fn throughput(sample: &TiersSample) -> f64 {
    sample.counts.throughput_per_s()
}
fn hits(sample: &TiersSample) -> f64 {
    sample.counts.hit_ratio() * 100.0
}
fn interval_ms(sample: &TiersSample) -> f64 {
    sample.counts.mean_interval_s() * 1e3
}
fn utilisation(sample: &TiersSample) -> f64 {
    sample.mean_utilisation().get() * 100.0
}
fn ghz(sample: &TiersSample) -> f64 {
    sample.counts.mean_hertz() / 1e9
}
const fn watts(sample: &TiersSample) -> f64 {
    sample.power.get()
}

fn chart(
    measured: &Measured,
    world: World,
    title: &str,
    unit: &str,
    pick: fn(&TiersSample) -> f64,
    who: &[Who],
) -> Chart {
    Chart {
        title: format!("{title}, {}", world.name()),
        unit: unit.to_owned(),
        curves: who
            .iter()
            .filter_map(|who| samples(measured, world, *who, pick))
            .collect(),
        ..Chart::default()
    }
}

/// Figures 7 and 8.
pub fn performance(measured: &Measured) -> Vec<Chart> {
    let world = World::Dynamic;
    let best = measured.best_fixed();
    let all = [NONE, best, BATCHING, SEEK];
    let mut users = samples(measured, world, NONE, |sample| f64::from(sample.users));
    if let Some(curve) = &mut users {
        curve.label = "users".to_owned();
        // The number at a sample's end is the next one's: they change at once.
        let steps = measured.plan.calibration.steps.iter();
        for (point, users) in curve.points.iter_mut().zip(steps) {
            point.1 = f64::from(*users);
        }
    }
    let target_ms = measured.plan.calibration.service.target_s * 1e3;
    vec![
        Chart {
            title: "Figure 7(a): the load".to_owned(),
            unit: "users".to_owned(),
            curves: users.into_iter().collect(),
            ..Chart::default()
        },
        Chart {
            marks: vec![("SLA".to_owned(), target_ms)],
            ..chart(
                measured,
                world,
                "Figure 7(b): mean response time",
                "ms",
                response_ms,
                &all,
            )
        },
        chart(
            measured,
            world,
            "Figure 7(c): throughput",
            "requests/s",
            throughput,
            &all,
        ),
        chart(
            measured,
            world,
            "Figure 8(a): interval",
            "ms",
            interval_ms,
            &[best, BATCHING, SEEK],
        ),
        chart(measured, world, "Figure 8(b): cache hit rate", "%", hits, &all),
        chart(
            measured,
            world,
            "Figure 8(c): CPU utilisation",
            "%",
            utilisation,
            &all,
        ),
    ]
}

/// Figure 9.
pub fn power(measured: &Measured) -> Vec<Chart> {
    let all = [NONE, DVFS, BOTH, SEEK_DVFS];
    vec![
        chart(
            measured,
            World::Dynamic,
            "Figure 9(a): frequency",
            "GHz",
            ghz,
            &all,
        ),
        chart(
            measured,
            World::Dynamic,
            "Figure 9(b): power, simulated",
            "W",
            watts,
            &all,
        ),
    ]
}

/// Figures 10 and 11.
pub fn stationary(measured: &Measured, users: u32) -> Vec<Chart> {
    let (world, all) = (World::Stationary(users), [NONE, BATCHING, SEEK]);
    vec![
        chart(measured, world, "(a) Mean response time", "ms", response_ms, &all),
        chart(measured, world, "(b) Throughput", "requests/s", throughput, &all),
        chart(measured, world, "(c) Cache hit rate", "%", hits, &all),
    ]
}
