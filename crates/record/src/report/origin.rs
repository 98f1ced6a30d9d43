//! Where a page's figures come from: a small block at its foot.

use super::html::escape;
use crate::summary::RunSummary;
use std::fmt::Write;

/// The block of some runs: what all have in common once, the rest for each run.
pub(crate) fn provenance(runs: &[RunSummary]) -> String {
    let mut lines: Vec<(String, Vec<String>)> = Vec::new();
    for run in runs {
        let label = match run.run {
            Some(number) => format!("run {number}, {}, {}", run.law, run.world),
            None => format!("{}, {}", run.law, run.world),
        };
        let mut trace = vec![run.trace.clone()];
        trace.extend(run.world.seed_text(run.seed));
        let mut of_run = vec![
            ("trace", trace.join(", ")),
            ("duration", format!("{:.0} s", run.duration_s.get())),
            ("SLO", run.slo.text()),
        ];
        if !run.conditions.nodes.is_empty() {
            of_run.push(("nodes", run.conditions.nodes.join(" ")));
        }
        of_run.extend(run.provenance.lines());
        for (name, value) in of_run {
            let at = lines.iter().position(|(known, _)| known == name);
            let at = at.unwrap_or_else(|| {
                lines.push((name.to_owned(), Vec::new()));
                lines.len() - 1
            });
            lines[at].1.push(format!("{label}: {value}"));
        }
    }
    let common: Vec<(String, String)> = lines
        .into_iter()
        .map(|(name, values)| {
            let bare = |text: &String| {
                text.split_once(": ")
                    .map_or(String::new(), |(_, value)| value.to_owned())
            };
            let first = values.first().map(bare).unwrap_or_default();
            let same = values.len() == runs.len() && values.iter().all(|value| bare(value) == first);
            let text = if same { first } else { values.join("\n") };
            (name, text)
        })
        .collect();
    block(&common)
}

/// The block itself: names and values, all of them text.
pub(crate) fn block(lines: &[(impl AsRef<str>, String)]) -> String {
    let mut html = String::from("<footer class=\"origin\"><h2>Where these figures come from</h2>\n<dl>\n");
    for (name, value) in lines {
        let _ = writeln!(
            html,
            "<dt>{}</dt><dd>{}</dd>",
            escape(name.as_ref()),
            escape(value).replace('\n', "<br>")
        );
    }
    html.push_str("</dl></footer>\n");
    html
}
