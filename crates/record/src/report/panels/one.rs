//! The panels of one run: everything that is known of it.

use super::{LOW, Maker, TALL, label_last, latency_marks, latency_scale, marked, spans};
use crate::report::columns::{Moment, RunData, SOURCES, is_known, largest};
use crate::report::plot::{Line, Panel, Shape, Spans};
use crate::report::scale::Scale;

/// The panels of one run.
pub(crate) fn of_one(run: &RunData, colour: usize) -> Vec<Panel<'_>> {
    let columns = &run.columns;
    let main = format!("c{colour}");
    let maker = Maker { span: run.span() };
    let line = |label: &str, class: &str, shape, column| Line {
        label: label.to_owned(),
        class: class.to_owned(),
        shape,
        moments: &columns.moments,
        column,
    };
    let slo = run.slo_name();
    let mut panels = Vec::new();

    let mut latency = maker.panel(
        format!("Latency: {}, {}", slo, marked(run)),
        "ms",
        TALL,
        latency_scale(&[run], &[|run| &run.columns.slo_ms, |run| &run.columns.p50_ms]),
    );
    latency
        .lines
        .push(line("P50", "muted thin", Shape::Line, &columns.p50_ms));
    latency
        .lines
        .push(line(&slo, &main, Shape::Line, &columns.slo_ms));
    latency.marks = latency_marks(run);
    latency.spans.push(Spans {
        class: "over".to_owned(),
        strip: None,
        spans: spans(&columns.moments, Moment::mostly_over),
    });
    latency.spans.push(Spans {
        class: "lost".to_owned(),
        strip: None,
        spans: spans(&columns.moments, |moment| moment.lost),
    });
    if !latency.spans[0].spans.is_empty() {
        latency.title.push_str(if run.periods_per_point == 1 {
            "; shaded: over T"
        } else {
            "; shaded: mostly over T"
        });
    }
    if !latency.spans[1].spans.is_empty() {
        latency.title.push_str("; grey: telemetry lost");
    }
    panels.push(latency);

    let mut cores = maker.panel(
        "Cores allocated".to_owned(),
        "cores",
        LOW,
        Scale::from_zero(largest(&columns.cores)),
    );
    cores
        .lines
        .push(line("allocated", &main, Shape::Area, &columns.cores));
    panels.push(cores);

    panels.extend(power(&maker, run, &main));

    if is_known(&columns.ratio) {
        let mut ratio = maker.panel(
            "Power ratio: consumed / allocated".to_owned(),
            "of 1",
            LOW,
            Scale::from_zero(largest(&columns.ratio).max(0.97)),
        );
        ratio
            .lines
            .push(line("power ratio", &main, Shape::Line, &columns.ratio));
        panels.push(ratio);
    }

    if is_known(&columns.utilisation) || is_known(&columns.throttled) {
        let top = largest(&columns.utilisation)
            .max(largest(&columns.throttled))
            .max(95.0);
        let mut utilisation = maker.panel(
            "Utilisation of the allocated cores".to_owned(),
            "%",
            LOW,
            Scale::from_zero(top),
        );
        if is_known(&columns.utilisation) {
            utilisation
                .lines
                .push(line("utilisation", &main, Shape::Line, &columns.utilisation));
        }
        if largest(&columns.throttled) > 0.0 {
            utilisation.lines.push(line(
                "throttled by the quota",
                "c5 thin",
                Shape::Line,
                &columns.throttled,
            ));
        }
        panels.push(utilisation);
    }

    if is_known(&columns.frequency_ghz) || is_known(&columns.frequency_limit_ghz) {
        let top = largest(&columns.frequency_ghz).max(largest(&columns.frequency_limit_ghz));
        let mut frequency = maker.panel("Core frequency".to_owned(), "GHz", LOW, Scale::from_zero(top));
        if is_known(&columns.frequency_limit_ghz) {
            frequency
                .lines
                .push(line("limit", "c5", Shape::Step, &columns.frequency_limit_ghz));
        }
        if is_known(&columns.frequency_ghz) {
            frequency
                .lines
                .push(line("mean frequency", &main, Shape::Line, &columns.frequency_ghz));
        }
        panels.push(frequency);
    }

    let top = largest(&columns.rate)
        .max(largest(&columns.forecast))
        .max(largest(&columns.failures));
    let mut rate = maker.panel(
        "Request rate".to_owned(),
        "requests/s",
        LOW,
        Scale::from_zero(top),
    );
    rate.lines
        .push(line("arrivals", &main, Shape::Line, &columns.rate));
    if is_known(&columns.forecast) {
        rate.lines
            .push(line("forecast", "c2 thin dashed", Shape::Line, &columns.forecast));
    }
    if largest(&columns.failures) > 0.0 {
        rate.lines.push(line(
            "failed, in the period",
            "target",
            Shape::Bars,
            &columns.failures,
        ));
    }
    panels.push(rate);
    label_last(&mut panels);
    panels
}

fn power<'a>(maker: &Maker, run: &'a RunData, main: &str) -> Option<Panel<'a>> {
    let columns = &run.columns;
    let metered: Vec<usize> = (0..SOURCES.len())
        .filter(|&number| columns.power_w.get(number).is_some_and(is_known))
        .collect();
    if metered.is_empty() && !is_known(&columns.cap_w) {
        return None;
    }
    let words: Vec<&str> = metered.iter().map(|&number| SOURCES[number].as_str()).collect();
    let title = if words.is_empty() {
        "Power allocated (nothing meters what is consumed)".to_owned()
    } else {
        format!("Power, {}: consumed against allocated", words.join(" and "))
    };
    let top = columns
        .power_w
        .iter()
        .map(largest)
        .fold(largest(&columns.cap_w), f64::max);
    let mut panel = maker.panel(title, "W", LOW + 20.0, Scale::from_zero(top));
    let line = |label: String, class: &str, shape, column| Line {
        label,
        class: class.to_owned(),
        shape,
        moments: &columns.moments,
        column,
    };
    if is_known(&columns.cap_w) {
        panel.lines.push(line(
            "allocated (cap)".to_owned(),
            "c5",
            Shape::Step,
            &columns.cap_w,
        ));
    }
    for (order, &number) in metered.iter().enumerate() {
        // A run whose source changed has a line for each source: they are different quantities.
        let class = if order == 0 {
            main.to_owned()
        } else {
            format!("c{} ", [4, 3, 6][order - 1])
        };
        let label = format!("consumed, {}", SOURCES[number]);
        panel.lines.push(line(
            label,
            class.trim_end(),
            Shape::Line,
            &columns.power_w[number],
        ));
    }
    Some(panel)
}
