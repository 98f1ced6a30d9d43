//! The distribution of latency: which share of the requests was answered within which time.

use super::data::RunData;
use super::html::{escape, figure};
use super::plot::{LEFT, RIGHT, Shape, WIDTH, swatch, tick_below, tick_class, tick_of_value};
use super::scale::Scale;
use crate::table::labels;
use std::fmt::Write;

const HEIGHT: f64 = 190.0;
const TOP: f64 = 10.0;

/// Percentiles at which the curve is drawn, for each decade of "nines".
const STEPS_A_DECADE: u32 = 40;

/// The plot: percentile to the right, each tenfold of rarity as far as the one before; latency up. `None` where no
/// request was answered.
pub(crate) fn render(runs: &[RunData], colours: &[usize]) -> Option<String> {
    let labels = labels(runs.iter().map(|run| &run.summary));
    let with_latency: Vec<(&RunData, &String, usize)> = runs
        .iter()
        .zip(&labels)
        .zip(colours.iter().copied())
        .map(|((run, label), colour)| (run, label, colour))
        .filter(|(run, ..)| !run.latencies.is_empty())
        .collect();
    let most = with_latency.iter().map(|(run, ..)| run.latencies.len()).max()?;
    // A percentile beyond 1 - 1/n is the slowest request alone.
    let decades = (most as f64).log10().clamp(2.0, 6.0);
    let target_ms = with_latency
        .iter()
        .filter_map(|(run, ..)| run.target_ms())
        .reduce(f64::max);
    let mut ends: Vec<f64> = with_latency
        .iter()
        .flat_map(|(run, ..)| [run.latencies.value_at_quantile(0.01), run.latencies.max()])
        .map(|micros| micros as f64 / 1e3)
        .collect();
    let scale = match Scale::for_latency(&mut ends, target_ms) {
        Scale::Linear { high, .. } if ends.first().is_some_and(|low| high / low > 20.0) => Scale::Log {
            low: 10_f64.powf(ends[0].log10().floor()),
            high,
        },
        scale => scale,
    };
    let x = |nines: f64| LEFT + (nines / decades).clamp(0.0, 1.0) * (RIGHT - LEFT);
    let y = |ms: f64| TOP + (1.0 - scale.place(ms)) * HEIGHT;
    let foot = TOP + HEIGHT;

    let mut html = String::from(
        "<figure class=\"panel still\">\n<figcaption><b>Latency by percentile</b> <span class=\"unit\">ms</span>\
         <span class=\"legend\">",
    );
    for (_, label, colour) in &with_latency {
        html.push_str(&swatch(&format!("c{colour}"), Shape::Line, label));
    }
    let _ = writeln!(
        html,
        "</span></figcaption>\n<svg viewBox=\"0 0 {WIDTH} {:.0}\" role=\"img\" aria-label=\"Latency by percentile\">",
        foot + 24.0
    );
    for (number, tick) in scale.ticks().into_iter().enumerate() {
        tick_of_value(&mut html, y(tick), tick, tick_class(number));
    }
    for (number, (percentile, label)) in [
        (50.0, "50 %"),
        (75.0, "75 %"),
        (90.0, "90 %"),
        (95.0, "95 %"),
        (99.0, "99 %"),
        (99.9, "99.9 %"),
        (99.99, "99.99 %"),
        (99.999, "99.999 %"),
    ]
    .into_iter()
    .enumerate()
    {
        let nines = nines(percentile);
        if nines <= decades {
            tick_below(
                &mut html,
                (x(nines), foot + 17.0),
                (TOP, foot),
                label,
                tick_class(number),
            );
        }
    }
    for (run, _, colour) in &with_latency {
        let reach = (run.latencies.len() as f64).log10().clamp(0.3, decades);
        let steps = (reach * f64::from(STEPS_A_DECADE)).ceil() as u32;
        let mut path = String::new();
        for step in 0..=steps {
            let nines = reach * f64::from(step) / f64::from(steps);
            let quantile = 1.0 - 10_f64.powf(-nines);
            let ms = run.latencies.value_at_quantile(quantile) as f64 / 1e3;
            let _ = write!(
                path,
                "{}{:.1} {:.1}",
                if step == 0 { 'M' } else { 'L' },
                x(nines),
                y(ms)
            );
        }
        let _ = writeln!(html, "<path class=\"line c{colour}\" d=\"{path}\"/>");
    }
    if let Some(slo) = with_latency.first().and_then(|(first, ..)| first.info.meta.slo) {
        let (at, level) = (x(nines(slo.percentile)), y(slo.target.as_millis()));
        let label = format!("{} \u{2264} {} ms", slo.name(), figure(slo.target.as_millis()));
        let _ = writeln!(
            html,
            "<path class=\"line target dashed\" d=\"M{LEFT} {level:.1}H{at:.1}V{foot:.1}\"/>\
             <text class=\"mark target\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">SLO: {}</text>",
            at - 4.0,
            level - 4.5,
            escape(&label)
        );
    }
    html.push_str("</svg>\n</figure>\n");
    Some(html)
}

/// How many tenfolds of rarity a percentile is: 1 for the P90, 2 for the P99.
fn nines(percentile: f64) -> f64 {
    -(1.0 - percentile / 100.0).max(1e-12).log10()
}
