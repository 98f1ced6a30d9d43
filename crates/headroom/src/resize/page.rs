//! The report of a run.

use super::history::{History, Mean, Point, RuleTotal, STATES, ServerPoint, ServerTotal};
use super::journal::Start;
use super::summary::percent;
use headroom_record::report::{Bars, Chart, Curve, Grid, Section, Sheet, Stay, Stroke, Timeline, Tint};
use headroom_record::utc_text;
use headroom_units::Ratio;
use serde_json::Value;

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

/// The page.
pub fn sheet(start: &Start, history: &History, summary: &Value, remarks: &[String]) -> Sheet {
    let mut sections = vec![load(history), servers(history), queues(history)];
    sections.extend(energy(start, history, summary));
    sections.extend([
        decisions(history),
        each_server(history),
        figures(summary),
        happened(history),
    ]);
    let mut known: Vec<String> = Vec::new();
    if start.dry_run {
        known.push("A dry run: it was said what would be done, and nothing was done.".to_owned());
    }
    known.extend(start.notes.iter().cloned());
    known.extend(remarks.iter().cloned());
    if history.periods_per_point() > 1 {
        known.push(format!(
            "In the plots a point is the mean of {} periods; the tables count each.",
            history.periods_per_point()
        ));
    }
    Sheet {
        kind: "headroom resize".to_owned(),
        title: format!(
            "{} servers under the {} controller",
            history.servers.len(),
            start.controller
        ),
        lead: lead(summary),
        facts: vec![
            utc_text((start.unix_s * 1e3) as i64),
            format!("{:.0} s", summary["duration_s"].as_f64().unwrap_or_default()),
            format!("{} periods of {} s", history.periods, start.period_s),
            format!("behind {}", start.balancer),
            format!("arrivals: {}", start.demand),
            format!("headroom {}", start.version),
        ],
        remarks: known,
        sections: sections
            .into_iter()
            .filter(|section| !is_empty(section))
            .collect(),
    }
}

fn is_empty(section: &Section) -> bool {
    section.tables.is_empty() && section.charts.is_empty() && section.timelines.is_empty()
}

/// What it came to, in a sentence or two.
fn lead(summary: &Value) -> String {
    let resize = &summary["resize"];
    let serving = resize["serving_mean"].as_f64().unwrap_or_default();
    let mut lead = format!(
        "{serving:.2} of {} servers took requests on average",
        resize["servers"]
    );
    if let Some(saving) = resize["saving"].as_f64() {
        lead.push_str(&format!(
            "; the model in [energy] estimates {} % less energy than with every server on",
            percent(saving)
        ));
    }
    lead.push('.');
    let connections = &resize["connections"];
    if let Some(drop_ratio) = connections["drop_ratio"].as_f64() {
        lead.push_str(&format!(
            " {:.4} % of {:.0} connection attempts were dropped at the accept queues.",
            drop_ratio * 100.0,
            connections["attempts"].as_f64().unwrap_or_default()
        ));
    }
    lead
}

/// A curve over the points; a value that is not known leaves a gap. The last value is held to the end.
fn curve(label: &str, history: &History, stroke: Stroke, of: impl Fn(&Point) -> Option<f64>) -> Curve {
    let value = |point: &Point| of(point).unwrap_or(f64::NAN);
    let points = history.points();
    let end = points.last().map(|last| (last.to_s, value(last)));
    Curve {
        label: label.to_owned(),
        points: points
            .iter()
            .map(|point| (point.from_s, value(point)))
            .chain(end)
            .collect(),
        stroke,
    }
}

/// A chart of the curves that have a value anywhere; `None` where none has.
fn chart(title: &str, unit: &str, curves: Vec<Curve>) -> Option<Chart> {
    let known = |curve: &Curve| curve.points.iter().any(|point| point.1.is_finite());
    let curves: Vec<Curve> = curves.into_iter().filter(known).collect();
    (!curves.is_empty()).then(|| Chart {
        title: title.to_owned(),
        unit: unit.to_owned(),
        curves,
        ..Chart::default()
    })
}

fn load(history: &History) -> Section {
    let charts = [
        chart(
            "What arrived, and what the servers that took requests could take",
            "each second",
            vec![
                curve("arrivals", history, Stroke::Line, |point| {
                    point.arrival_rate.value()
                }),
                curve("capacity", history, Stroke::Step, |point| point.capacity.value()),
            ],
        ),
        chart(
            "Latency of each period at its 95th percentile",
            "ms",
            vec![curve("P95", history, Stroke::Line, |point| point.p95_ms.value())],
        ),
    ];
    Section {
        title: "Load and capacity".to_owned(),
        text: vec![
            "The capacity is that of the servers that warm up or serve, as far as it is known: given, or estimated from \
             their accept queues. An estimate whose limit was not met yet is a lower bound, so arrivals may rise above it."
                .to_owned(),
        ],
        charts: charts.into_iter().flatten().collect(),
        ..Section::default()
    }
}

fn servers(history: &History) -> Section {
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

fn each_server(history: &History) -> Section {
    let head = [
        "server",
        "takes requests %",
        "off %",
        "starts",
        "failures",
        "attempts",
        "dropped %",
        "longest queue",
        "capacity/s, last known",
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

fn queues(history: &History) -> Section {
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

fn energy(start: &Start, history: &History, summary: &Value) -> Option<Section> {
    let spent = summary["energy_j"]["value"].as_f64()?;
    let always_on = summary["resize"]["energy_always_on_j"].as_f64()?;
    let mean = |of: fn(&Point) -> Mean| move |point: &Point| of(point).value();
    let power = chart(
        "Power of all servers, estimated",
        "W",
        vec![
            curve("as they were", history, Stroke::Step, mean(|point| point.power_w)),
            curve(
                "every server on",
                history,
                Stroke::Quiet,
                mean(|point| point.always_on_w),
            ),
        ],
    );
    // The reference has the grey that a fixed allocation has in every report.
    let bar = |law: &str, label: &str, joules: f64| (law.to_owned(), label.to_owned(), joules);
    let bars = [
        bar(&start.controller, &start.controller, spent),
        bar("fixed", "every server on", always_on),
    ];
    Some(Section {
        title: "Energy against always-on".to_owned(),
        text: vec![
            "Nobody measured these: they are what the model in [energy] says of the servers' states and of the share of \
             their capacity that was used, and of the same work spread over all servers."
                .to_owned(),
        ],
        charts: power.into_iter().collect(),
        bars: vec![Bars::of("Energy, estimated", "J", bars)],
        ..Section::default()
    })
}

fn decisions(history: &History) -> Section {
    let mut rules: Vec<(&String, &RuleTotal)> = history.rules.iter().collect();
    rules.sort_by(|one, other| other.1.periods.cmp(&one.1.periods).then(one.0.cmp(other.0)));
    let row = |(name, rule): (&String, &RuleTotal)| {
        vec![
            name.clone(),
            rule.periods.to_string(),
            format!(
                "{:.1}",
                rule.periods as f64 / history.periods.max(1) as f64 * 100.0
            ),
            format!("{:.0} s", rule.example.0),
            rule.example.1.clone(),
        ]
    };
    Section {
        title: "Which rules decided?".to_owned(),
        tables: vec![Grid {
            header: ["rule", "periods", "% of periods", "first at", "what it said then"]
                .map(str::to_owned)
                .to_vec(),
            rows: rules.into_iter().map(row).collect(),
            words: vec![0, 4],
            ..Grid::default()
        }],
        ..Section::default()
    }
}

fn happened(history: &History) -> Section {
    let left_out = match history.news_left_out {
        0 => Vec::new(),
        more => vec![format!(
            "The last {}; {more} came before them, and are in the record.",
            history.news.len()
        )],
    };
    let rows: Vec<Vec<String>> = history
        .news
        .iter()
        .map(|news| vec![format!("{:.1} s", news.at_s), news.what.clone(), news.why.clone()])
        .collect();
    let tables = (!rows.is_empty()).then(|| Grid {
        header: ["at", "what", "why"].map(str::to_owned).to_vec(),
        rows,
        words: vec![1, 2],
        ..Grid::default()
    });
    Section {
        title: "What happened".to_owned(),
        text: left_out,
        tables: tables.into_iter().collect(),
        ..Section::default()
    }
}

/// The run summary, as far as it has values.
fn figures(summary: &Value) -> Section {
    let resize = &summary["resize"];
    let connections = &resize["connections"];
    let number = |value: &Value, scale: f64, decimals: usize| {
        value
            .as_f64()
            .map(|value| format!("{:.decimals$}", value * scale))
    };
    let list = |counts: &Value| {
        let counts = counts.as_object()?;
        let words: Vec<String> = counts
            .iter()
            .map(|(name, count)| format!("{name} {count}"))
            .collect();
        (!words.is_empty()).then(|| words.join(", "))
    };
    let state_s = resize["server_seconds"].as_object().into_iter().flatten();
    let by_state: Vec<String> = state_s
        .map(|(state, seconds)| format!("{state} {:.0}", seconds.as_f64().unwrap_or_default()))
        .collect();
    let rows = [
        (
            "servers that took requests, mean",
            "",
            number(&resize["serving_mean"], 1.0, 2),
        ),
        ("server-seconds by state", "s", Some(by_state.join(", "))),
        ("transitions", "", list(&resize["transitions"])),
        ("failures", "", list(&resize["failures"])),
        (
            "orders to power switches carried out",
            "",
            number(&resize["orders"]["done"], 1.0, 0),
        ),
        (
            "orders that failed",
            "",
            number(&resize["orders"]["failed"], 1.0, 0),
        ),
        (
            "requests at the balancer",
            "",
            number(&summary["requests"]["offered"], 1.0, 0),
        ),
        (
            "requests answered",
            "",
            number(&summary["requests"]["completed"], 1.0, 0),
        ),
        (
            "requests failed",
            "",
            number(&summary["requests"]["failed"], 1.0, 0),
        ),
        (
            "latency, mean",
            "ms",
            number(&summary["latency_ms"]["mean"], 1.0, 1),
        ),
        ("latency P50", "ms", number(&summary["latency_ms"]["p50"], 1.0, 1)),
        ("latency P95", "ms", number(&summary["latency_ms"]["p95"], 1.0, 1)),
        ("latency P99", "ms", number(&summary["latency_ms"]["p99"], 1.0, 1)),
        (
            "connection attempts",
            "",
            number(&connections["attempts"], 1.0, 0),
        ),
        ("attempts dropped", "", number(&connections["dropped"], 1.0, 0)),
        ("drop ratio", "%", number(&connections["drop_ratio"], 100.0, 4)),
        (
            "energy, estimated",
            "J",
            number(&summary["energy_j"]["value"], 1.0, 0),
        ),
        (
            "energy with every server on, estimated",
            "J",
            number(&resize["energy_always_on_j"], 1.0, 0),
        ),
        ("saved", "%", resize["saving"].as_f64().map(percent)),
        (
            "energy per request, estimated",
            "J",
            number(&summary["joules_per_request"], 1.0, 3),
        ),
        (
            "power, estimated mean",
            "W",
            number(&summary["power_w"]["consumed_mean"], 1.0, 1),
        ),
        (
            "periods without an arrival rate",
            "",
            number(&summary["telemetry_lost_periods"], 1.0, 0),
        ),
        (
            "periods without the balancer",
            "",
            number(&resize["balancer_lost_periods"], 1.0, 0),
        ),
    ];
    let known = rows.into_iter().filter_map(|(name, unit, value)| {
        let value = format!("{} {unit}", value?);
        Some(vec![name.to_owned(), value.trim_end().to_owned()])
    });
    Section {
        title: "The run summary".to_owned(),
        tables: vec![Grid {
            header: ["", "value"].map(str::to_owned).to_vec(),
            rows: known.collect(),
            words: vec![0, 1],
            ..Grid::default()
        }],
        ..Section::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resize::summary::Summary;
    use crate::resize::tick::tests::tick;
    use headroom_control::resize::{Cause, PowerState};
    use headroom_record::report::sheet_html;

    fn start() -> Start {
        Start {
            unix_s: 951_782_400.0,
            controller: "dynamic".to_owned(),
            balancer: "gateways g1".to_owned(),
            demand: "requests at the balancer".to_owned(),
            period_s: 1.0,
            dry_run: true,
            notes: vec!["web2: no <switch>".to_owned()],
            version: "1.2.3".to_owned(),
        }
    }

    fn page(periods: u64, change: impl Fn(u64, &mut crate::resize::tick::Tick)) -> String {
        let (mut history, mut summary) = (History::default(), Summary::new("dynamic", true));
        for period in 0..periods {
            let mut told = tick(period, 1);
            change(period, &mut told);
            history.tick(&told);
            summary.tick(&told);
        }
        let sheet = sheet(
            &start(),
            &history,
            &summary.json(),
            &["read with care".to_owned()],
        );
        sheet_html(&sheet, None).unwrap()
    }

    #[test]
    fn a_page_shows_the_servers_the_load_the_energy_and_why() {
        let html = page(60, |period, told| {
            let (before, state) = match period {
                0..20 => (PowerState::Off, PowerState::Off),
                20 => (PowerState::Off, PowerState::Booting),
                21..40 => (PowerState::Booting, PowerState::Booting),
                40 => (PowerState::Booting, PowerState::Failed(Cause::Boot)),
                _ => (PowerState::Failed(Cause::Boot), PowerState::Failed(Cause::Boot)),
            };
            (told.servers[1].before, told.servers[1].state) = (before, state);
        });
        for wanted in [
            "2 servers under the dynamic controller",
            "1.00 of 2 servers took requests on average; the model in [energy] estimates 48.0 % less energy than with every \
             server on. 0.5556 % of 5400 connection attempts were dropped at the accept queues.",
            "2000-02-29 00:00:00 UTC \u{b7} 60 s \u{b7} 60 periods of 1 s \u{b7} behind gateways g1",
            "A dry run",
            "web2: no &lt;switch&gt;",
            "read with care",
            "Each server by its state",
            "What arrived, and what the servers that took requests could take",
            "Mean length of the accept queue",
            "Dropped at the accept queue",
            "Power of all servers, estimated",
            "Energy, estimated",
            "<td class=\"short\">grow</td><td class=\"n\">60</td><td class=\"n\">100.0</td>",
            "web2: booting \u{2192} failed (boot)",
            "at least 100.0",
            "48.0 %</td>",
        ] {
            assert!(html.contains(wanted), "{wanted}\n{html}");
        }
        // No latency was told, so there is no plot of it and no line in the summary.
        assert!(!html.contains("95th percentile") && !html.contains("latency P95"));
    }

    #[test]
    fn a_run_of_no_period_and_one_without_a_model_have_a_page_too() {
        let html = page(0, |_, _| {});
        assert!(
            html.contains("0 servers under") && !html.contains("NaN"),
            "{html}"
        );
        let html = page(10, |_, told| {
            told.energy = None;
            told.servers[0].counted = None;
        });
        assert!(
            !html.contains("always-on") && !html.contains("Accept queues"),
            "{html}"
        );
    }
}
