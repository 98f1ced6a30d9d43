//! The report of one run.

use super::data::RunData;
use super::grid::{Cell, framed, listed, table};
use super::html::{banner, card, escape, figure, header, page, thinning, thousands, with_unit};
use super::key::{Key, headed};
use super::origin::provenance;
use super::parts::shares;
use super::sheet::{Bars, bars};
use super::{decisions::Decision, distribution, palette, panels, plot, scale};
use crate::clock::{unix_ms, utc_text};
use crate::figures::of_connections;
use crate::summary::RunSummary;
use crate::table::source_word;
use crate::text::{NONE, trimmed};
use headroom_units::{Joules, Ratio, Role};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;

pub(crate) fn render(run: &RunData) -> String {
    let summary = &run.summary;
    let colour = palette::colours(&[&summary.law])
        .first()
        .copied()
        .unwrap_or_default();
    let title = match is_estimate(run) {
        true => format!(
            "{}: capacity by {}, {}",
            run.info.meta.name, summary.law, summary.trace
        ),
        false => format!("{}: {} on {}", run.info.meta.name, summary.law, summary.trace),
    };
    let kind = format!("headroom flight recorder, run {}", run.info.id);
    let mut body = header(&kind, &title, &verdict(run), &facts(run));
    body.push_str(&banner("Know before you read the figures", &summary.notes));
    body.push_str(&cards(run));
    body.push_str(&always_on(run));
    body.push_str("<section class=\"panels\">\n");
    body.push_str(&thinning(run.periods_per_point));
    for panel in panels::of_one(run, colour) {
        body.push_str(&panel.render());
    }
    body.push_str("</section>\n");
    body.push_str(&parts(run));
    if let Some(plot) = distribution::render(std::slice::from_ref(run), &[colour]) {
        let _ = write!(body, "<h2>How fast was it?</h2>\n{plot}");
    }
    if let Some(compared) = run.comparisons.table(&run.slo_name()) {
        body.push_str("<h2>What did the law compare?</h2>\n");
        table(&mut body, &compared);
    }
    body.push_str(&rules(run));
    body.push_str(&decisions(&run.decisions.chosen(), run.target_ms()));
    body.push_str(&periods(run));
    let _ = writeln!(
        body,
        "<details><summary>The configuration at the start</summary><p>Flags of the command, which stands below, go before it; what is not \
         written has the default of the program's version; what a SIGHUP changed is among what happened to nodes and gateways.</p><pre>{}</pre></details>",
        escape(&run.info.meta.config)
    );
    body.push_str(&provenance(std::slice::from_ref(summary)));
    page(
        &title,
        &body,
        Some(&crosshair(vec![hover(run, &summary.law, colour)], run.span())),
    )
}

/// Whether the run estimates a capacity and moves no lever: what stands for its law is an estimator.
fn is_estimate(run: &RunData) -> bool {
    run.parts.of(Role::Estimator).next().is_some()
}

/// What the run comes to, in one sentence; energy by a model in one of its own.
fn verdict(run: &RunData) -> String {
    let summary = &run.summary;
    if is_estimate(run) {
        return capacity_verdict(summary);
    }
    let slo = summary.slo.text();
    let kept = match summary.slo.periods_over {
        None if run.info.meta.slo.is_none() => "The run was held to no SLO".to_owned(),
        _ if summary.slo.periods_unmeasured > 0 => format!(
            "The SLO was {slo}; whether it was kept is not known: {}",
            summary.slo.unmeasured_text()
        ),
        None => format!("The SLO was {slo}; the run is too short to judge it"),
        Some(_) if summary.slo.is_without_requests() => {
            format!(
                "The SLO was {slo}; there were no requests to hold against it in any of {}",
                judged(run)
            )
        }
        Some(over) if over == Ratio::ZERO => {
            format!("The SLO, {slo}, was kept in every one of {}", judged(run))
        }
        Some(over) => format!(
            "The SLO, {slo}, was broken in {} % of {}",
            figure(summary.slo.share_over().unwrap_or(over).as_percent()),
            judged(run)
        ),
    };
    let energy = match (summary.energy_j.value, summary.energy_j.source) {
        (Some(joules), Some(source)) => {
            let coverage = summary.energy_j.coverage();
            let coverage = coverage.map_or_else(String::new, |coverage| format!(", {coverage}"));
            format!(", on {} J ({source}{coverage})", figure(joules.get()))
        }
        _ => String::new(),
    };
    let model = summary
        .always_on()
        .map_or_else(String::new, |(consumed, always_on, saved)| {
            let percent = figure((saved.as_percent() * 10.0).round().abs() / 10.0);
            let than = match saved.as_percent() >= 0.05 {
                true => format!("{percent} % less than"),
                false if saved.as_percent() <= -0.05 => format!("{percent} % more than"),
                false => "as much as".to_owned(),
            };
            format!(
                " By the model it used {} J, {than} the {} J of every server on.",
                figure(consumed.get()),
                figure(always_on.get())
            )
        });
    format!("{kept}{energy}.{}{model}", of_classes(run))
}

/// What was found of a capacity, in one sentence.
fn capacity_verdict(summary: &RunSummary) -> String {
    let law = &summary.law;
    match (&summary.capacity, summary.capacity_per_s) {
        (Some(capacity), last) => match (capacity.in_a_sentence(), last) {
            (Some(said), _) => format!("The capacity is {said}, as {law} estimates it at the end."),
            (None, Some(last)) => format!(
                "The capacity is unknown at the end: {}. The last number that {law} had was {:.1} {} a second.",
                capacity.why,
                last.get(),
                capacity.unit
            ),
            (None, None) => format!("The capacity is unknown: {}.", capacity.why),
        },
        (None, Some(last)) => format!(
            "The last number that {law} had for the capacity is {:.1} a second; this record does not tell whether the limit was met.",
            last.get()
        ),
        (None, None) => format!("The capacity is unknown: {law} had nothing to estimate it from."),
    }
}

/// How the classes of connections kept their own SLOs.
fn of_classes(run: &RunData) -> String {
    let all = run.summary.classes.iter();
    let with_slo = all.filter_map(|(name, class)| Some((name, class.missed?)));
    let (missed, kept): (Vec<_>, Vec<_>) = with_slo.partition(|(_, missed)| *missed > Ratio::ZERO);
    let share = |(name, missed): &(&String, Ratio)| format!("{name} in {} %", figure(missed.as_percent()));
    match (missed.as_slice(), kept.len()) {
        ([], 0) => String::new(),
        ([], 1) => format!(
            " Each connection of class {} kept its SLOs, by its last queries.",
            kept[0].0
        ),
        ([], count) => format!(" Each connection of its {count} classes kept its SLOs, by its last queries."),
        (missed, _) => format!(
            " By its last queries a connection missed an SLO of its class: of {} of the time in which the class had queries.",
            missed.iter().map(share).collect::<Vec<_>>().join(", ")
        ),
    }
}

/// How many periods were judged, and how many of them had nothing to judge.
fn judged(run: &RunData) -> String {
    let slo = &run.summary.slo;
    let of = |periods: u64| format!("{} judged periods", thousands(periods as f64));
    match (slo.periods_without_requests, slo.over_of_asked()) {
        (0, _) | (_, None) => of(slo.periods_judged),
        (none, Some((asked, _))) => {
            format!("{} ({} more had no requests)", of(asked), thousands(none as f64))
        }
    }
}

fn facts(run: &RunData) -> String {
    let meta = &run.info.meta;
    let mut facts = vec![
        utc_text(unix_ms(meta.started_at)),
        run.info.state.to_string(),
        format!("{} world", meta.world),
        format!(
            "{} periods of {} s",
            thousands(run.summary.periods as f64),
            trimmed(meta.period.get())
        ),
    ];
    facts.extend(meta.world.seed_text(meta.seed));
    facts.push(format!("host {}", meta.host));
    facts.push(format!("headroom {}", meta.version));
    if let Some(guard) = meta.slo.and_then(|slo| slo.guard) {
        facts.insert(3, format!("guard \u{3b1} {}", trimmed(guard.get())));
    }
    facts.join(" \u{b7} ")
}

fn cards(run: &RunData) -> String {
    let summary = &run.summary;
    let mut cards: Vec<(String, String, String, &str)> = Vec::new();
    let mut add = |label: &str, value: String, below: String, state: &'static str| {
        cards.push((label.to_owned(), value, below, state));
    };
    match (&summary.capacity, summary.capacity_per_s) {
        (Some(capacity), _) => {
            let below = match capacity.per_s {
                Some(_) => format!("{}/s at the end, estimated: {}", capacity.unit, capacity.kind),
                None => format!("at the end: {}", capacity.why),
            };
            add("Capacity", capacity.without_unit(), below, "");
        }
        (None, Some(capacity)) => {
            let value = with_unit(Some(capacity.get()), "1/s");
            add(
                "Capacity",
                format!("{}{value}", summary.capacity_words()),
                "at the end, of the servers that took requests".to_owned(),
                "",
            );
        }
        (None, None) => {}
    }
    let several = !summary.energy_j.by_source.is_empty();
    let source = source_word(summary.energy_j.source, several);
    for part in &summary.energy_j.by_source {
        let below = format!("{}; parts are not added up", part.source);
        add(
            "Energy (a part)",
            with_unit(Some(part.value.get()), "J"),
            below,
            "",
        );
    }
    if !several && !is_estimate(run) {
        let below = match (summary.energy_j.source, summary.energy_j.coverage()) {
            (None, _) => "nothing metered it".to_owned(),
            (Some(_), Some(coverage)) => format!("{source}; {coverage}"),
            (Some(_), None) => source.to_owned(),
        };
        add(
            "Energy",
            with_unit(summary.energy_j.value.map(Joules::get), "J"),
            below,
            "",
        );
    }
    let per_request = summary.joules_per_request.map(Joules::get);
    if per_request.is_some() {
        let below = match summary.energy_j.coverage() {
            Some(coverage) => format!("{source}; {coverage}"),
            None => source.to_owned(),
        };
        add("Energy per request", with_unit(per_request, "J"), below, "");
    }
    let state = |bad: Option<bool>| bad.map_or("", |bad| if bad { "bad" } else { "good" });
    if let Some(slo) = run.info.meta.slo {
        let (target_ms, slo_ms) = (slo.target.as_millis(), summary.slo.latency_ms);
        let (label, target) = (
            format!("{} of the run", slo.name()),
            format!("target {} ms", trimmed(target_ms)),
        );
        add(
            &label,
            with_unit(slo_ms, "ms"),
            target,
            state(slo_ms.map(|ms| ms > target_ms)),
        );
        let over = summary.slo.share_over();
        let judged = match summary.slo.periods_unmeasured {
            0 => format!("of {}", judged(run)),
            _ => summary.slo.unmeasured_text(),
        };
        let too_many = state(over.map(|over| over > Ratio::new(0.02)));
        add(
            "Judged periods over the target",
            with_unit(over.map(Ratio::as_percent), "%"),
            judged,
            too_many,
        );
    }
    let (answered, failed) = (summary.requests.completed as f64, summary.requests.failed as f64);
    let bad = if failed > 0.0 { "bad" } else { "" };
    match of_connections(summary) {
        // A client's retry is another SYN: how many requests failed nobody has counted.
        true => {
            let attempts = thousands(summary.requests.offered as f64);
            let below = format!(
                "of {attempts} attempts, retries included; {} SYNs dropped",
                thousands(failed)
            );
            add("Connections served", thousands(answered), below, "");
        }
        false => add(
            "Requests answered",
            thousands(answered),
            format!("{} failed", thousands(failed)),
            bad,
        ),
    }
    if let Some((mean, core_seconds)) = summary.cores.mean.zip(summary.cores.core_seconds) {
        let below = format!("{} core-seconds", figure(core_seconds));
        add("Cores, mean", figure(mean.get()), below, "");
    }
    if let Some(nodes) = &summary.nodes {
        let shares = shares(&nodes.state_s).into_iter().take(3);
        let shares = shares.map(|(state, percent)| format!("{state} {} %", figure(percent)));
        add(
            "Nodes",
            nodes.count.to_string(),
            shares.collect::<Vec<_>>().join(", "),
            "",
        );
    }
    if let Some((consumed, all, saved)) = summary.always_on() {
        let below = format!(
            "by the model: {} J of {} J",
            figure(consumed.get()),
            figure(all.get())
        );
        add(
            "Saved against every server on",
            with_unit(Some(saved.as_percent()), "%"),
            below,
            "",
        );
    }
    if let Some(consumed) = summary.power_w.consumed_mean {
        let cap = match summary.power_w.allocated_mean {
            Some(cap) => format!("{source}; {} W allocated", figure(cap.get())),
            None => format!("{source}; no cap"),
        };
        add("Power, mean", with_unit(Some(consumed.get()), "W"), cap, "");
    }
    if summary.power_w.ratio.is_some() || summary.utilisation_mean.is_some() {
        let utilisation = with_unit(summary.utilisation_mean.map(Ratio::as_percent), "%");
        let ratio = with_unit(summary.power_w.ratio.map(Ratio::get), "");
        add("Power ratio", ratio, format!("utilisation {utilisation}"), "");
    }
    let cards = cards
        .iter()
        .map(|(label, value, below, state)| card(label, value, below, state));
    format!(
        "<section class=\"cards\">\n{}</section>\n",
        cards.collect::<String>()
    )
}

fn rules(run: &RunData) -> String {
    let counts = &run.summary.decisions;
    if counts.is_empty() {
        return String::new();
    }
    let periods = run.summary.periods.max(1) as f64;
    let line = |(rule, count): (&String, &u64)| {
        let example = run.decisions.examples.get(rule);
        let example = example.map_or_else(
            || NONE.to_owned(),
            |(at_s, text)| {
                format!(
                    "<span class=\"at\">{}</span> {}",
                    scale::clock(*at_s),
                    escape(text)
                )
            },
        );
        vec![
            ("", format!("<code>{}</code>", escape(rule))),
            ("n", thousands(*count as f64)),
            ("n", format!("{:.1}", *count as f64 / periods * 100.0)),
            ("", example),
        ]
    };
    let head = [
        ("", "rule"),
        ("n", "decisions"),
        ("n", "% of periods"),
        ("", "for example"),
    ];
    let table = framed("", &heads(&head), by_count(counts).into_iter().map(line));
    format!("<h2>Which rules decided?</h2>\n{table}")
}

/// Heads of columns.
pub(crate) fn heads(named: &[(&'static str, &str)]) -> Vec<Cell> {
    named
        .iter()
        .map(|(class, name)| (*class, (*name).to_owned()))
        .collect()
}

/// The class of a number, which may be over the target.
fn number(late: bool) -> &'static str {
    if late { "n late" } else { "n" }
}

/// Rules by how often they decided, the most frequent first.
pub(crate) fn by_count(counts: &BTreeMap<String, u64>) -> Vec<(&String, &u64)> {
    let mut sorted: Vec<(&String, &u64)> = counts.iter().collect();
    sorted.sort_by(|one, other| other.1.cmp(one.1).then(one.0.cmp(other.0)));
    sorted
}

fn decisions(chosen: &[Decision], target_ms: Option<f64>) -> String {
    if chosen.is_empty() {
        return String::new();
    }
    let line = |decision: &Decision| {
        let late = decision
            .slo_ms
            .zip(target_ms)
            .is_some_and(|(ms, target_ms)| ms > target_ms);
        vec![
            ("n at", scale::clock(decision.at_s)),
            (
                number(late),
                decision.slo_ms.map_or_else(|| NONE.to_owned(), figure),
            ),
            ("", escape(&decision.setting_text())),
            ("", format!("<code>{}</code>", escape(&decision.rule))),
            ("", escape(&decision.text)),
            ("quiet", decision.shown_for.to_owned()),
        ]
    };
    let head = [
        ("n", "at"),
        ("n", "latency, ms"),
        ("", "levers"),
        ("", "rule"),
        ("", "why"),
        ("", "shown as"),
    ];
    let table = listed(&heads(&head), chosen.iter().map(line));
    format!("<h2>Decisions worth reading</h2>\n{table}")
}

/// The run's parts: states over time, a panel for each of their quantities, their figures; nothing where it has none.
fn parts(run: &RunData) -> String {
    let mut html = String::new();
    if run.parts.is_empty() {
        return html;
    }
    html.push_str("<section class=\"panels\">\n");
    if let Some(timeline) = run.parts.timeline() {
        let _ = write!(
            html,
            "<h2>{}</h2>\n{}",
            run.parts.roles(),
            timeline.render(run.span())
        );
    }
    for role in Role::ALL.into_iter().filter(|role| *role != Role::Cluster) {
        let panels = panels::of_parts(run, role);
        if !panels.is_empty() {
            let _ = writeln!(html, "<h2>Each {}</h2>", role.name());
        }
        for panel in panels {
            html.push_str(&panel.render());
        }
    }
    for panel in panels::of_classes(run) {
        html.push_str(&panel.render());
    }
    html.push_str("</section>\n");
    let _ = writeln!(html, "<h2>{} in figures</h2>", run.parts.roles());
    for grid in run.parts.tables() {
        table(&mut html, &grid);
    }
    if let Some(changes) = run.parts.changes() {
        html.push_str("<h2>What happened to them</h2>\n");
        table(&mut html, &changes);
    }
    html
}

/// Energy against what every server on would have needed; nothing where no model says.
fn always_on(run: &RunData) -> String {
    let summary = &run.summary;
    let mut html = String::new();
    if let Some((consumed, all, _)) = summary.always_on() {
        let bar = |law: &str, label: &str, joules: f64| (law.to_owned(), label.to_owned(), joules);
        let both = [
            bar(&summary.law, &summary.law, consumed.get()),
            // The reference has the grey that a fixed allocation has in every report.
            bar("fixed", "every server on", all.get()),
        ];
        let title = "Energy against every server on, both by the model";
        bars(&mut html, &Bars::of(title, "J", both));
    }
    html
}

fn periods(run: &RunData) -> String {
    let each = run.periods_per_point;
    let heading = if each == 1 {
        format!("Every period as a table ({})", run.moments.len())
    } else {
        format!(
            "The periods as a table, {each} to a line: the largest latency, the mean of the rest (export the run for all)"
        )
    };
    let mut head = heads(&[("n", "period"), ("n", "at")]);
    // The SLO may itself be of the P50 or the P99, whose column would be there twice.
    let mut titles = Vec::new();
    let once = |key: Key| {
        let title = run.title(key);
        let is_first = !titles.contains(&title);
        titles.push(title);
        is_first.then_some(key)
    };
    let keys: Vec<Key> = run.columns.iter().map(|(key, _)| key).filter_map(once).collect();
    let columns = || run.columns.iter().filter(|(key, _)| keys.contains(key));
    let titled = columns().map(|(key, _)| headed(&run.title(key), key.unit()));
    head.extend(titled.map(|title| ("n", escape(&title))));
    head.push(("", "why".to_owned()));
    let lines = run.moments.iter().enumerate().map(|(row, moment)| {
        let mut line = vec![
            ("n", moment.index.to_string()),
            ("n at", scale::clock(moment.at_s)),
        ];
        line.extend(columns().map(|(key, column)| {
            let value = column.get(row).and_then(|point| point.shown(key.is_peak()));
            let late = key == Key::Slo && moment.over;
            (number(late), value.map_or_else(|| NONE.to_owned(), figure))
        }));
        line.push(("", escape(&moment.why)));
        line
    });
    let table = framed("small", &head, lines);
    format!(
        "<details><summary>{}</summary>{}</details>\n",
        escape(&heading),
        table.trim_end()
    )
}

/// What a page's crosshair knows: what it shows of each run, and the time that its panels span.
pub(crate) fn crosshair(runs: Vec<Value>, span: (f64, f64)) -> Value {
    json!({ "runs": runs, "span": [span.0, span.1], "axis": [plot::LEFT, plot::RIGHT, plot::WIDTH] })
}

/// What the crosshair shows of a run: for each point its time, values and reason.
pub(crate) fn hover(run: &RunData, label: &str, colour: usize) -> Value {
    let mut series: Vec<Value> = Vec::new();
    for (key, column) in run.columns.iter() {
        let label = run.title(key);
        // The SLO may itself be of the P50 or the P99.
        if series.iter().any(|one| one["label"] == label) {
            continue;
        }
        let values = column.iter().map(|point| point.shown(key.is_peak()).map(round));
        let values: Vec<Option<f64>> = values.collect();
        // What is mostly nothing is worth a line only where it is something.
        let nothing = values.iter().filter(|value| **value == Some(0.0)).count();
        let quiet = 2 * nothing > values.len();
        series.push(json!({"label": label, "unit": key.unit(), "values": values, "quiet": quiet}));
    }
    json!({
        "law": label,
        "colour": format!("c{colour}"),
        "at": run.moments.iter().map(|moment| millis(moment.at_s)).collect::<Vec<_>>(),
        "end": run.moments.last().map(|moment| millis(moment.end_s)),
        "index": run.moments.iter().map(|moment| moment.index).collect::<Vec<_>>(),
        "why": run.moments.iter().map(|moment| moment.why.as_str()).collect::<Vec<_>>(),
        "clock": run.moments.iter().map(|moment| scale::clock(moment.at_s)).collect::<Vec<_>>(),
        "each": run.periods_per_point,
        "series": series,
    })
}

/// A number with four digits that say something: more is noise in a box of a few words.
fn round(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let unit = 10_f64.powf(value.abs().log10().floor() - 3.0);
    // Where the unit is below one, dividing by its inverse keeps the decimals short.
    if unit < 1.0 {
        (value / unit).round() / (1.0 / unit).round()
    } else {
        (value / unit).round() * unit
    }
}

/// A time to the millisecond.
fn millis(seconds: f64) -> f64 {
    (seconds * 1e3).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_the_crosshair_are_short() {
        assert_eq!(round(51.2634), 51.26);
        assert_eq!(round(0.070_812_3), 0.07081);
        assert_eq!(round(123_456.0), 123_500.0);
        assert_eq!(round(-2.0), -2.0);
        assert_eq!(round(0.0), 0.0);
    }
}
