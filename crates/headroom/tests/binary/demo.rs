//! `headroom demo`: it ends well, stops at once, and leaves neither a group nor a process.

use crate::common::{
    Program, children_of, exists_anywhere, headroom, is_alive, root_or_skipped, undo_left, until,
};
use crate::contract::{assert_summary, number};
use rustix::process::Signal;
use std::fs;
use std::path::Path;
use tempfile::TempDir;

/// A demo in a folder of its own.
struct Demo {
    program: Program,
    wiki: Vec<u32>,
    group: String,
}

impl Demo {
    /// Starts it and waits until it measures its wiki.
    fn start(folder: &Path) -> Self {
        let mut program = Program::start(
            headroom()
                .args([
                    "demo",
                    "--duration",
                    "30",
                    "--cores",
                    "0.5",
                    "--json",
                    "--no-view",
                    "--run-dir",
                ])
                .arg(folder.join("run"))
                .arg("--out")
                .arg(folder.join("out")),
        );
        program.said("that it measures", |err| {
            err.contains("measuring what one core serves").then_some(())
        });
        let group = format!("headroom-demo-{}", program.pid());
        assert!(exists_anywhere(&group));
        let wiki = children_of(program.pid());
        assert_eq!(wiki.len(), 1, "the wiki is a process of its own");
        Self { program, wiki, group }
    }

    fn assert_nothing_is_left(&self, folder: &Path) {
        assert!(!exists_anywhere(&self.group), "{}", self.program.err());
        assert!(!self.wiki.iter().any(|pid| is_alive(*pid)));
        assert!(!undo_left(&folder.join("run")));
    }
}

fn folder() -> Option<TempDir> {
    root_or_skipped("the demo").then(|| tempfile::tempdir().unwrap())
}

#[test]
fn compares_two_laws_and_leaves_a_report() {
    let Some(folder) = folder() else { return };
    let folder = folder.path();
    let mut demo = Demo::start(folder);
    demo.program.succeeds();
    demo.assert_nothing_is_left(folder);
    let summaries = demo.program.json();
    assert_eq!(summaries.as_array().map(Vec::len), Some(2));
    for (summary, law) in summaries.as_array().unwrap().iter().zip(["fixed", "slo-power"]) {
        assert_summary(summary, law, 0.5, 32.0);
        if number(summary, "latency_ms.p999") > 4_000.0 {
            println!(
                "skipped: that no request of the demo fails: the machine was too busy to answer them in time"
            );
        } else {
            let failed = number(summary, "requests.failed");
            assert_eq!(failed, 0.0, "{summary}\n{}", demo.program.err());
        }
        assert!(number(summary, "duration_s") >= 30.0);
        assert_eq!(number(summary, "seed"), 1.0);
        assert!(
            summary["trace"].as_str().unwrap().contains("wikipedia"),
            "{summary}"
        );
    }
    // Both were offered the same requests, up to those under way where one run ends and the next begins.
    let offered = |at: usize| number(&summaries[at], "requests.offered");
    assert!((offered(0) - offered(1)).abs() <= 32.0, "{summaries}");
    let html = fs::read_to_string(folder.join("out/demo.html")).unwrap();
    assert!(html.contains("slo-power") && html.contains("fixed") && html.contains("<svg"));
    assert!(folder.join("out/headroom.db").exists());
}

#[test]
fn stops_at_once_in_the_middle_of_a_day() {
    let Some(folder) = folder() else { return };
    let mut demo = Demo::start(folder.path());
    demo.program.said("that the day begins", |err| {
        err.contains("fixed: 30 s of the day").then_some(())
    });
    demo.program.signal(Signal::INT);
    demo.program.succeeds();
    assert!(demo.program.err().contains("stopped"), "{}", demo.program.err());
    assert!(
        !demo.program.err().contains("slo-power:"),
        "no further law is tried"
    );
    assert_eq!(demo.program.out(), "");
    demo.assert_nothing_is_left(folder.path());
}

#[test]
fn after_kill_9_its_wiki_ends_and_the_next_start_removes_its_group() {
    let Some(folder) = folder() else { return };
    let mut killed = Demo::start(folder.path());
    killed.program.signal(Signal::KILL);
    killed.program.wait();
    until("the wiki ends by itself", || {
        (!killed.wiki.iter().any(|pid| is_alive(*pid))).then_some(())
    });
    assert!(exists_anywhere(&killed.group) && undo_left(&folder.path().join("run")));

    let mut next = Demo::start(folder.path());
    assert!(!exists_anywhere(&killed.group), "{}", next.program.err());
    assert!(
        next.program.err().contains("left by a run that was killed"),
        "{}",
        next.program.err()
    );
    next.program.signal(Signal::TERM);
    next.program.succeeds();
    next.assert_nothing_is_left(folder.path());
}
