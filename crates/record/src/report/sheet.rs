//! A page of sections: text, tables, bars, and the panels of recorded runs. What evaluations are reported on.

use super::chart::Chart;
use super::data::RunData;
use super::grid::{Grid, table};
use super::html::{banner, bar, escape, figure, header, page, thinning};
use super::{origin, palette, panels};
use crate::archive::Archive;
use crate::error::Error;
use crate::model::RunId;
use crate::provenance::Provenance;
use std::fmt::Write;

/// A page. Every text is escaped: it is shown as it is.
#[derive(Clone, Debug, Default)]
pub struct Sheet {
    /// What kind of page it is, in two or three words.
    pub kind: String,
    /// Its title.
    pub title: String,
    /// What it comes to, in a sentence or two.
    pub lead: String,
    /// Where its figures are from: short facts in a row.
    pub facts: Vec<String>,
    /// What a reader must know before the figures.
    pub remarks: Vec<String>,
    /// The sections in their order.
    pub sections: Vec<Section>,
    /// Where its figures come from, at its foot.
    pub provenance: Option<Provenance>,
}

/// A section of a page.
#[derive(Clone, Debug, Default)]
pub struct Section {
    /// Its heading.
    pub title: String,
    /// Paragraphs.
    pub text: Vec<String>,
    /// Tables.
    pub tables: Vec<Grid>,
    /// Plots of curves, each over the whole width.
    pub charts: Vec<Chart>,
    /// Bars, drawn beside each other.
    pub bars: Vec<Bars>,
    /// Recorded runs whose panels are drawn, each under its heading.
    pub runs: Vec<(String, RunId)>,
}

/// A bar for each of some laws.
#[derive(Clone, Debug, Default)]
pub struct Bars {
    /// What is drawn.
    pub title: String,
    /// Its unit.
    pub unit: String,
    /// Law, label and value; the law decides the colour.
    pub values: Vec<(String, String, f64)>,
    /// A value that is marked, such as the target.
    pub mark: Option<f64>,
}

impl Bars {
    /// Bars of law, label and value, without a mark.
    pub fn of(title: &str, unit: &str, values: impl IntoIterator<Item = (String, String, f64)>) -> Self {
        Self {
            title: title.to_owned(),
            unit: unit.to_owned(),
            values: values.into_iter().collect(),
            mark: None,
        }
    }
}

/// Renders the page as one HTML file.
///
/// # Errors
/// A run that is not in the archive, a file that cannot be read or is damaged; runs without an archive.
pub fn sheet_html(sheet: &Sheet, archive: Option<&Archive>) -> Result<String, Error> {
    let facts = sheet.facts.join(" \u{b7} ");
    let mut body = header(&sheet.kind, &sheet.title, &sheet.lead, &facts);
    body.push_str(&banner("Know before you read the figures", &sheet.remarks));
    for section in &sheet.sections {
        let _ = writeln!(body, "<section><h2>{}</h2>", escape(&section.title));
        for text in &section.text {
            let _ = writeln!(body, "<p class=\"note\">{}</p>", escape(text));
        }
        for grid in &section.tables {
            table(&mut body, grid);
        }
        for chart in &section.charts {
            body.push_str(&chart.render());
        }
        if !section.bars.is_empty() {
            body.push_str("<div class=\"beside\">\n");
            for chart in &section.bars {
                bars(&mut body, chart);
            }
            body.push_str("</div>\n");
        }
        for (heading, run) in &section.runs {
            let data = RunData::load(archive.ok_or(Error::NoArchive(run.0))?, *run)?;
            let colour = palette::colours(&[&data.summary.law])
                .first()
                .copied()
                .unwrap_or_default();
            let _ = writeln!(body, "<div class=\"panels\"><h3>{}</h3>", escape(heading));
            body.push_str(&thinning(data.periods_per_point));
            for panel in panels::of_one(&data, colour) {
                body.push_str(&panel.render());
            }
            body.push_str("</div>\n");
        }
        body.push_str("</section>\n");
    }
    if let Some(provenance) = &sheet.provenance {
        body.push_str(&origin::block(&provenance.lines()));
    }
    Ok(page(&sheet.title, &body, None))
}

pub(super) fn bars(body: &mut String, chart: &Bars) {
    let laws: Vec<&str> = chart.values.iter().map(|(law, ..)| law.as_str()).collect();
    let mut distinct = laws.clone();
    distinct.sort_unstable();
    distinct.dedup();
    let colours = palette::colours(&distinct);
    let most = chart
        .values
        .iter()
        .map(|(.., value)| *value)
        .fold(chart.mark.unwrap_or(0.0), f64::max);
    let _ = writeln!(
        body,
        "<figure class=\"bars\" role=\"img\" aria-label=\"{0}\"><figcaption><b>{0}</b> <span class=\"unit\">{1}</span></figcaption>",
        escape(&chart.title),
        escape(&chart.unit)
    );
    let share = |value: f64| {
        if most > 0.0 {
            (value / most * 100.0).clamp(0.0, 100.0)
        } else {
            0.0
        }
    };
    for (law, label, value) in &chart.values {
        let at = distinct.iter().position(|name| name == law);
        let colour = at.and_then(|at| colours.get(at)).copied().unwrap_or_default();
        body.push_str(&bar(
            label,
            colour,
            share(*value),
            &figure(*value),
            chart.mark.map(share),
        ));
    }
    body.push_str("</figure>\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_shows_texts_as_they_are_and_loads_nothing() {
        let sheet = Sheet {
            title: "<b>laws</b>".to_owned(),
            sections: vec![Section {
                title: "Figure 8".to_owned(),
                tables: vec![Grid {
                    header: vec!["law".to_owned(), "cores".to_owned()],
                    rows: vec![vec!["<script>".to_owned(), "34.1".to_owned()]],
                    words: vec![0],
                    ..Grid::default()
                }],
                bars: vec![Bars {
                    title: "P95".to_owned(),
                    values: vec![
                        ("slo-power".to_owned(), "slo-power".to_owned(), 50.0),
                        ("fixed".to_owned(), "fixed".to_owned(), 100.0),
                    ],
                    mark: Some(200.0),
                    ..Bars::default()
                }],
                ..Section::default()
            }],
            ..Sheet::default()
        };
        let html = sheet_html(&sheet, None).unwrap();
        assert!(html.contains("&lt;b&gt;laws") && html.contains("<td class=\"short\">&lt;script&gt;</td>"));
        assert!(html.contains("<td class=\"n\">34.1</td>"));
        assert!(
            html.contains("fill c1\" style=\"width:25.0%") && html.contains("fill c0\" style=\"width:50.0%")
        );
        assert!(html.contains("left:100.0%") && !html.contains("<script>"));
    }

    #[test]
    fn runs_need_an_archive() {
        let section = Section {
            runs: vec![("a".to_owned(), RunId(1))],
            ..Section::default()
        };
        let sheet = Sheet {
            sections: vec![section],
            ..Sheet::default()
        };
        let error = sheet_html(&sheet, None).unwrap_err().to_string();
        assert!(error.starts_with("run 1 is to be drawn"), "{error}");
    }
}
