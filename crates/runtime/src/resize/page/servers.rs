//! What is told of the servers: their states over time, their queues, each one's figures.

use super::{chart, curve};
use crate::resize::history::{History, Point, STATES, ServerPoint, ServerTotal};
use headroom_record::report::{Curve, Grid, Section, Stay, Stroke, Timeline, Tint};
use headroom_units::Ratio;

/// The servers that have curves of their own: those whose queues were longest and whose drops were most.
const CURVES: usize = 7;
/// The colours of the states, in their order.
const TINTS: [Tint; 7] = [
    Tint::Bed,
    Tint::Colour(5),
    Tint::Colour(6),
    Tint::Colour(3),
    Tint::Colour(1),
    Tint::Colour(4),
    Tint::Alarm,
];

pub(super) fn servers(history: &History) -> Section {
    let counted = |states: &'static [usize]| {
        move |point: &Point| {
            let seconds = point.to_s - point.from_s;
            let of = |one: &ServerPoint| states.iter().map(|state| one.state_s[*state]).sum::<f64>();
            (seconds > 0.0).then(|| point.servers.iter().map(of).sum::<f64>() / seconds)
        }
    };
    let rows = history.servers.iter().enumerate();
    let timeline = Timeline {
        title: "Each server by its state".to_owned(),
        states: STATES
            .iter()
            .zip(TINTS)
            .map(|(name, tint)| ((*name).to_owned(), tint))
            .collect(),
        rows: rows
            .map(|(at, one)| (one.name.clone(), stays(history, at)))
            .collect(),
    };
    let mut counts = vec![
        curve("taking requests", history, Stroke::Step, counted(&[2, 3])),
        curve("wanted", history, Stroke::Step, |point| point.wanted.value()),
    ];
    // The others stand in the timeline, unless it does not hold them all.
    if history.servers.len() > Timeline::ROWS_MAX {
        counts.extend([
            curve("booting", history, Stroke::Step, counted(&[1])),
            curve("draining or stopping", history, Stroke::Step, counted(&[4, 5])),
            curve("failed", history, Stroke::Step, counted(&[6])),
        ]);
    }
    Section {
        title: "Servers".to_owned(),
        timelines: vec![timeline],
        charts: chart("How many of them", "servers", counts).into_iter().collect(),
        ..Section::default()
    }
}

pub(super) fn each_server(history: &History) -> Section {
    let head = [
        "server",
        "takes requests %",
        "off %",
        "starts",
        "failures",
        "attempts",
        "dropped %",
        "longest queue",
        "capacity/s, last estimate",
    ];
    Section {
        title: "Each server over the run".to_owned(),
        tables: vec![Grid {
            header: head.map(str::to_owned).to_vec(),
            rows: history.servers.iter().map(server_row).collect(),
            words: vec![0],
            ..Grid::default()
        }],
        ..Section::default()
    }
}

fn server_row(one: &ServerTotal) -> Vec<String> {
    let all_s: f64 = one.all.state_s.iter().sum();
    let percent = |seconds: f64| match all_s > 0.0 {
        true => format!("{:.1}", seconds / all_s * 100.0),
        false => "-".to_owned(),
    };
    let [off, _, warming, serving, ..] = one.all.state_s;
    let ratio = one.all.drop_ratio().map(Ratio::as_percent);
    vec![
        one.name.clone(),
        percent(warming + serving),
        percent(off),
        one.starts.to_string(),
        one.failures.to_string(),
        match one.all.attempts > 0.0 {
            true => format!("{:.0}", one.all.attempts),
            false => "-".to_owned(),
        },
        ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.3}")),
        one.queue_most
            .map_or("-".to_owned(), |queue| format!("{queue:.1}")),
        one.capacity
            .map_or("-".to_owned(), |(capacity, given)| match given {
                true => format!("{capacity}, given"),
                false => capacity.to_string(),
            }),
    ]
}

/// A server's times in each state: the one of each point, neighbours joined.
fn stays(history: &History, server: usize) -> Vec<Stay> {
    let mut stays: Vec<Stay> = Vec::new();
    for point in history.points() {
        let Some(one) = point.servers.get(server) else {
            continue;
        };
        let state = one.state();
        match stays.last_mut().filter(|last| last.state == state) {
            Some(last) => last.to_s = point.to_s,
            None => stays.push(Stay {
                from_s: point.from_s,
                to_s: point.to_s,
                state,
            }),
        }
    }
    stays
}

pub(super) fn queues(history: &History) -> Section {
    let mut order: Vec<usize> = (0..history.servers.len()).collect();
    let weight = |at: &usize| {
        let one = &history.servers[*at];
        (one.all.drops, one.queue_most.unwrap_or_default())
    };
    order.sort_by(|one, other| {
        let (one, other) = (weight(one), weight(other));
        other.0.total_cmp(&one.0).then(other.1.total_cmp(&one.1))
    });
    order.truncate(CURVES);
    order.sort_unstable();
    let each = |of: fn(&ServerPoint) -> Option<f64>| -> Vec<Curve> {
        order
            .iter()
            .map(|at| {
                let of = |point: &Point| point.servers.get(*at).and_then(of);
                curve(&history.servers[*at].name, history, Stroke::Line, of)
            })
            .collect()
    };
    let charts = [
        chart(
            "Mean length of the accept queue",
            "connections",
            each(|one| one.queue.value()),
        ),
        chart(
            "Dropped at the accept queue",
            "% of attempts",
            each(|one| one.drop_ratio().map(Ratio::as_percent)),
        ),
    ];
    let mut text = vec![
        "A connection that finds the queue full is dropped, and its client tries again: each try counts."
            .to_owned(),
    ];
    if history.servers.len() > order.len() {
        text.push(format!(
            "Drawn are the {} of {} servers with the most drops and the longest queues.",
            order.len(),
            history.servers.len()
        ));
    }
    Section {
        title: "Accept queues".to_owned(),
        text,
        charts: charts.into_iter().flatten().collect(),
        ..Section::default()
    }
}
