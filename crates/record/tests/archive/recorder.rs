//! The recorder and the archive end to end, on real files.

use crate::common::{Day, histogram, meta};
use headroom_record::{Archive, Limits, Recorder, RunState};
use headroom_units::Source;
use std::path::Path;

fn record_day(recorder: &Recorder, law: &str, periods: u64) -> headroom_record::RunSummary {
    let mut run = recorder.start_run(meta(law)).unwrap();
    for (period, latencies) in Day::new(law, periods) {
        assert!(run.record_waiting(period, &latencies).unwrap());
    }
    run.finish().unwrap()
}

#[test]
fn what_was_recorded_is_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("deep/runs.db");
    let recorder = Recorder::open(&path, Limits::default()).unwrap();
    let written = record_day(&recorder, "slo-power", 200);
    let archive = Archive::open(&path).unwrap();
    let info = archive.find("latest").unwrap();
    assert_eq!(info.state, RunState::Finished);
    assert_eq!(info.rows, 200);
    let mut all = histogram();
    for (read, (original, latencies)) in archive
        .periods(info.id)
        .unwrap()
        .iter()
        .zip(Day::new("slo-power", 200))
    {
        assert_eq!(read.index, original.index);
        assert_eq!(read.reasons, original.reasons);
        assert_eq!(read.seen, original.seen);
        assert_eq!(read.power, original.power);
        assert_eq!(read.cap, original.cap);
        all.add(&latencies).unwrap();
    }
    let summary = archive.summary(info.id).unwrap();
    assert_eq!(summary, written);
    assert_eq!(summary.periods, 200);
    assert_eq!(summary.energy_j.source, Some(Source::Estimated));
    assert_eq!(
        summary.latency_ms.p99,
        Some(all.value_at_percentile(99.0) as f64 / 1e3)
    );
}

#[test]
fn runs_are_found_by_number_name_and_prefix() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs.db");
    let recorder = Recorder::open(&path, Limits::default()).unwrap();
    let nothing = Archive::open(&path)
        .unwrap()
        .find("latest")
        .unwrap_err()
        .to_string();
    assert!(nothing.contains("no run yet"), "{nothing}");
    for law in ["fixed", "slo-power", "slo-power"] {
        record_day(&recorder, law, 3);
    }
    let archive = Archive::open(&path).unwrap();
    assert_eq!(archive.find("1").unwrap().meta.law, "fixed");
    assert_eq!(archive.find("day-f").unwrap().id.0, 1);
    assert_eq!(archive.find("latest").unwrap().id.0, 3);
    let several = archive.find("day-s").unwrap_err().to_string();
    assert!(
        several.contains("several") && several.contains("2 (day-slo-power") && several.contains("3 ("),
        "{several}"
    );
    let none = archive.find("nightly").unwrap_err().to_string();
    assert!(
        none.contains("nightly") && none.contains("1 (day-fixed"),
        "{none}"
    );
    assert!(archive.find("").is_err());
    assert!(archive.find("%").is_err());
    assert_eq!(
        archive
            .runs(2)
            .unwrap()
            .iter()
            .map(|run| run.id.0)
            .collect::<Vec<_>>(),
        [3, 2]
    );
}

#[test]
fn a_file_that_cannot_be_made_is_one_clear_error() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "x").unwrap();
    let error = Recorder::open(&file.join("runs.db"), Limits::default())
        .err()
        .unwrap()
        .to_string();
    assert!(error.contains("file") && error.contains("writable"), "{error}");
    let missing = Archive::open(Path::new("/nonexistent/runs.db"))
        .err()
        .unwrap()
        .to_string();
    assert!(missing.contains("/nonexistent/runs.db"), "{missing}");
    let small = Limits {
        max_bytes: 10,
        ..Limits::default()
    };
    let error = Recorder::open(&folder.path().join("a.db"), small)
        .err()
        .unwrap()
        .to_string();
    assert!(
        error.contains("max_bytes") && error.contains("1048576"),
        "{error}"
    );
}

#[test]
fn every_field_of_a_period_is_read_back_as_it_was_recorded() {
    use headroom_record::{LatencySummary, PeriodRecord, Reason};
    use headroom_units::{Cores, Hertz, Lever, Part, PerSecond, Ratio, Reading, Role, Seconds, Watts};
    let watts = |value, source| Some(Reading::new(Watts::new(value), source));
    let full = PeriodRecord {
        index: 7,
        at: Seconds::new(7.5),
        duration: Seconds::new(1.25),
        arrivals: 101,
        completions: 102,
        failures: 103,
        failed_by_client: 104,
        in_flight: 105,
        oldest_in_flight: Some(Seconds::from_millis(106.0)),
        latency: Some(LatencySummary {
            mean: Seconds::from_millis(1.0),
            p50: Seconds::from_millis(2.0),
            p95: Seconds::from_millis(3.0),
            p99: Seconds::from_millis(4.0),
            p999: Seconds::from_millis(5.0),
            max: Seconds::from_millis(6.0),
        }),
        slo_latency: Some(Seconds::from_millis(107.0)),
        forecast: Some(PerSecond::new(108.0)),
        cores: Some(Cores::new(109.0)),
        cap: Some(Watts::new(110.0)),
        cap_at_limit: true,
        power: watts(111.0, Source::Emulated),
        energy: crate::common::joules(112.0, Source::Measured),
        utilisation: Some(Ratio::new(0.113)),
        throttled: Some(Ratio::new(0.114)),
        frequency: Some(Hertz::new(115.0)),
        frequency_limit: Some(Hertz::new(116.0)),
        telemetry_lost: false,
        levers_lost: true,
        nodes_missing: 117,
        seen: serde_json::json!({"a": 1}),
        decided: serde_json::json!({"b": 2}),
        reasons: vec![Reason::new("rule", "text", &[("c", 3.0)])],
        parts: vec![Part::new("n1", Role::Node).with(Lever::Cap, Some(4.0))],
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs.db");
    let recorder = Recorder::open(&path, Limits::default()).unwrap();
    let mut run = recorder.start_run(meta("slo-power")).unwrap();
    assert!(run.record(full.clone(), &histogram()));
    run.finish().unwrap();
    let archive = Archive::open(&path).unwrap();
    let id = archive.find("latest").unwrap().id;
    assert_eq!(archive.periods(id).unwrap(), [full]);
    // The names that the values are exported by are those of the columns: in the same order.
    let mut lines = Vec::new();
    archive.export_jsonl(id, &mut lines).unwrap();
    let line: serde_json::Value = serde_json::from_slice(&lines).unwrap();
    for (name, value) in [
        ("arrivals", 101.0),
        ("failed_by_client", 104.0),
        ("latency_max_ms", 6.0),
        ("cap_w", 110.0),
    ] {
        assert_eq!(line[name].as_f64(), Some(value), "{name}");
    }
    assert_eq!(line["cap_at_limit"], true);
    assert_eq!(line["energy_source"], "measured");
    assert_eq!((&line["seen"]["a"], &line["rules"]), (&1.into(), &"rule".into()));
}

#[test]
fn a_file_that_is_renamed_or_replaced_while_it_is_written_is_said_to_be_lost() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs.db");
    let aside = folder.path().join("aside.db");
    let recorder = Recorder::open(&path, Limits::default()).unwrap();
    record_day(&recorder, "fixed", 3);
    assert_eq!(recorder.health().failing, None);
    std::fs::rename(&path, &aside).unwrap();
    let run = recorder.start_run(meta("noted")).unwrap();
    let summary = record_day(&recorder, "fixed", 3);
    assert!(
        summary
            .notes
            .iter()
            .any(|note| note.starts_with("3 periods could not be written")),
        "{:?}",
        summary.notes
    );
    run.note("said while it was away").unwrap();
    run.finish().unwrap();
    let failing = recorder.health().failing.unwrap();
    assert!(
        failing.contains("runs.db was removed or renamed") && recorder.health().unwritten == 3,
        "{failing}"
    );
    let log = || std::fs::metadata(folder.path().join("runs.db-wal")).map_or(0, |about| about.len());
    assert_eq!(log(), 0, "it would be replayed into whatever comes to that place");
    std::fs::write(&path, "another").unwrap();
    record_day(&recorder, "fixed", 1);
    let failing = recorder.health().failing.unwrap();
    assert!(failing.contains("is another file"), "{failing}");
    assert_eq!((log(), std::fs::read(&path).unwrap()), (0, b"another".to_vec()));
    std::fs::rename(&aside, &path).unwrap();
    record_day(&recorder, "fixed", 1);
    assert_eq!(recorder.health().failing, None);
}
