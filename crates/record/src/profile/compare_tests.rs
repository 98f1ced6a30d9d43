//! Profiles beside each other.

use super::*;
use crate::profile::Agreement;
use crate::profile::{Baseline, Meter, Plan, Window};
use headroom_units::Source;

fn profile(name: &str, kb_per_s: f64, power_w: f64) -> Profile {
    let plan = Plan {
        sizes_bytes: vec![1024],
        densities: vec![1.0, 0.5],
        concurrency: 100,
        window_s: 5.0,
        keep_alive: true,
        ..Plan::default()
    };
    let mut profile = Profile::new(name, plan);
    profile.machine.cores = 4;
    profile.meter = Some(Meter {
        name: "rapl".to_owned(),
        source: Source::Measured,
        of: "packages".to_owned(),
    });
    profile.baselines = vec![Baseline {
        power_w: Some(36.7),
        ..Baseline::new(BaselineKind::Idle)
    }];
    for cell in &mut profile.cells {
        cell.windows = [0.99, 1.0, 1.01]
            .map(|factor| Window {
                length_s: 5.0,
                sending_share: cell.density,
                completed: 1,
                content_bytes: (kb_per_s * cell.density * factor * 5.0 * KB) as u64,
                power_w: Some(power_w * factor),
                busy_cores: Some(3.9 * cell.density),
                softirq_cores: Some(0.5),
                ..Window::default()
            })
            .to_vec();
    }
    profile
}

#[test]
fn a_page_has_the_papers_tables_and_says_who_is_best() {
    let (one, two) = (profile("xeon", 50_000.0, 75.0), profile("arm", 8_000.0, 14.0));
    let sheet = sheet(&[&one, &two]);
    assert_eq!(
        sheet.lead,
        "The most KB/s for a watt under full load: xeon at 1 KB."
    );
    let table = &sheet.sections[1].tables[0];
    assert_eq!(table.header, ["machine", "100 %", "50 %"]);
    assert_eq!(table.rows[0][0], "xeon");
    assert!(table.rows[0][1].starts_with("666.7 ± "), "{:?}", table.rows[0]);
    assert_eq!(sheet.sections[0].tables[0].rows[1][5], "36.7");
    let of_cells = &sheet.sections[4].tables[0].rows[0];
    assert_eq!(of_cells[11], "cpu", "{of_cells:?}");
    assert!(sheet.remarks.is_empty(), "{:?}", sheet.remarks);
}

#[test]
fn watts_of_different_sources_are_not_ranked() {
    let (one, mut two) = (profile("xeon", 50_000.0, 75.0), profile("arm", 8_000.0, 14.0));
    two.meter.as_mut().unwrap().source = Source::Estimated;
    let sheet = sheet(&[&one, &two]);
    assert!(sheet.lead.contains("not ranked"), "{}", sheet.lead);
    assert!(sheet.remarks[0].contains("different sources"));
}

#[test]
fn two_of_the_same_agree_within_their_intervals_and_others_do_not() {
    let one = profile("a", 50_000.0, 75.0);
    let same = agreement(&one, &profile("a", 50_200.0, 75.2));
    assert_eq!((same.figures, same.apart.len(), same.by_chance()), (4, 0, 1));
    assert!(same.holds());
    let other = agreement(&one, &profile("a", 60_000.0, 75.0));
    assert_eq!(other.apart.len(), 2);
    assert!(!other.holds());
    assert_eq!(other.apart[0].what, "1 KB at 100 %: throughput");
    let text = sheet(&[&one, &profile("a", 60_000.0, 75.0)])
        .sections
        .pop()
        .unwrap();
    assert!(text.text[0].contains("do not agree"), "{:?}", text.text);
    assert!(!Agreement::default().holds(), "nothing in common is no agreement");
}

#[test]
fn two_of_one_name_are_told_apart() {
    let (one, two, three) = (
        profile("a", 1.0, 1.0),
        profile("b", 1.0, 1.0),
        profile("a", 1.0, 1.0),
    );
    assert_eq!(names(&[&one, &two, &three]), ["a (1)", "b", "a (2)"]);
}

#[test]
fn a_cell_that_is_not_the_machines_own_has_a_star_and_a_reason() {
    let mut one = profile("xeon", 50_000.0, 75.0);
    one.cells[0].marks = vec![Mark::ClientBound];
    let sheet = sheet(&[&one]);
    assert!(sheet.sections[1].tables[0].rows[0][1].ends_with(" *"));
    let cells = sheet.sections.last().unwrap();
    assert_eq!(
        cells.text,
        ["1 KB at 100 %: the generator was the bottleneck: the machine may serve more."]
    );
    assert_eq!(cells.tables[0].rows[0][11], "client");
}
