//! What the recorder does when it is killed, when its disk stalls or is full, and when its file grows too large.

mod common;

use common::{Day, histogram, meta};
use headroom_record::{
    Archive, Limits, PeriodRecord, Reason, Recorder, RunId, RunMeta, RunState, RunSummary,
};
use headroom_units::{Cores, Seconds, Source};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

/// Tells the children of this test, which run this very program, what to do: `task:file`.
const TASK: &str = "HEADROOM_RECORD_TEST_TASK";

/// Runs the test `child` of this program in a process of its own.
fn spawn(task: &str, path: &Path, wrapper: Option<&str>) -> Child {
    let me = std::env::current_exe().unwrap();
    let arguments = ["--exact", "child", "--nocapture"];
    let mut command = match wrapper {
        None => Command::new(me),
        Some(script) => {
            let mut shell = Command::new("sh");
            shell.args(["-c", script, "sh"]).arg(me);
            shell
        }
    };
    command
        .args(arguments)
        .env(TASK, format!("{task}:{}", path.display()));
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Not a test by itself: the other side of the tests that need a process to kill or to starve.
#[test]
fn child() {
    let Ok(task) = std::env::var(TASK) else { return };
    let (task, path) = task.split_once(':').unwrap();
    let path = Path::new(path);
    match task {
        "write-until-killed" => {
            let recorder = Recorder::open(path, Limits::default()).unwrap();
            let mut run = recorder.start_run(meta("slo-power")).unwrap();
            for (period, latencies) in Day::new("slo-power", 1_000_000) {
                let index = period.index;
                assert!(run.record(period, &latencies));
                // Says what is known to be written, once it is.
                while recorder.health().written <= index {
                    std::thread::sleep(Duration::from_micros(200));
                }
                println!("written {index}");
            }
        }
        "fill-the-disk" => {
            let recorder = Recorder::open(path, Limits::default()).unwrap();
            let mut run = recorder.start_run(meta("slo-power")).unwrap();
            for (mut period, latencies) in Day::new("slo-power", 3_000) {
                period.seen = serde_json::json!("x".repeat(4_000));
                assert!(run.record_waiting(period, &latencies).unwrap());
            }
            let summary = run.finish().unwrap();
            let health = recorder.health();
            println!("unwritten {} failing {:?}", health.unwritten, health.failing);
            println!("summary {}", serde_json::to_string(&summary).unwrap());
        }
        other => panic!("no such task: {other}"),
    }
}

/// What SQLite finds when it checks the whole file.
fn integrity(archive: &Archive) -> Vec<String> {
    let connection = rusqlite::Connection::open(archive.path()).unwrap();
    let mut statement = connection.prepare("PRAGMA integrity_check").unwrap();
    let lines = statement.query_map([], |row| row.get(0)).unwrap();
    lines.map(Result::unwrap).collect()
}

fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < deadline, "waited 20 s for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn nothing_written_is_lost_when_the_process_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs.db");
    let mut writer = spawn("write-until-killed", &path, None);
    let mut lines = BufReader::new(writer.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok);
    let mut last = None;
    for line in lines.by_ref() {
        // The harness may print before the child's own first line on the same line.
        last = line
            .split("written ")
            .nth(1)
            .and_then(|number| number.parse::<u64>().ok())
            .or(last);
        if last.is_some_and(|last| last >= 150) {
            break;
        }
    }
    let archive = Archive::open(&path).unwrap();
    assert_eq!(archive.find("latest").unwrap().state, RunState::Running);
    writer.kill().unwrap();
    writer.wait().unwrap();
    // What it said after the line that was waited for, and before it died.
    let last = lines
        .filter_map(|line| line.split("written ").nth(1)?.parse::<u64>().ok())
        .max()
        .max(last)
        .unwrap();

    let archive = Archive::open(&path).unwrap();
    assert_eq!(integrity(&archive), ["ok"]);
    let info = archive.find("latest").unwrap();
    assert_eq!(info.state, RunState::Interrupted);
    assert_eq!(info.ended_at, None);
    let periods = archive.periods(info.id).unwrap();
    assert!(
        periods.len() as u64 > last,
        "{} rows, and {last} was said to be written",
        periods.len()
    );
    assert!(
        periods.len() as u64 <= last + 2,
        "at most the period in flight is more than what was said"
    );
    assert!(
        periods
            .iter()
            .enumerate()
            .all(|(place, period)| period.index == place as u64)
    );
    let summary = archive.summary(info.id).unwrap();
    assert_eq!(summary.periods, periods.len() as u64);
    let completed: u64 = periods.iter().map(|period| period.completions).sum();
    assert_eq!(summary.requests.completed, completed);
    assert!(
        summary.notes.iter().any(|note| note.contains("interrupted")),
        "{:?}",
        summary.notes
    );
    // The file goes on to be used.
    let recorder = Recorder::open(&path, Limits::default()).unwrap();
    let run = recorder.start_run(meta("fixed")).unwrap();
    assert!(run.id() > info.id);
}

#[test]
fn a_run_that_is_given_up_is_interrupted_and_keeps_its_percentiles() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs.db");
    let recorder = Recorder::open(&path, Limits::default()).unwrap();
    let mut run = recorder.start_run(meta("slo-power")).unwrap();
    for (period, latencies) in Day::new("slo-power", 50) {
        assert!(run.record(period, &latencies));
    }
    run.note("the meter stopped answering").unwrap();
    run.note("the meter stopped answering").unwrap();
    recorder.describe(run.id(), "page_cpu_ms = 4.1").unwrap();
    let id = run.id();
    drop(run);
    // One that has ended can be described, too; one that there never was cannot.
    recorder.describe(id, "page_cpu_ms = 4.2").unwrap();
    assert!(recorder.describe(RunId(id.0 + 1), "x").is_err());
    recorder.annotate(id, "others were there").unwrap();
    recorder.annotate(id, "others were there").unwrap();
    drop(recorder);
    let archive = Archive::open(&path).unwrap();
    let info = archive.find("latest").unwrap();
    assert_eq!(info.state, RunState::Interrupted);
    assert_eq!(info.meta.config, "page_cpu_ms = 4.2");
    let noted = info.meta.notes.iter().filter(|note| *note == "others were there");
    assert_eq!(noted.count(), 1);
    let summary = archive.summary(info.id).unwrap();
    assert_eq!(summary.periods, 50);
    assert!(summary.latency_ms.p99.is_some());
    let noted = summary
        .notes
        .iter()
        .filter(|note| note.contains("stopped answering"))
        .count();
    assert_eq!(noted, 1);
}

#[test]
fn a_run_can_be_looked_at_while_it_is_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs.db");
    let recorder = Recorder::open(&path, Limits::default()).unwrap();
    let mut run = recorder.start_run(meta("slo-power")).unwrap();
    for (period, latencies) in Day::new("slo-power", 1_500) {
        assert!(run.record_waiting(period, &latencies).unwrap());
    }
    let archive = Archive::open(&path).unwrap();
    // Totals and histogram are written every thousand rows at the latest, and every ten seconds.
    let so_far = || archive.summary(run.id()).unwrap();
    wait_for("the totals", || {
        so_far().periods == 1_500 && so_far().latency_ms.p99.is_some()
    });
    let summary = so_far();
    let completed: u64 = archive
        .periods(run.id())
        .unwrap()
        .iter()
        .map(|period| period.completions)
        .sum();
    assert_eq!(summary.requests.completed, completed);
    let in_percentiles = archive.latencies(run.id()).unwrap().len();
    assert!(in_percentiles > 0 && in_percentiles <= completed);
    if in_percentiles < completed {
        assert!(
            summary
                .notes
                .iter()
                .any(|note| note.contains("leave out its last")),
            "{:?}",
            summary.notes
        );
    }
    assert_eq!(archive.run(run.id()).unwrap().state, RunState::Running);
    let html = headroom_record::report::run_html(&archive, run.id()).unwrap();
    assert!(html.contains("still being recorded"));
    let end = run.finish().unwrap();
    assert_eq!(end.periods, 1_500);
    assert_eq!(archive.latencies(RunId(1)).unwrap().len(), completed);
}

#[test]
fn a_stalled_disk_costs_periods_and_never_the_loop() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs.db");
    let recorder = Recorder::open(&path, Limits::default()).unwrap();
    let mut run = recorder.start_run(meta("slo-power")).unwrap();
    // Another program holds the file's write lock: the writer waits, as it would for a disk.
    let blocker = rusqlite::Connection::open(&path).unwrap();
    blocker.execute_batch("BEGIN IMMEDIATE").unwrap();
    let latencies = histogram();
    let mut slow = 0;
    let mut index = 0;
    // The queue holds 1,024 and the writer's hands 256 more.
    while recorder.health().dropped < 100 && index < 10_000 {
        let period = PeriodRecord::new(
            index,
            Seconds::new(index as f64),
            Seconds::new(1.0),
            Cores::new(1.0),
        );
        let start = Instant::now();
        run.record(period, &latencies);
        slow += u32::from(start.elapsed() > Duration::from_secs(1));
        index += 1;
    }
    let dropped = recorder.health().dropped;
    assert_eq!(dropped, 100);
    assert!(index > 1_024, "the queue was full after {index}");
    // The writer waits for the lock for seconds: hand-overs that waited for it would take as long, a hundred of them. A few
    // may fall into a moment in which the machine does something else.
    assert!(slow <= 5, "{slow} hand-overs took more than a second");
    blocker.execute_batch("COMMIT").unwrap();
    let summary = run.finish().unwrap();
    assert_eq!(summary.dropped_periods, dropped);
    assert_eq!(summary.periods, index - dropped);
    assert!(
        summary.notes.iter().any(|note| note.contains("dropped")),
        "{:?}",
        summary.notes
    );
    assert_eq!(Archive::open(&path).unwrap().summary(RunId(1)).unwrap(), summary);
}

#[test]
fn a_full_disk_is_counted_and_the_summary_is_still_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs.db");
    // No file of the child may exceed 2 MiB (POSIX counts 512-byte blocks, some shells kilobytes: both are exceeded);
    // a write beyond that fails instead of ending the process because the signal is ignored.
    let script = "trap '' XFSZ; ulimit -f 4096; exec \"$@\"";
    let output = spawn("fill-the-disk", &path, Some(script))
        .wait_with_output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}");
    let unwritten: u64 = said
        .split("unwritten ")
        .nth(1)
        .unwrap()
        .split(' ')
        .next()
        .unwrap()
        .parse()
        .unwrap();
    assert!(unwritten > 0, "{said}");
    let json = said.split("summary ").nth(1).unwrap().lines().next().unwrap();
    let summary: RunSummary = serde_json::from_str(json).unwrap();
    assert_eq!(summary.periods, 3_000, "the sums hold what the disk refused");
    assert!(
        summary
            .notes
            .iter()
            .any(|note| note.contains("could not be written")),
        "{:?}",
        summary.notes
    );
    let archive = Archive::open(&path).unwrap();
    assert_eq!(integrity(&archive), ["ok"]);
    let rows = archive.find("latest").unwrap().rows;
    assert!(
        rows > 0 && rows + unwritten == 3_000,
        "{rows} rows, {unwritten} refused"
    );
}

#[test]
fn impossible_periods_are_refused_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs.db");
    let recorder = Recorder::open(&path, Limits::default()).unwrap();
    let mut run = recorder.start_run(meta("slo-power")).unwrap();
    let period = |index, cores| PeriodRecord::new(index, Seconds::ZERO, Seconds::new(1.0), Cores::new(cores));
    let latencies = histogram();
    assert!(run.record(period(5, 1.0), &latencies));
    assert!(!run.record(period(5, 1.0), &latencies), "the same number again");
    assert!(!run.record(period(6, f64::NAN), &latencies));
    let mut infinite = period(7, 1.0);
    infinite.energy = common::joules(f64::INFINITY, Source::Measured);
    assert!(!run.record(infinite, &latencies));
    let mut long = period(8, 1.0);
    long.reasons = vec![Reason::new("r".repeat(999), "t".repeat(99_999), &[("x_per_s", f64::NAN)]); 99];
    long.seen = serde_json::json!("s".repeat(999_999));
    assert!(run.record(long, &latencies), "too long is cut, not refused");
    assert_eq!(recorder.health().refused, 3);
    let summary = run.finish().unwrap();
    assert_eq!(summary.periods, 2);
    let refused: Vec<&String> = summary
        .notes
        .iter()
        .filter(|note| note.contains("refused period"))
        .collect();
    assert_eq!(refused.len(), 1, "{:?}", summary.notes);
    assert!(
        refused[0].contains("period 5, and any other like it: its index"),
        "{refused:?}"
    );
    let periods = Archive::open(&path).unwrap().periods(RunId(1)).unwrap();
    assert_eq!(periods[1].reasons.len(), 32);
    assert!(periods[1].reasons[0].text.len() <= 4_096 && periods[1].reasons[0].text.ends_with('…'));
    assert!(periods[1].reasons[0].numbers["x_per_s"].is_nan());
    assert_eq!(periods[1].seen["left_out_bytes"], 1_000_001);
}

fn heavy(index: u64) -> PeriodRecord {
    let mut period = PeriodRecord::new(
        index,
        Seconds::new(index as f64),
        Seconds::new(1.0),
        Cores::new(1.0),
    );
    period.seen = serde_json::json!("x".repeat(1_500));
    period.energy = common::joules(1.0, Source::Simulated);
    period.completions = 1;
    period
}

fn record_heavy(recorder: &Recorder, meta: RunMeta, periods: u64) -> RunId {
    let mut run = recorder.start_run(meta).unwrap();
    let mut latencies = histogram();
    latencies.record(1_000).unwrap();
    for index in 0..periods {
        assert!(run.record_waiting(heavy(index), &latencies).unwrap());
    }
    let id = run.id();
    run.finish().unwrap();
    id
}

fn bytes(path: &Path) -> u64 {
    std::fs::metadata(path).unwrap().len()
}

#[test]
fn old_runs_go_first_when_the_file_is_too_large_and_the_file_shrinks() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs.db");
    let limits = Limits {
        max_bytes: 4 << 20,
        ..Limits::default()
    };
    let recorder = Recorder::open(&path, limits).unwrap();
    // About 1.6 MB each: two fit, three do not.
    let ids: Vec<RunId> = (0..5)
        .map(|_| record_heavy(&recorder, meta("slo-power"), 800))
        .collect();
    wait_for("the file to shrink", || bytes(&path) <= limits.max_bytes);
    let archive = Archive::open(&path).unwrap();
    let kept: Vec<RunId> = archive.runs(100).unwrap().iter().map(|run| run.id).collect();
    assert_eq!(kept, [ids[4], ids[3]], "the latest stay, latest first");
    assert_eq!(archive.periods(ids[3]).unwrap().len(), 800);
    assert_eq!(integrity(&archive), ["ok"]);
    let gone = archive.summary(ids[0]).unwrap_err().to_string();
    assert!(gone.contains("no run fits \"1\""), "{gone}");
}

#[test]
fn a_run_that_is_too_large_by_itself_loses_its_oldest_periods_but_no_sum() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs.db");
    let limits = Limits {
        max_bytes: 2 << 20,
        ..Limits::default()
    };
    let recorder = Recorder::open(&path, limits).unwrap();
    let id = record_heavy(&recorder, meta("slo-power"), 6_000);
    wait_for("the file to shrink", || bytes(&path) <= limits.max_bytes);
    let archive = Archive::open(&path).unwrap();
    let info = archive.run(id).unwrap();
    assert_eq!(info.rows + info.pruned, 6_000);
    assert!(info.pruned > 3_000, "{} removed", info.pruned);
    let first = archive.periods(id).unwrap()[0].index;
    assert_eq!(first, info.pruned, "the oldest went");
    let summary = archive.summary(id).unwrap();
    assert_eq!(summary.periods, 6_000);
    assert_eq!(summary.requests.completed, 6_000);
    assert_eq!(summary.energy_j.value.unwrap().get(), 6_000.0);
    assert_eq!(archive.latencies(id).unwrap().len(), 6_000);
    assert_eq!(integrity(&archive), ["ok"]);
    let html = headroom_record::report::run_html(&archive, id).unwrap();
    assert!(
        html.contains("to stay inside its size limit"),
        "the report says what is missing"
    );
}

/// Moves the runs of a file in time, as a wall clock that was wrong when they were recorded.
fn moved(path: &Path, runs: &str, days: i64) {
    let file = rusqlite::Connection::open(path).unwrap();
    file.busy_timeout(Duration::from_secs(5)).unwrap();
    let sql = format!("UPDATE runs SET ended_at = ended_at + ?1, updated_at = updated_at + ?1 WHERE {runs}");
    file.execute(&sql, [days * 86_400_000]).unwrap();
}

fn runs_in(path: &Path) -> usize {
    Archive::open(path).unwrap().runs(100).unwrap().len()
}

#[test]
fn a_clock_that_is_40_days_ahead_removes_no_run() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs.db");
    let recorder = Recorder::open(&path, Limits::default()).unwrap();
    for _ in 0..40 {
        record_heavy(&recorder, meta("fixed"), 1);
    }
    drop(recorder);
    // To the file it is the same whether the clock went ahead or all that it holds is 40 days old.
    moved(&path, "1", -40);
    let recorder = Recorder::open(&path, Limits::default()).unwrap();
    record_heavy(&recorder, meta("fixed"), 1);
    drop(recorder);
    assert_eq!(
        runs_in(&path),
        41,
        "the newest record of the past counts, not the clock"
    );
    // Now the file holds a record of the wrong time, and all others are old: a tenth goes at each opening.
    let recorder = Recorder::open(&path, Limits::default()).unwrap();
    record_heavy(&recorder, meta("fixed"), 1);
    record_heavy(&recorder, meta("fixed"), 1);
    drop(recorder);
    assert_eq!(runs_in(&path), 41 - 4 + 2);
}

#[test]
fn runs_that_are_too_old_go_and_running_ones_stay() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs.db");
    let recorder = Recorder::open(&path, Limits::default()).unwrap();
    let old = record_heavy(&recorder, meta("fixed"), 3);
    let kept = record_heavy(&recorder, meta("fixed"), 3);
    let long_ago = SystemTime::now() - Duration::from_secs(40 * 24 * 3600);
    let mut running = recorder
        .start_run(RunMeta {
            started_at: long_ago,
            ..meta("slo-power")
        })
        .unwrap();
    // The clock is the machine's: an old run is made by moving its end.
    let file = rusqlite::Connection::open(&path).unwrap();
    file.busy_timeout(Duration::from_secs(5)).unwrap();
    let moved = file
        .execute(
            "UPDATE runs SET ended_at = ended_at - 2678400000 WHERE id = ?1",
            [old.0],
        )
        .unwrap();
    assert_eq!(moved, 1, "31 days back");
    let next = record_heavy(&recorder, meta("fixed"), 1);
    assert!(running.record(heavy(0), &histogram()));
    let archive = Archive::open(&path).unwrap();
    let ids: Vec<RunId> = archive.runs(100).unwrap().iter().map(|run| run.id).collect();
    assert_eq!(ids, [next, running.id(), kept]);
}

#[test]
fn two_recorders_share_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs.db");
    let recorders = [(); 2].map(|()| Recorder::open(&path, Limits::default()).unwrap());
    let ids: Vec<RunId> = std::thread::scope(|scope| {
        let threads: Vec<_> = recorders
            .iter()
            .map(|recorder| scope.spawn(|| record_heavy(recorder, meta("slo-power"), 300)))
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let archive = Archive::open(&path).unwrap();
    for id in ids {
        assert_eq!(archive.periods(id).unwrap().len(), 300);
        assert_eq!(archive.summary(id).unwrap().dropped_periods, 0);
    }
}

#[test]
fn damage_to_one_run_is_named_and_leaves_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs.db");
    let recorder = Recorder::open(&path, Limits::default()).unwrap();
    let (one, other) = (
        record_heavy(&recorder, meta("fixed"), 3),
        record_heavy(&recorder, meta("fixed"), 3),
    );
    drop(recorder);
    let file = rusqlite::Connection::open(&path).unwrap();
    file.execute("UPDATE runs SET histogram = '[1' WHERE id = ?1", [one.0])
        .unwrap();
    file.execute(
        "UPDATE periods SET reasons = '[' WHERE run = ?1 AND idx = 1",
        [one.0],
    )
    .unwrap();
    let archive = Archive::open(&path).unwrap();
    let error = archive.summary(one).unwrap_err().to_string();
    assert!(
        error.contains("histogram is damaged") && error.contains("run 1"),
        "{error}"
    );
    let error = archive.periods(one).unwrap_err().to_string();
    assert!(error.contains("a period is damaged"), "{error}");
    assert_eq!(archive.summary(other).unwrap().periods, 3);
}
