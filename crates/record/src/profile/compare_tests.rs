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
    assert_eq!(of_cells[12], "cpu", "{of_cells:?}");
    // It draws 14 W of 36.7 idle.
    let [below] = &sheet.remarks[..] else {
        panic!("{:?}", sheet.remarks);
    };
    assert!(
        below.starts_with("arm: less power than idle at 1 KB at 100 %, 1 KB at 50 %"),
        "{below}"
    );
    // Which of them was made how and when.
    assert_eq!(sheet.sections[0].text.len(), 2);
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
    assert_eq!((same.answer(), same.unknown.len()), (Answer::Agree, 0));
    let other = agreement(&one, &profile("a", 60_000.0, 75.0));
    assert_eq!(other.apart.len(), 2);
    assert_eq!(other.answer(), Answer::Differ);
    assert_eq!(other.apart[0].what, "1 KB at 100 %: throughput");
    let text = sheet(&[&one, &profile("a", 60_000.0, 75.0)])
        .sections
        .pop()
        .unwrap();
    assert!(text.text[0].contains("do not agree"), "{:?}", text.text);
    let nothing = Agreement::default().answer();
    assert_eq!(nothing, Answer::CannotTell, "nothing in common is no agreement");
}

#[test]
fn figures_that_are_hardly_known_do_not_count_as_agreeing() {
    let one = profile("a", 50_000.0, 75.0);
    let mut other = profile("a", 50_200.0, 75.2);
    for (at, window) in other.cells[0].windows.iter_mut().enumerate() {
        // One of three is a tenth of the others.
        if at % 2 == 1 {
            window.content_bytes /= 10;
        }
    }
    let found = agreement(&one, &other);
    assert_eq!(
        (found.answer(), found.figures, &found.unknown[..]),
        (Answer::Agree, 3, &["1 KB at 100 %: throughput".to_owned()][..])
    );
    let text = sheet(&[&one, &other]).sections.pop().unwrap().text;
    assert!(
        text[1].starts_with("1 more cannot be judged") && text[1].contains("1 KB at 100 %: throughput"),
        "{text:?}"
    );
    other.cells[1] = other.cells[0].clone();
    other.cells[1].density = 0.5;
    let told = serde_json::to_value(crate::profile::Comparison::of(&[&one, &other])).unwrap();
    assert_eq!(told["agreement"]["answer"], "cannot-tell");
    assert_eq!(told["agreement"]["agree"], false);
    let text = sheet(&[&one, &other]).sections.pop().unwrap().text;
    assert!(text[0].contains("too few are known"), "{text:?}");
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
    assert_eq!(cells.tables[0].rows[0][12], "client");
}

#[test]
fn what_is_wrong_with_many_cells_is_one_line_and_what_is_not_the_machines_own_is_named() {
    let mut one = profile("xeon", 50_000.0, 75.0);
    let wide = |density| Cell {
        density,
        marks: vec![Mark::Wide],
        ..one.cells[0].clone()
    };
    one.cells = [1.0, 0.75, 0.5, 0.25].map(wide).to_vec();
    let notes = |one: &Profile| sheet(&[one]).sections.pop().unwrap().text;
    let wider = "the interval is wider than asked, and no time was left.";
    assert_eq!(notes(&one), [format!("all 4 cells: {wider}")]);
    one.cells[0].marks = vec![Mark::Failing];
    assert_eq!(
        notes(&one),
        [
            "1 KB at 100 %: more than 1 % of the requests failed.".to_owned(),
            format!("3 of 4 cells: {wider}")
        ]
    );
    one.cells[1].marks.clear();
    assert_eq!(notes(&one)[1], format!("1 KB at 50 %, 1 KB at 25 %: {wider}"));
}

#[test]
fn a_density_that_was_not_had_is_shown_beside_what_was_asked() {
    let mut one = profile("arm", 8_000.0, 14.0);
    for window in &mut one.cells[1].windows {
        window.sending_share = 0.625;
    }
    let sheet = sheet(&[&one]);
    let row = &sheet.sections[1].tables[0].rows[0];
    assert!(
        row[2].ends_with(" (at 62.5 %)") && !row[1].contains("at"),
        "{row:?}"
    );
    let cells = &sheet.sections.last().unwrap().tables[0].rows;
    assert_eq!((&*cells[0][1], &*cells[1][1]), ("100 %", "50 % (had 62.5 %)"));
}

#[test]
fn programs_are_told_the_layout_the_density_had_and_whether_two_agree() {
    use crate::profile::Comparison;
    let (one, two) = (profile("a", 50_000.0, 75.0), profile("a", 60_000.0, 75.0));
    let told = serde_json::to_value(Comparison::of(&[&one, &two])).unwrap();
    assert_eq!(told["schema"], "headroom-profile-comparison/1");
    assert_eq!(told["rows"].as_array().unwrap().len(), 4);
    assert_eq!(
        (&told["rows"][1]["density"], &told["rows"][1]["density_had"]),
        (&0.5.into(), &0.5.into())
    );
    let agreement = &told["agreement"];
    assert_eq!(
        (&agreement["agree"], &agreement["figures"]),
        (&false.into(), &4.into())
    );
    assert_eq!(agreement["apart"][0]["what"], "1 KB at 100 %: throughput");
    assert!(Comparison::of(&[&one, &one]).agreement.unwrap().agree);
    let mut other = two;
    other.machine.cores = 64;
    assert_eq!(Comparison::of(&[&one, &other]).agreement, None);
    assert_eq!(Comparison::of(&[&one]).agreement, None);
}

#[test]
fn windows_that_are_set_aside_are_said() {
    let mut one = profile("xeon", 50_000.0, 75.0);
    let away = Window {
        length_s: 5.0,
        sending_share: 1.0,
        failed: 9,
        ..Window::default()
    };
    one.cells[0].windows.insert(1, away.clone());
    one.cells[0].windows.push(away.clone());
    one.cells[1].windows.push(away);
    let cells = sheet(&[&one]).sections.pop().unwrap();
    assert_eq!(
        cells.text,
        [
            "1 KB at 100 %: 2 windows set aside: failures.",
            "1 KB at 50 %: 1 window set aside: failures."
        ]
    );
    assert_eq!(cells.tables[0].rows[0][13], "3");
    let row = &crate::profile::rows(&[&one])[0];
    assert_eq!((row.windows, row.windows_set_aside), (3, 2));
}

#[test]
fn two_that_differ_in_their_seed_alone_are_held_against_each_other_and_others_are_told_why_not() {
    let (one, mut two) = (profile("a", 50_000.0, 75.0), profile("a", 50_000.0, 75.0));
    two.plan.seed = 9;
    let last = |two: &Profile| sheet(&[&one, two]).sections.pop().unwrap();
    assert!(
        last(&two).text[0].ends_with("they agree."),
        "{:?}",
        last(&two).text
    );
    two.plan.concurrency = 50;
    let text = &last(&two).text[0];
    assert!(
        text.contains("cannot be told") && text.contains("the plan"),
        "{text}"
    );
    two.machine.cores = 2;
    assert_ne!(last(&two).title, "Whether the two agree");
}
