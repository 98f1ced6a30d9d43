//! What recording one period costs: to the control loop that hands it over, and to the thread that writes it.

#[path = "../tests/common/mod.rs"]
mod common;

use common::{Day, meta};
use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use headroom_record::{Limits, Recorder, RunTotals};
use headroom_units::Seconds;
use std::hint::black_box;

fn record(criterion: &mut Criterion) {
    let folder = tempfile::tempdir().expect("a folder for the benchmark's file");
    let recorder = Recorder::open(&folder.path().join("runs.db"), Limits::default())
        .expect("a recorder for the benchmark");
    let (template, latencies) = Day::new("slo-power", 1).next().expect("a day has a first period");

    // The loop hands over one period and goes on. Iterations are few at a time, so that the queue never fills: the
    // wait for the writer between batches is outside the measured part.
    let mut run = recorder.start_run(meta("slo-power")).expect("a run");
    let mut index = 0;
    criterion.bench_function("hand one period over", |bench| {
        bench.iter_batched(
            || {
                while recorder.health().written < index {
                    std::thread::yield_now();
                }
                let mut period = template.clone();
                period.index = index;
                index += 1;
                period
            },
            |period| assert!(run.record(period, &latencies), "the queue is never full here"),
            BatchSize::PerIteration,
        );
    });
    run.finish().expect("a summary");

    // Through to the file: the queue is kept full, so that the writer's pace is what is measured.
    let mut run = recorder.start_run(meta("slo-power")).expect("a run");
    let mut index = 0;
    criterion.bench_function("write one period through", |bench| {
        bench.iter_batched(
            || {
                let mut period = template.clone();
                period.index = index;
                index += 1;
                period
            },
            |period| run.record_waiting(period, &latencies).expect("the disk answers"),
            BatchSize::PerIteration,
        );
    });
    run.finish().expect("a summary");

    let mut totals = RunTotals::new(Seconds::from_millis(common::TARGET_MS));
    criterion.bench_function("add one period to the sums", |bench| {
        bench.iter(|| totals.add(black_box(&template), black_box(&latencies)));
    });
}

criterion_group!(benches, record);
criterion_main!(benches);
