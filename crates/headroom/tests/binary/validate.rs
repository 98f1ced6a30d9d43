//! `headroom validate`: a law live on emulated hardware, and the same simulated.

use crate::common::{Program, fuse_or_skipped, headroom, measuring, number, refused, succeeds};
use crate::contract::assert_summary;
use serde_json::Value;
use std::fs;
use std::path::Path;

fn side<'a>(pair: &'a Value, name: &str) -> &'a Value {
    let sides = pair["sides"].as_array().unwrap();
    sides
        .iter()
        .find(|side| side["name"] == name)
        .unwrap_or_else(|| panic!("no {name} in {pair}"))
}

/// Simulated over live.
fn ratio(pair: &Value, name: &str) -> f64 {
    let side = side(pair, name);
    number(side, "simulated") / number(side, "live")
}

fn ratio_of(pair: &Value, path: &str) -> f64 {
    number(&pair["simulated"], path) / number(&pair["live"], path)
}

fn again(folder: &Path, run_asked: &str) -> Value {
    let program = succeeds(
        headroom(format!("validate {run_asked} --json --db"))
            .arg(folder.join("runs.db"))
            .arg("--out")
            .arg(folder.join("again.html")),
    );
    program.json()[0].clone()
}

/// The bounds are wide: the machine may be busy with other things, which the simulator does not know. What the two must agree
/// in whatever else runs is what was asked of them, and the machine that answered.
#[test]
fn a_live_run_and_its_simulation_agree_in_what_they_must() {
    let _one_at_a_time = measuring();
    if !fuse_or_skipped("a live run beside its simulation") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut program = Program::start(
        headroom("validate --duration 10 --cores 0.8 --json --no-view --laws fixed,slo-power --run-dir")
            .arg(folder.join("run"))
            .arg("--db")
            .arg(folder.join("runs.db"))
            .arg("--out")
            .arg(folder.join("validate.html")),
    );
    program.succeeds();
    let pairs = program.json();
    let err = program.err();
    assert_eq!(pairs.as_array().map(Vec::len), Some(2), "{pairs}");
    for (pair, law) in pairs.as_array().unwrap().iter().zip(["fixed", "slo-power"]) {
        assert_summary(&pair["live"], law, "emulated", 16.0, 64.0);
        assert_summary(&pair["simulated"], law, "simulated", 16.0, 64.0);
        // On a machine that is too busy the live loop skips periods, and lasts as long all the same.
        assert!((ratio_of(pair, "duration_s") - 1.0).abs() < 0.05, "{pair}\n{err}");
        assert!(
            (ratio_of(pair, "requests.offered") - 1.0).abs() < 0.01,
            "{pair}\n{err}"
        );
        assert!(number(pair, "by_period.periods") >= 10.0);
        // The same work by the same model. What a busy machine adds is the utilisation, for which the bound below is wide.
        assert!((0.85..1.18).contains(&ratio(pair, "energy")), "{pair}\n{err}");
    }
    // All cores on is all cores on.
    assert!((ratio(&pairs[0], "cores, mean") - 1.0).abs() < 1e-9);
    // A request takes up to twice the processor time where another thread of the same core is busy.
    assert!(
        (0.4..1.5).contains(&ratio(&pairs[0], "utilisation, mean")),
        "{pairs}"
    );
    let html = fs::read_to_string(folder.join("validate.html")).unwrap();
    assert!(html.contains("Live and simulated: fixed, slo-power") && html.contains("<svg"));

    // A recorded run can be simulated again, and comes out the same.
    let id = pairs[1]["live"]["run"].as_i64().unwrap().to_string();
    let again = again(folder, &id);
    assert_eq!(again["sides"], pairs[1]["sides"]);
    // One that was simulated is none to be simulated.
    refused(
        headroom("validate demo-slo-power-simulated --db").arg(folder.join("runs.db")),
        &["demo-slo-power-simulated"],
    );
}

#[test]
fn what_cannot_be_simulated_is_refused_with_what_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("runs.db");
    let simulated = |words: &str| {
        let mut command = headroom(format!("{words} --db"));
        command.arg(&db).arg("--out").arg(folder.path().join("x.html"));
        command
    };
    refused(simulated("validate latest"), &["runs.db"]);
    succeeds(simulated("sim --duration 20 --name paper"));
    refused(simulated("validate paper"), &["simulated already"]);
    refused(simulated("validate paper --seed 3"), &["--seed"]);
    refused(simulated("validate --duration 3"), &["--duration 3"]);
    refused(simulated("validate --scenario x.toml"), &["RUN"]);
}
