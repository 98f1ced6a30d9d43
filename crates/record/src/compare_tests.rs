use super::*;
use crate::model::World;
use crate::summary::SourcedEnergy;
use crate::table::summary_table;
use headroom_units::{Joules, Seconds};

fn run(law: &str, joules: f64) -> RunSummary {
    let summary = serde_json::json!({
        "law": law, "trace": "wikipedia", "seed": 1, "world": "emulated", "periods": 200, "duration_s": 100.0,
        "requests": {"offered": 10_000, "completed": 10_000, "failed": 0}, "latency_ms": {},
        "slo": {"percentile": 95.0, "target_ms": 250.0, "periods_over": 0.01, "periods_judged": 190},
        "energy_j": {"value": joules, "source": "emulated", "known_share": 1.0}, "power_w": {}, "cores": {},
        "run": if law == "fixed" { 1 } else { 2 }, "conditions": {"bystanders": 0.03},
    });
    serde_json::from_value(summary).unwrap()
}

#[test]
fn a_comparison_that_holds_says_what_was_saved() {
    let comparison = Comparison::of(&run("headroom", 750.0), &run("fixed", 1000.0));
    assert_eq!(comparison.saving, Some(Ratio::new(0.25)));
    assert!(comparison.holds && comparison.why.is_empty());
    assert_eq!(
        (comparison.against.as_str(), comparison.against_run),
        ("fixed", Some(RunId(1)))
    );
    assert_eq!(comparison.refusal(), None);
    let more = Comparison::of(&run("headroom", 1250.0), &run("fixed", 1000.0));
    assert_eq!(more.saving, Some(Ratio::new(-0.25)));
}

/// What is changed of the run or of the reference, and what is said then.
type Case = (fn(&mut RunSummary, &mut RunSummary), &'static str);

const REFUSED: &[Case] = &[
    (
        |_, reference| reference.slo.periods_over = Some(Ratio::new(0.039)),
        "fixed, the reference, was late in 3.9 % of the judged periods",
    ),
    (
        |_, reference| reference.slo.periods_over = None,
        "no period was held against the SLO",
    ),
    (
        |run, _| run.conditions.energy_unknown_periods = 11,
        "headroom: energy is unknown in 11 of 200 periods",
    ),
    (
        |_, reference| reference.conditions.energy_unknown_periods = 11,
        "fixed: energy is unknown in 11 of 200 periods",
    ),
    (
        |run, _| run.energy_j.source = Some(Source::Estimated),
        "energies of two sources (emulated and estimated)",
    ),
    (
        |run, reference| {
            run.provenance.meter = Some("rapl: dram-0, package-0".to_owned());
            reference.provenance.meter = Some("psys: psys".to_owned());
        },
        "headroom: its power was measured by rapl: dram-0, package-0, that of fixed by psys: psys",
    ),
    (
        |run, reference| {
            run.provenance.meter = Some("rapl: package-0".to_owned());
            reference.provenance.meter = Some("rapl: dram-0, package-0".to_owned());
        },
        "headroom: its power was measured by rapl: package-0, that of fixed by rapl: dram-0, package-0",
    ),
    (
        |_, reference| reference.provenance.meter = Some("model".to_owned()),
        "headroom: its power was measured by an unknown meter, that of fixed by model",
    ),
    (
        |run, _| {
            let value = Joules::new(1.0);
            run.energy_j.value = None;
            run.energy_j.by_source = vec![SourcedEnergy {
                source: Source::Measured,
                value,
            }];
        },
        "headroom: the source of its energy changed",
    ),
    (|run, _| run.energy_j.value = None, "headroom: energy unknown"),
    (
        |_, reference| reference.energy_j.value = Some(Joules::new(0.0)),
        "used no energy",
    ),
    (
        |run, _| run.conditions.levers_lost_periods = 1,
        "headroom: a lever was not in force, or another held the cap, in 1 of 200 periods",
    ),
    (
        |run, reference| {
            run.conditions.bystanders = Some(Ratio::new(0.12));
            reference.conditions.bystanders = Some(Ratio::new(0.11));
        },
        "fixed: other programs used 11.0 % of the machine",
    ),
    (
        |run, _| run.conditions.bystanders = Some(Ratio::new(0.09)),
        "other programs used 3.0 % and 9.0 % of the machine",
    ),
    (
        |run, _| run.requests.offered = 9_700,
        "another number of requests (10000 and 9700)",
    ),
    (
        |run, _| run.slo.periods_unknown = 10,
        "headroom: latency is unknown in 10 of 190 periods",
    ),
    (
        |run, _| run.dropped_periods = 20,
        "headroom: nothing was recorded in 20 of 220 periods",
    ),
    (
        |run, _| run.slo.target_ms = Some(300.0),
        "another SLO (P95 under 250 ms and P95 under 300 ms)",
    ),
    (
        |run, _| run.world = World::Live,
        "another world (emulated and live)",
    ),
    (
        |run, _| run.trace = "azure".to_owned(),
        "another trace (wikipedia and azure)",
    ),
    (|run, _| run.seed = 2, "another seed (1 and 2)"),
    (
        |run, reference| {
            run.provenance.load = Some("aa".to_owned());
            reference.provenance.load = Some("bb".to_owned());
        },
        "another load",
    ),
    (
        |run, _| run.duration_s = Seconds::new(103.0),
        "another length (100 s and 103 s)",
    ),
    (
        |run, reference| {
            run.conditions.nodes = ["n1", "n2"].map(str::to_owned).to_vec();
            reference.conditions.nodes = ["n1", "n2", "n3"].map(str::to_owned).to_vec();
        },
        "another set of nodes (n1 n2 n3 and n1 n2)",
    ),
    (
        |run, _| run.conditions.nodes_missing_periods = 50,
        "headroom: nodes were missing in 50 of 200 periods",
    ),
];

#[test]
fn what_differs_or_was_lost_is_a_reason_and_then_there_is_no_saving() {
    for (change, said) in REFUSED {
        let (mut one, mut reference) = (run("headroom", 750.0), run("fixed", 1000.0));
        change(&mut one, &mut reference);
        let comparison = Comparison::of(&one, &reference);
        assert!(
            !comparison.holds && comparison.saving.is_none(),
            "{said}: {comparison:?}"
        );
        let refusal = comparison.refusal().unwrap();
        assert!(refusal.contains(said), "{said}: {refusal}");
        let table = summary_table(&[reference, one]);
        assert!(
            table.contains("n/c") && table.contains("does not hold") && !table.contains("25.0"),
            "{said}: {table}"
        );
    }
}

#[test]
fn small_differences_are_none() {
    let (mut one, mut reference) = (run("headroom", 750.0), run("fixed", 1000.0));
    one.requests.offered -= 64;
    one.duration_s = Seconds::new(101.0);
    one.conditions.bystanders = Some(Ratio::new(0.07));
    reference.conditions.energy_unknown_periods = 10;
    one.slo.periods_over = Some(Ratio::new(0.3));
    assert_eq!(Comparison::of(&one, &reference).saving, Some(Ratio::new(0.25)));
    // Nodes are a set.
    one.conditions.nodes = ["b", "a"].map(str::to_owned).to_vec();
    reference.conditions.nodes = ["a", "b"].map(str::to_owned).to_vec();
    assert!(Comparison::of(&one, &reference).holds);
    // Where nobody counted other programs, nothing is known of them.
    one.conditions.bystanders = None;
    assert!(Comparison::of(&one, &reference).holds);
}

#[test]
fn what_the_meter_missed_is_no_saving() {
    let (mut one, reference) = (run("headroom", 1000.0), run("fixed", 1000.0));
    // A twentieth of the periods is not in the sum.
    one.energy_j.value = Some(Joules::new(950.0));
    one.conditions.energy_unknown_periods = 10;
    let saving = Comparison::of(&one, &reference).saving.unwrap();
    assert!(saving.get().abs() < 1e-9, "{saving:?}");
}

#[test]
fn each_run_but_the_first_carries_its_comparison() {
    let mut runs = [
        run("fixed", 1000.0),
        run("slo-power", 900.0),
        run("headroom", 750.0),
    ];
    runs[1].conditions.levers_lost_periods = 3;
    compare_with_reference(&mut runs);
    let json = serde_json::to_value(&runs).unwrap();
    assert!(json[0].get("comparison").is_none());
    assert_eq!(json[1]["comparison"]["holds"], false);
    assert!(json[1]["comparison"]["saving"].is_null());
    assert!(
        json[1]["comparison"]["why"][0]
            .as_str()
            .unwrap()
            .contains("3 of 200 periods")
    );
    assert_eq!(json[2]["comparison"]["saving"], 0.25);
    assert_eq!(json[2]["comparison"]["against"], "fixed");
}

#[test]
fn of_runs_in_pairs_each_is_compared_with_that_beside_it() {
    let mut runs = [
        run("fixed", 1000.0),
        run("joint", 600.0),
        run("fixed", 2000.0),
        run("joint", 1000.0),
    ];
    for (number, run) in (1..).zip(&mut runs) {
        run.run = Some(RunId(number));
    }
    compare_with_reference(&mut runs);
    let saved = |at: usize| runs[at].comparison.as_ref().unwrap().saving.unwrap().get();
    assert!((saved(1) - 0.4).abs() < 1e-9 && (saved(3) - 0.5).abs() < 1e-9);
    // What the reference itself differs by says what chance does.
    assert!((saved(2) + 1.0).abs() < 1e-9);
    let table = summary_table(&runs);
    assert!(table.contains("joint (run 4)"), "{table}");
    assert!(table.contains("saving against the last fixed before"), "{table}");
}

/// A run with a load of this fingerprint, begun at this time.
fn under(mut run: RunSummary, load: &str, date: &str) -> RunSummary {
    let mut offered = crate::OfferedLoad::default();
    offered.origin.load = Some(load.to_owned());
    offered.origin.date = date.to_owned();
    run.served(offered);
    run
}

#[test]
fn a_saving_under_loads_that_are_not_known_says_so_and_other_arrivals_are_another_load() {
    let (one, reference) = (run("headroom", 750.0), run("fixed", 1000.0));
    let (with, of) = (
        under(one.clone(), "a", "later"),
        under(reference.clone(), "a", "before"),
    );
    let known = Comparison::of(&with, &of);
    assert!(known.holds && known.notes.is_empty(), "{known:?}");
    for (one, reference) in [(&one, &reference), (&with, &reference), (&one, &of)] {
        let unknown = Comparison::of(one, reference);
        assert!(unknown.holds, "{unknown:?}");
        assert!(unknown.notes[0].contains("whether the load was the same is not known"));
        let table = summary_table(&[reference.clone(), one.clone()]);
        assert!(
            table.contains("25.0 (load not known)") && table.contains("give --load for each run"),
            "{table}"
        );
    }
    let refused = |one: &RunSummary, of: &RunSummary, said: &str| {
        let comparison = Comparison::of(one, of);
        assert!(comparison.saving.is_none(), "{comparison:?}");
        assert!(
            comparison.why.iter().any(|why| why.contains(said)),
            "{comparison:?}"
        );
    };
    refused(&under(one.clone(), "b", "later"), &of, "fingerprints");
    refused(
        &under(one.clone(), "a", "before"),
        &of,
        "one and the same sending",
    );
    let course = |run: &RunSummary, from: f64, by: f64| {
        let mut run = run.clone();
        run.conditions.arrivals = (0..10).map(|n| from + by * f64::from(n)).collect();
        run
    };
    let (steady, ramp) = (course(&reference, 1_000.0, 0.0), course(&one, 100.0, 200.0));
    refused(&ramp, &steady, "arrived at other times");
    assert!(Comparison::of(&course(&one, 1_010.0, 0.0), &steady).holds);
    // What is known of the load goes before: users come later where answers do.
    let known = Comparison::of(&under(ramp, "a", "later"), &under(steady, "a", "before"));
    assert!(known.holds, "{known:?}");
    // A load that may have gone elsewhere decides nothing.
    let mut doubtful = with;
    doubtful.provenance.offered_load.as_mut().unwrap().doubt = Some("elsewhere".to_owned());
    assert!(!Comparison::of(&doubtful, &of).notes.is_empty());
}

/// What two runs on one machine draw at the same time was read by both; the one may begin as the other ends.
#[test]
fn runs_that_shared_a_machine_are_not_compared() {
    // Of 100 s each.
    let of = |host: &str, began_ms: Option<i64>| {
        let (mut one, mut reference) = (run("headroom", 750.0), run("fixed", 1000.0));
        (one.conditions.began_ms, reference.conditions.began_ms) = (began_ms, Some(5_000_000));
        one.provenance.host = host.to_owned();
        reference.provenance.host = "here".to_owned();
        Comparison::of(&one, &reference)
    };
    let shared = of("here", Some(5_060_000));
    assert!(!shared.holds && shared.saving.is_none());
    assert!(
        shared
            .why
            .contains(&"both ran on here at the same time, for 40 s".to_owned()),
        "{shared:?}"
    );
    for (host, began_ms) in [
        ("there", Some(5_060_000)),
        ("here", Some(5_099_000)),
        ("here", Some(4_000_000)),
        ("here", None),
    ] {
        assert!(of(host, began_ms).holds, "{host} {began_ms:?}");
    }
}
