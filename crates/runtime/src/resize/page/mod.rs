//! The report of a run.

mod servers;
mod tables;

use super::history::{History, Mean, Point};
use super::journal::Start;
use super::summary::percent;
use headroom_record::report::{Bars, Chart, Curve, Section, Sheet, Stroke};
use headroom_record::utc_text;
use serde_json::Value;
use servers::{each_server, queues, servers};
use tables::{decisions, figures, happened};

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
        // The page may be drawn of a run of long ago: what the run said of itself stands in the facts.
        provenance: None,
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
            "The capacity is that of the servers that warm up or serve, where there is one: given, or estimated from \
             their accept queues. An estimate whose limit was not met yet is a lower bound, so arrivals may rise above it."
                .to_owned(),
        ],
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
            let mut reported = tick(period, 1);
            change(period, &mut reported);
            history.tick(&reported);
            summary.tick(&reported);
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
        let html = page(60, |period, reported| {
            let (before, state) = match period {
                0..20 => (PowerState::Off, PowerState::Off),
                20 => (PowerState::Off, PowerState::Booting),
                21..40 => (PowerState::Booting, PowerState::Booting),
                40 => (PowerState::Booting, PowerState::Failed(Cause::Boot)),
                _ => (PowerState::Failed(Cause::Boot), PowerState::Failed(Cause::Boot)),
            };
            (reported.servers[1].before, reported.servers[1].state) = (before, state);
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
        let html = page(10, |_, reported| {
            reported.energy = None;
            reported.servers[0].counted = None;
        });
        assert!(
            !html.contains("always-on") && !html.contains("Accept queues"),
            "{html}"
        );
    }
}
