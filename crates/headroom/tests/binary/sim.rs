//! What happens in the simulated world: runs, comparisons, the paper's evaluation, tuning. All of it is deterministic, so
//! here figures may be compared to the byte.

use crate::common::{Program, assert_has, headroom, number, run, succeeds};
use crate::contract::assert_summary;
use headroom_physics::{Machine as Kind, MachineFigures};
use headroom_units::{Seconds, Watts};
use serde_json::Value;
use std::fs;
use std::path::Path;

/// Runs to the end and gives back what was printed, which must be all that was expected.
#[track_caller]
fn printed(words: impl AsRef<str>) -> String {
    succeeds(headroom(words)).out()
}

/// The same without the second in which it was made, the one figure that differs between two runs.
fn undated(printed: &str) -> String {
    let (before, date) = printed.split_once(r#""date":""#).unwrap();
    format!(r#"{before}"date":"{}"#, &date[date.find('"').unwrap()..])
}

#[track_caller]
fn json(words: impl AsRef<str>) -> Value {
    serde_json::from_str(&printed(words)).unwrap()
}

/// A refused run says all of this, and prints nothing.
#[track_caller]
fn refused(words: impl AsRef<str>, said: &[&str]) -> Program {
    let program = crate::common::refused(headroom(words), said);
    assert_eq!(program.out(), "", "nothing on standard output");
    program
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_every_key_of_the_contract() {
    let args = "sim --no-record --json --duration 120 --seed 7";
    let first = undated(&printed(args));
    assert_eq!(undated(&printed(args)), first);
    let summary: Value = serde_json::from_str(&first).unwrap();
    assert_summary(&summary, "joint", "simulated", 48.0, 0.0);
    assert_eq!(summary["trace"], "wikipedia-like");
    assert_eq!(summary["energy_j"]["source"], "simulated");
    assert!(
        number(&summary, "energy_over_bound") > 0.0,
        "nobody is under the bound"
    );
    assert_eq!(
        (number(&summary, "periods"), number(&summary, "seed")),
        (120.0, 7.0)
    );
    let other = "sim --no-record --json --duration 120 --seed 8";
    assert_ne!(undated(&printed(other)), first);
}

#[test]
fn every_law_can_be_simulated() {
    for law in [
        "fixed",
        "headroom",
        "slo-power",
        "power-only",
        "elastic-only",
        "hpa",
        "k8s-as-run",
        "pegasus",
        "pegasus-as-run",
        "power-manager",
        "powersave",
    ] {
        let summary = json(format!(
            "sim --no-record --json --duration 60 --law {law} --trace azure"
        ));
        assert_summary(&summary, law, "simulated", 48.0, 0.0);
    }
}

#[test]
fn a_run_is_recorded_as_a_live_one_is() {
    let folder = tempfile::tempdir().unwrap();
    let (db, out) = (folder.path().join("runs.db"), folder.path().join("deep/sim.html"));
    let (db, out) = (text(&db), text(&out));
    let told = json(format!(
        "sim --json --duration 60 --db {db} --out {out} --name tried"
    ));
    let bare = json("sim --json --duration 60 --no-record --name tried");
    for key in [
        "requests",
        "latency_ms",
        "slo",
        "energy_j",
        "power_w",
        "cores",
        "utilisation_mean",
        "energy_over_bound",
        "decisions",
    ] {
        assert_eq!(told[key], bare[key], "{key}");
    }
    let report = folder.path().join("report.html");
    let again = json(format!("report tried --db {db} --json --out {}", text(&report)));
    assert_eq!(again, told);
    assert!(printed(format!("runs --db {db}")).contains("tried"));
    let html = fs::read_to_string(out).unwrap();
    assert!(html.contains("simulated") && html.contains("Power ratio") && html.contains("Cores allocated"));
}

/// What a command printed apart from where it comes from, which has the command line and the time; and the fingerprint of its
/// load.
fn figures(printed: &str) -> (Value, String) {
    let mut json: Value = serde_json::from_str(printed).unwrap();
    let provenance = json.as_object_mut().unwrap().remove("provenance").unwrap();
    let load = provenance["load"].as_str().unwrap().to_owned();
    (json, load)
}

#[test]
fn the_example_is_the_default_and_every_key_of_it_is_known() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("scenario.toml");
    fs::write(&file, printed("sim --example")).unwrap();
    let ask = "sim --no-record --json --duration 60 --trace azure";
    let (of_file, load) = figures(&printed(format!("{ask} --scenario {}", text(&file))));
    assert_eq!((of_file, load), figures(&printed(ask)));
    // Without a trace its own arrivals count.
    let own = json(format!(
        "sim --no-record --json --duration 60 --scenario {}",
        text(&file)
    ));
    assert_eq!(own["trace"], "slo-power (arrivals of the scenario)");
}

#[test]
fn a_wrong_scenario_is_one_error_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("s.toml");
    let table = r#"
        [service]\ntarget_msec = 9\n | :2:  | target_msec
        [delays]\ncores_s = -1\n | :2: delays.cores_s:  | 0 to 3600
        \n[[nodes]]\n\n[[nodes]]\nspeed = -3\n | :5: nodes.1.speed:  | 0.001 to 1000
        [arrivals]\nkind = "poisson"\nrate_per_s = 5000\n | :1: arrivals:  | the backlog would grow without end
        [law]\nname = "magic"\n | :2:  | magic
        [law.slo-power]\nguard = 3\n | :2: law.slo-power.guard:  | at most 1
        [control]\nassumed_rate_per_core_s = 0\n | :2: control.assumed_rate_per_core_s:  | 0.000001
        [law]\nname = "slo-power"\n[control]\nassumed_rate_per_core_s = 2\n | : service.target_ms:  | target
        [service\n | :1:  | example
    "#;
    for row in table.lines().filter(|row| !row.trim().is_empty()) {
        let [scenario, line, said] = row.split(" | ").collect::<Vec<_>>().try_into().unwrap();
        let scenario = scenario.trim().replace("\\n", "\n");
        fs::write(&file, scenario).unwrap();
        let said = [&format!("s.toml{line}"), said];
        let error = refused(format!("sim --no-record --scenario {}", text(&file)), &said).err();
        assert_eq!(error.trim().lines().count(), 1, "{error}");
    }
    refused("sim --no-record --law magic", &["magic", "slo-power"]);
    refused("sim --no-record --duration=-5", &["seconds"]);
    fs::write(&file, "100\n-7\n").unwrap();
    refused(
        format!("sim --no-record --trace {}", text(&file)),
        &["s.toml:2", "-7"],
    );
}

#[test]
fn servers_that_boot_longer_than_the_forecast_reaches_or_draw_more_switched_off_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("s.toml");
    let scenario = |change: fn(&mut MachineFigures), spare: u32, timeout_s: f64| {
        let mut figures = MachineFigures::skylake(8);
        change(&mut figures);
        let machine = toml::Value::try_from(Kind::Figures(Box::new(figures))).unwrap();
        let table = toml::toml! {
            service = { period_s = 0.5 }
            power_states = { warm_up_s = 5.0, boot_timeout_s = timeout_s }
            nodes = [{ count = 3, cores = 8, machine = machine }]
            law = { name = "joint", joint = { spare = spare } }
        };
        table.to_string()
    };
    let long: fn(&mut MachineFigures) = |figures| figures.server.boot = Seconds::new(3600.0);
    let dear: fn(&mut MachineFigures) = |figures| figures.server.off = Watts::new(400.0);
    let cases: [(_, u32, f64, &[&str]); 4] = [
        (long, 0, 7200.0, &["s.toml", "boots in 3600 s", "reaches 4096"]),
        (
            long,
            0,
            300.0,
            &[
                "s.toml",
                "power_states.boot_timeout_s",
                "is 300",
                "boots in 3600 s",
            ],
        ),
        (
            dear,
            0,
            300.0,
            &[
                "s.toml",
                "server.off",
                "is 400",
                "switched off saves nothing by it",
            ],
        ),
        (
            |_| {},
            3,
            300.0,
            &["s.toml", "law.joint.spare", "is 3 of 3 servers", "at most 2"],
        ),
    ];
    for (change, spare, timeout_s, said) in cases {
        fs::write(&file, scenario(change, spare, timeout_s)).unwrap();
        refused(format!("sim --no-record --scenario {}", text(&file)), said);
    }
}

#[test]
fn a_run_that_would_not_end_is_bounded_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("s.toml");
    for (limits, said) in [
        ("events = 5000", "stopped after 5000 events"),
        ("in_flight = 300", "the backlog grows without end"),
    ] {
        let scenario = format!(
            "allow_overload = true\n[arrivals]\nkind = \"poisson\"\nrate_per_s = 5000\n[limits]\n{limits}\n"
        );
        fs::write(&file, scenario).unwrap();
        let failed = run(headroom(format!("sim --no-record --scenario {}", text(&file))));
        assert_eq!((failed.code(), failed.out().as_str()), (Some(1), ""));
        assert_has(failed.err(), &[said, "s.toml:6"]);
    }
}

#[test]
fn a_comparison_does_not_depend_on_how_many_run_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("compare.html");
    let ask = |jobs: &str| {
        let what = "--laws fixed,slo-power,k8s-as-run --traces wikipedia,azure --seeds 3 --duration 90";
        printed(format!(
            "compare {what} --json --jobs {jobs} --out {}",
            text(&out)
        ))
    };
    let one = ask("1");
    let (comparison, load) = figures(&one);
    assert_eq!(figures(&ask("2")), (comparison.clone(), load.clone()));
    let page = fs::read_to_string(&out).unwrap();
    assert!(
        page.contains("Where these figures come from") && page.contains(&load),
        "its load"
    );
    let rows = comparison["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 6);
    for row in rows {
        let of = |path: &str| number(row, path);
        // Nobody is under the bound.
        assert!(of("energy_over_bound_percent.mean") > 0.0, "{row}");
        assert_eq!(row["runs"].as_array().unwrap().len(), 3);
        if row["law"] == "fixed" {
            assert_eq!(of("energy_over_first_percent.mean"), 0.0);
            assert!((of("cores.mean") - 48.0).abs() < 1e-6);
        } else {
            // Cores that are not allocated idle as others do: what is left to save is little.
            assert!(of("energy_over_first_percent.mean") < 1.0, "{row}");
            assert!(of("cores.mean") < 48.0);
        }
        let sum: f64 = row["runs"]
            .as_array()
            .unwrap()
            .iter()
            .map(|run| number(run, "energy_j"))
            .sum();
        assert!((sum / 3.0 - of("energy_j.mean")).abs() < 1e-6 * sum);
    }
    let html = fs::read_to_string(&out).unwrap();
    assert!(html.contains("k8s-as-run") && html.contains("confidence"));
    refused("compare --laws fixed,fixed", &["twice"]);
}

#[test]
fn worlds_are_judged_one_by_one() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("worlds.html");
    let base = format!(
        "compare --worlds tenfold,mixed-four,slow-node --laws fixed,joint,slo-power+static,hpa-nodes --seeds 2 --duration 40 --out {}",
        text(&out)
    );
    let all = json(format!("{base} --json"));
    let worlds = all["worlds"].as_array().unwrap();
    assert_eq!(worlds.len(), 3);
    for (world, cores) in worlds.iter().zip([320.0, 40.0, 32.0]) {
        let laws = world["laws"].as_array().unwrap();
        let names: Vec<&str> = laws.iter().map(|law| law["law"].as_str().unwrap()).collect();
        assert_eq!(names, ["fixed", "joint", "slo-power+static", "hpa-nodes"]);
        assert!((number(&laws[0], "cores.mean") - cores).abs() < 1e-6, "{world}");
        for law in laws {
            // A slow server is no way to go under the bound; who keeps the SLO is over it even in so short a run.
            assert!(number(law, "energy_over_bound_percent.mean") > 0.0, "{law}");
            assert!(number(law, "controllable_over_bound_percent.mean") > 0.0, "{law}");
            // What was saved is the sum of its causes.
            let causes = law["saved_percent_by"].as_array().unwrap();
            let saved: f64 = causes.iter().map(|cause| number(cause, "mean")).sum();
            let energy = number(law, "energy_over_first_percent.mean");
            assert!((saved + energy).abs() < 1e-6, "{saved} {energy}");
        }
        let verdict = world["ordering"]["verdict"].as_str().unwrap();
        assert!(["holds", "within-chance", "fails"].contains(&verdict));
        let exceptions = world["ordering"]["exceptions"].as_array().unwrap();
        assert_eq!(
            exceptions.is_empty(),
            verdict == "holds",
            "what does not hold is said"
        );
    }
    let printed = printed(&base);
    assert_has(
        &printed,
        &["tenfold", "saved of what could", "periods late", "of 3 worlds"],
    );
    assert!(fs::read_to_string(&out).unwrap().contains("of 3 worlds"));
    refused("compare --worlds flash", &["flash-crowds", "node-loss"]);
    refused("compare --worlds --traces azure", &["--traces"]);
    refused("compare --laws fixed+nothing", &["nothing", "joint"]);
    refused("compare --laws fixed+headroom", &["both move the lever"]);
}

#[test]
fn the_paper_s_numbers_stand_beside_ours() {
    let folder = tempfile::tempdir().unwrap();
    let (db, out) = (folder.path().join("r.db"), folder.path().join("r.html"));
    let base = format!(
        "reproduce slo-power --seeds 2 --duration 30 --db {} --out {}",
        text(&db),
        text(&out)
    );
    let told = json(format!("{base} --json"));
    let rows = told["rows"].as_array().unwrap();
    for paper in [
        "91", "58.1", "43.96", "0.91", "189", "203", "35", "193", "0.70", "96.64", "39", "0.86", "117",
        "0.90", "0.16", "0.05", "12",
    ] {
        assert!(rows.iter().any(|row| row["paper"] == paper), "{paper}");
    }
    for row in rows {
        assert!(row["ours"]["mean"].as_f64().is_some_and(f64::is_finite), "{row}");
    }
    assert_eq!(told["figure_7"].as_array().unwrap().len(), 15);
    for point in told["figure_8"].as_array().unwrap() {
        assert!(number(point, "energy_over_bound_percent.mean") > 0.0, "{point}");
    }
    assert_eq!(told["figure_8"].as_array().unwrap().len(), 12);
    assert!(told["traces"].as_str().unwrap().starts_with("generated"));
    let html = fs::read_to_string(&out).unwrap();
    assert_has(
        &html,
        &[
            "Figure 1",
            "Figure 5",
            "(a) Power component",
            "(d) SLO-Power, Azure",
            "Figure 7",
            "Figure 8",
        ],
    );
    assert!(printed(format!("runs --db {}", text(&db))).contains("slo-power-fig6d"));
    refused(
        format!("reproduce slo-power --traces {}", text(folder.path())),
        &["wikipedia-cluster.txt"],
    );
}

#[test]
fn tuning_prints_what_a_scenario_can_hold_and_judges_it_on_other_seeds() {
    let folder = tempfile::tempdir().unwrap();
    let ask = |jobs: &str| {
        json(format!(
            "tune --law k8s-as-run --trace azure --budget 20 --seeds 2 --duration 120 --max-over 5 --json --jobs {jobs}"
        ))
    };
    let told = ask("1");
    assert_eq!(ask("2"), told);
    assert_eq!(number(&told, "tried"), 20.0);
    assert!(number(&told, "tuned_over_percent.mean") >= 0.0);
    assert!(number(&told, "tuned_over_bound_percent.mean") > 0.0);
    let file = folder.path().join("tuned.toml");
    fs::write(&file, told["toml"].as_str().unwrap()).unwrap();
    // The third seed is the first that judged.
    let ask = "sim --no-record --json --law k8s-as-run --trace azure --duration 120 --seed";
    let energy = |more: String| number(&json(format!("{ask} {more}")), "energy_j.value");
    let tuned = [
        energy(format!("3 --scenario {}", text(&file))),
        energy(format!("4 --scenario {}", text(&file))),
    ];
    let mean = (tuned[0] + tuned[1]) / 2.0;
    assert!((mean / number(&told, "tuned_j.mean") - 1.0).abs() < 1e-9);
    refused("tune --law fixed", &["no parameters"]);
}

#[test]
fn the_capacity_paper_s_numbers_stand_beside_ours() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("r.html");
    let base = "reproduce capacity --seeds 2 --scale 0.1 --day 0.05";
    let told = json(format!("{base} --out {} --json", text(&out)));
    let rows = told["rows"].as_array().unwrap();
    for paper in [
        "595", "586", "614", "38", "31", "25", "35", "44", "0.001", "0.002", "43", "36",
    ] {
        assert!(rows.iter().any(|row| row["paper"] == paper), "{paper}");
    }
    // A cluster that follows its load saves energy, even on so short a day.
    let saved = |what: &str| {
        let row = rows
            .iter()
            .find(|row| row["what"].as_str().unwrap().starts_with(what));
        row.unwrap()["ours"]["mean"].as_f64().unwrap()
    };
    assert!(saved("standard demand, dynamic: energy saved") > 5.0, "{rows:?}");
    assert!(saved("standard demand, static: energy saved") > 5.0, "{rows:?}");
    let html = fs::read_to_string(&out).unwrap();
    assert_has(
        &html,
        &[
            "Figure 9",
            "Figure 10",
            "Figure 11",
            "Figure 12",
            "A look, not a reproduction",
        ],
    );
    refused("reproduce capacity --scale 2", &["between 0.01 and 1"]);
}

#[test]
fn reef_s_numbers_stand_beside_ours() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("r.html");
    let told = json(format!(
        "reproduce reef --seeds 2 --duration 0.5 --out {} --json",
        text(&out)
    ));
    let rows = told["rows"].as_array().unwrap();
    for paper in [
        "1.27", "6.14", "105", "3.75", "3.64", "16", "12.10", "29.39", "5.33", "53.45", "20.43", "7.60",
    ] {
        assert!(rows.iter().any(|row| row["paper"] == paper), "{paper}");
    }
    let ours = |what: &str| {
        let row = rows
            .iter()
            .find(|row| row["what"].as_str().unwrap().starts_with(what));
        row.unwrap_or_else(|| panic!("{what}"))["ours"]["mean"]
            .as_f64()
            .unwrap()
    };
    // What the model is given comes out again, and what is on call has the instructions of a few threads.
    assert!((ours("MySQL-like, 512 connections alone: instructions") - 6.14).abs() < 0.2);
    assert!(ours("MySQL-like, 512 connections, REEF: instructions") < 1.3);
    assert!(ours("shortest C6 period that draws less than the shallowest") == 1000.0);
    // Of every row there is a number, and every case was run with both seeds.
    assert!(rows.iter().all(|row| row["ours"]["mean"].is_number()), "{rows:?}");
    let cases = told["cases"].as_array().unwrap();
    assert!(
        cases
            .iter()
            .all(|case| case["runs"].as_array().unwrap().len() == 2)
    );
    let html = fs::read_to_string(&out).unwrap();
    assert_has(
        &html,
        &[
            "Figure 2",
            "Figure 3",
            "Figures 4 and 5",
            "Figure 9",
            "Figure 12",
            "Figure 17",
            "Figures 18 to 20",
            "Left out",
            "a look, not a reproduction",
        ],
    );
    refused("reproduce reef --duration 0", &["more than 0 seconds"]);
    refused("reproduce reef --seeds 1", &["shows no spread"]);
}
