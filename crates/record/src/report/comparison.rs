//! The report of several runs beside each other.

use super::data::{RunData, whole_span};
use super::grid::framed;
use super::html::{banner, bar, escape, figure, header, page, thinning};
use super::origin::provenance;
use super::{distribution, palette, panels, run};
use crate::clock::{unix_ms, utc_text};
use crate::compare::{Comparison, reference};
use crate::summary::RunSummary;
use crate::table::{labels, metrics};
use headroom_units::Ratio;
use serde_json::Value;
use std::fmt::Write;

pub(crate) fn render(runs: &[RunData]) -> String {
    let laws: Vec<&str> = runs.iter().map(|run| run.summary.law.as_str()).collect();
    let colours = palette::colours(&laws);
    let summaries: Vec<RunSummary> = runs.iter().map(|run| run.summary.clone()).collect();
    let labels = labels(&summaries);
    let mut distinct: Vec<&str> = Vec::new();
    for law in laws {
        if !distinct.contains(&law) {
            distinct.push(law);
        }
    }
    // Many names make no title.
    let title = match distinct.len() == runs.len() {
        true => format!("{} on {}", distinct.join(" against "), traces(runs)),
        false => format!(
            "{} on {}, {} runs",
            distinct.join(" against "),
            traces(runs),
            runs.len()
        ),
    };
    let mut body = header("headroom comparison", &title, &verdict(&summaries), &facts(runs));
    let (lines, remarks) = metrics(&summaries);
    body.push_str(&banner("Know before you read the figures", &remarks));
    body.push_str(&bars(&summaries, &labels, &colours));
    let mut head = run::heads(&[("", ""), ("", "unit")]);
    let dot = |(label, colour): (&String, &usize)| {
        format!("<span class=\"dot c{colour}\"></span>{}", escape(label))
    };
    head.extend(labels.iter().zip(&colours).map(|law| ("n", dot(law))));
    let lines = lines.iter().map(|line| {
        let own = [
            (if line.key { "key" } else { "row" }, escape(&line.name)),
            ("quiet", line.unit.to_owned()),
        ];
        own.into_iter()
            .chain(line.values.iter().map(|value| ("n", escape(value))))
            .collect()
    });
    body.push_str(&framed("compare", &head, lines));
    body.push_str("<section class=\"panels\">\n");
    body.push_str(&thinning(
        runs.iter().map(|run| run.periods_per_point).max().unwrap_or(1),
    ));
    for panel in panels::of_several(runs, &colours) {
        body.push_str(&panel.render());
    }
    body.push_str("</section>\n");
    if let Some(plot) = distribution::render(runs, &colours) {
        let _ = write!(body, "<h2>How fast was it?</h2>\n{plot}");
    }
    body.push_str(&rules(&summaries, &labels, &colours));
    body.push_str(&provenance(&summaries));
    let hover: Vec<Value> = runs
        .iter()
        .zip(labels.iter().zip(&colours))
        .map(|(data, (label, colour))| run::hover(data, label, *colour))
        .collect();
    page(&title, &body, Some(&run::crosshair(hover, whole_span(runs))))
}

fn traces(runs: &[RunData]) -> String {
    let mut traces: Vec<&str> = runs.iter().map(|run| run.summary.trace.as_str()).collect();
    traces.dedup();
    traces.join(", ")
}

/// What the comparison comes to, in a sentence for each run after the first.
fn verdict(summaries: &[RunSummary]) -> String {
    let labels = labels(summaries);
    let sentences: Vec<String> = summaries
        .iter()
        .zip(&labels)
        .enumerate()
        .filter_map(|(at, (summary, label))| {
            let of = reference(summaries, at)?;
            let against = &labels[of];
            let comparison = Comparison::of(summary, &summaries[of]);
            let energy = match comparison.saving {
                Some(share) => {
                    let (percent, less) = (share.as_percent(), share >= Ratio::ZERO);
                    let (percent, less) = (figure(percent.abs()), if less { "less" } else { "more" });
                    format!("{label} used {percent} % {less} energy than {against}")
                }
                None => {
                    let why = comparison.refusal().unwrap_or_default();
                    format!("{label} against {against}: {why}")
                }
            };
            let source = match (comparison.saving, summary.energy_j.source) {
                (Some(_), Some(source)) => format!(" ({source})"),
                _ => String::new(),
            };
            let slo = match summary.slo.share_over() {
                Some(over) if comparison.saving.is_none() => {
                    format!(
                        "; it has {} % {}",
                        figure(over.as_percent()),
                        summary.slo.missing()
                    )
                }
                Some(over) => format!(", with {} % {}", figure(over.as_percent()), summary.slo.missing()),
                None => String::new(),
            };
            let unknown: String = match comparison.saving {
                Some(_) => comparison.notes.iter().map(|note| format!("; {note}")).collect(),
                None => String::new(),
            };
            Some(format!("{energy}{source}{slo}{unknown}."))
        })
        .collect();
    sentences.join(" ")
}

fn facts(runs: &[RunData]) -> String {
    let named: Vec<String> = runs
        .iter()
        .map(|run| {
            let summary = &run.summary;
            let seed = summary
                .world
                .seed_text(summary.seed)
                .map(|seed| format!("{seed}, "));
            format!(
                "run {} ({}, {}, {} world, {}{})",
                run.info.id,
                run.info.meta.name,
                utc_text(unix_ms(run.info.meta.started_at)),
                summary.world,
                seed.unwrap_or_default(),
                run.info.state
            )
        })
        .collect();
    named.join(" \u{b7} ")
}

/// Energy as bars; only of runs whose energies may be compared with those of the run that they are compared with.
fn bars(summaries: &[RunSummary], labels: &[String], colours: &[usize]) -> String {
    let Some(first) = summaries.first() else {
        return String::new();
    };
    let comparable: Vec<(&String, usize, f64)> = summaries
        .iter()
        .zip(labels.iter().zip(colours))
        .enumerate()
        .filter(|(at, _)| is_shown(summaries, *at))
        .map(|(_, one)| one)
        .filter_map(|(summary, (label, colour))| Some((label, *colour, summary.energy_j.value?.get())))
        .collect();
    let most = comparable.iter().map(|(.., joules)| *joules).fold(0.0, f64::max);
    if comparable.len() < 2 || most <= 0.0 {
        return String::new();
    }
    let source = first.energy_j.source.map_or("", |source| source.as_str());
    let mut html = format!(
        "<figure class=\"bars\" role=\"img\" aria-label=\"Energy by law\"><figcaption><b>Energy</b> <span class=\"unit\">J, {source}</span></figcaption>\n"
    );
    for (label, colour, joules) in comparable {
        let percent = (joules / most * 100.0).clamp(0.0, 100.0);
        html.push_str(&bar(
            label,
            colour,
            percent,
            &format!("{} J", figure(joules)),
            None,
        ));
    }
    html.push_str("</figure>\n");
    html
}

/// Whether a run's energy stands beside the others: it, or one that is compared with it, may be compared; and its energy has the source
/// that the first's has.
fn is_shown(summaries: &[RunSummary], at: usize) -> bool {
    let may_be_compared = |other: usize| {
        reference(summaries, other)
            .filter(|of| *of == at || other == at)
            .is_some_and(|of| Comparison::of(&summaries[other], &summaries[of]).holds)
    };
    let same_source = summaries[at].energy_j.source == summaries[0].energy_j.source;
    at == 0 || same_source && (at..summaries.len()).any(may_be_compared)
}

fn rules(summaries: &[RunSummary], labels: &[String], colours: &[usize]) -> String {
    let mut html = String::from("<h2>Which rules decided?</h2>\n<div class=\"columns\">\n");
    for (summary, (label, colour)) in summaries.iter().zip(labels.iter().zip(colours)) {
        let _ = writeln!(
            html,
            "<table><caption><span class=\"dot c{colour}\"></span>{}</caption><thead><tr><th>rule</th>\
             <th class=\"n\">decisions</th></tr></thead><tbody>",
            escape(label)
        );
        for (rule, count) in run::by_count(&summary.decisions) {
            let _ = writeln!(
                html,
                "<tr><td><code>{}</code></td><td class=\"n\">{count}</td></tr>",
                escape(rule)
            );
        }
        html.push_str("</tbody></table>\n");
    }
    html.push_str("</div>\n");
    html
}
