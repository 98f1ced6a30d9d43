//! What a law recalls of the load of earlier runs.

use crate::common::{histogram, meta};
use headroom_record::{Archive, Limits, PeriodRecord, Recorder, RunId, RunMeta, World};
use headroom_units::{Cores, PerSecond, Seconds};
use std::path::Path;
use std::time::{Duration, SystemTime};

const PERIOD: Seconds = Seconds::new(1.0);

fn run(file: &Path, meta: RunMeta, arrivals: &[u64]) -> RunId {
    let recorder = Recorder::open(file, Limits::default()).unwrap();
    let mut run = recorder.start_run(meta).unwrap();
    for (index, arrivals) in arrivals.iter().enumerate() {
        // As live periods are: a hundredth longer than asked.
        let at = Seconds::new(index as f64 * 1.01);
        let mut period = PeriodRecord::new(index as u64, at, Seconds::new(1.01), Cores::new(1.0));
        period.arrivals = *arrivals;
        period.telemetry_lost = *arrivals == 99;
        assert!(run.record_waiting(period, &histogram()).unwrap());
    }
    let id = run.id();
    run.finish().unwrap();
    id
}

fn named(name: &str, world: World, started_at: SystemTime) -> RunMeta {
    RunMeta {
        name: name.to_owned(),
        world,
        period: PERIOD,
        started_at,
        ..meta("joint")
    }
}

#[test]
fn runs_of_a_name_are_recalled_on_one_grid_with_the_gaps_between_them() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("runs.db");
    let now = SystemTime::now();
    let ago = |seconds: u64| now - Duration::from_secs(seconds);
    let first = run(
        &file,
        named("shop", World::Live, ago(100)),
        &[10, 10, 99, 99, 40, 50],
    );
    run(&file, named("other", World::Live, ago(100)), &[7; 6]);
    run(&file, named("shop", World::Simulated, ago(100)), &[8; 6]);
    let second = run(&file, named("shop", World::Live, ago(50)), &[20; 5]);
    let archive = Archive::open(&file).unwrap();
    let past = archive.past_load("shop", PERIOD, now, 1_000).unwrap();
    assert_eq!((past.runs, past.at_once), (vec![first, second], None));
    let rates: Vec<Option<f64>> = past
        .rates
        .iter()
        .map(|rate| rate.map(|rate| (rate.get() * 1.01).round()))
        .collect();
    assert_eq!(rates.len(), 100);
    assert_eq!(
        rates[..6],
        [Some(10.0), Some(10.0), None, None, Some(40.0), Some(50.0)]
    );
    assert!(rates[7..49].iter().all(Option::is_none), "{rates:?}");
    assert_eq!(rates[50..55], [Some(20.0); 5]);
    assert!(rates[56..].iter().all(Option::is_none), "until now nothing ran");
    // Only so far back.
    let short = archive.past_load("shop", PERIOD, now, 60).unwrap();
    assert_eq!((short.runs.len(), short.rates.len()), (2, 50));
    assert_eq!(
        archive
            .past_load("shop", Seconds::new(2.0), now, 60)
            .unwrap()
            .rates,
        []
    );
    let nothing: Vec<Option<PerSecond>> = Vec::new();
    assert_eq!(archive.past_load("none", PERIOD, now, 60).unwrap().rates, nothing);
}

#[test]
fn runs_of_one_name_at_one_time_are_of_several_services() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("runs.db");
    let now = SystemTime::now();
    let ago = |seconds: u64| now - Duration::from_secs(seconds);
    let one = run(&file, named("up", World::Live, ago(100)), &[10; 50]);
    let two = run(&file, named("up", World::Live, ago(80)), &[90; 50]);
    let archive = Archive::open(&file).unwrap();
    let past = archive.past_load("up", PERIOD, now, 1_000).unwrap();
    assert_eq!(past.at_once, Some((one, two)));
    assert!(past.rates.is_empty());
}
