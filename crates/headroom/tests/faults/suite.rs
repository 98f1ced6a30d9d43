//! Many runs beside each other, in a seeded order.

use crate::draw::Draw;
use crate::kinds::{self, Scenario};
use crate::oracle;
use crate::report::{Outcome, Report};
use crate::world::World;
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What is run.
pub struct Settings {
    /// The scenarios, in order.
    pub plan: VecDeque<(Scenario, u64)>,
    /// The seed of all.
    pub seed: u64,
    /// Runs beside each other.
    jobs: usize,
    /// How long a limit may stand after its fault.
    most: Duration,
    /// Whether control groups that are left on the machine count: not beside other tests.
    is_alone: bool,
}

fn number(name: &str, default: u64) -> u64 {
    let Some(text) = std::env::var_os(name) else {
        return default;
    };
    let text = text.to_string_lossy();
    text.parse()
        .unwrap_or_else(|_| panic!("{name} is a whole number, not {text:?}"))
}

/// The seed of one run.
const fn seed_of(seed: u64, run: u64) -> u64 {
    seed.wrapping_mul(1_000_003).wrapping_add(run)
}

impl Settings {
    /// One run of each fault.
    pub fn short() -> Self {
        let plan = kinds::one_of_each()
            .into_iter()
            .zip(0..)
            .map(|(scenario, run)| (scenario, seed_of(1, run)));
        Self {
            plan: plan.collect(),
            seed: 1,
            jobs: 4,
            most: Duration::from_secs(30),
            is_alone: false,
        }
    }

    /// As `FAULTS_RUNS`, `FAULTS_SEED`, `FAULTS_ONLY`, `FAULTS_JOBS` and `FAULTS_WAIT_S` say. `FAULTS_ONE` is the seed of
    /// one run, of each scenario that `FAULTS_ONLY` names: it makes the same choices again.
    pub fn from_environment() -> Self {
        let only = std::env::var("FAULTS_ONLY").ok().filter(|only| !only.is_empty());
        let all = kinds::all(only.as_deref());
        assert!(
            !all.is_empty(),
            "FAULTS_ONLY={only:?} is in the name of no scenario"
        );
        let seed = number("FAULTS_SEED", 1);
        let runs = number("FAULTS_RUNS", 200);
        let mut draw = Draw::new(seed);
        let mut plan: Vec<(Scenario, u64)> = (0..runs)
            .zip(all.iter().cycle())
            .map(|(run, scenario)| (*scenario, seed_of(seed, run)))
            .collect();
        for last in (1..plan.len()).rev() {
            plan.swap(last, draw.index(last + 1));
        }
        if std::env::var_os("FAULTS_ONE").is_some() {
            let one = number("FAULTS_ONE", 0);
            plan = all.iter().map(|scenario| (*scenario, one)).collect();
        }
        Self {
            plan: plan.into(),
            seed,
            jobs: usize::try_from(number("FAULTS_JOBS", 3))
                .unwrap_or(usize::MAX)
                .max(1),
            most: Duration::from_secs(number("FAULTS_WAIT_S", 30)),
            is_alone: true,
        }
    }
}

/// One run: what it found, or why it could not be made.
fn run_one(scenario: &Scenario, number: usize, seed: u64, most: Duration) -> Outcome {
    let began = Instant::now();
    let mut outcome = Outcome {
        name: scenario.name(),
        seed,
        number,
        ..Outcome::default()
    };
    if let Some(why) = scenario.missing() {
        outcome.skipped = Some(why.to_owned());
        return outcome;
    }
    let mark = format!("headroom-faults-{}-{number}", std::process::id());
    match World::new(mark, seed, most) {
        Err(error) => outcome.error = Some(format!("{error:#}")),
        Ok(mut world) => {
            let done = scenario.run(&mut world);
            let examined = oracle::examine(&mut world);
            if let Err(error) = done.and(examined) {
                outcome.error = Some(format!("{error:#}"));
            }
            outcome.found = world.found.clone();
            outcome.notes = world.draw.notes();
            if !outcome.is_clean() {
                outcome.words = world.last_words();
                world.keep_output();
            }
        }
    }
    outcome.took = began.elapsed();
    outcome
}

/// Runs all of it, and says how far it is.
pub fn run_suite(settings: &Settings) -> Report {
    let began = Instant::now();
    let groups = oracle::empty_groups();
    let total = settings.plan.len();
    let plan = Mutex::new(settings.plan.iter().copied().enumerate());
    let outcomes = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..settings.jobs.min(total) {
            scope.spawn(|| {
                loop {
                    let next = plan.lock().unwrap_or_else(PoisonError::into_inner).next();
                    let Some((number, (scenario, seed))) = next else {
                        return;
                    };
                    let outcome = run_one(&scenario, number, seed, settings.most);
                    let mut outcomes = outcomes.lock().unwrap_or_else(PoisonError::into_inner);
                    outcomes.push(outcome);
                    let done = outcomes.len();
                    let left = began.elapsed().as_secs_f64() / done as f64 * (total - done) as f64;
                    if let Some(outcome) = outcomes.last() {
                        println!("[{done:>3}/{total}, {left:>4.0} s left] {outcome}");
                    }
                }
            });
        }
    });
    let mut report = Report {
        seed: settings.seed,
        took: began.elapsed(),
        outcomes: outcomes.into_inner().unwrap_or_else(PoisonError::into_inner),
        groups: Vec::new(),
    };
    report
        .outcomes
        .sort_by(|a, b| (&a.name, a.number).cmp(&(&b.name, b.number)));
    if settings.is_alone {
        // Whoever has just ended may still be removing its own.
        std::thread::sleep(Duration::from_secs(2));
        let mut left = oracle::empty_groups();
        left.retain(|group| !groups.contains(group));
        report.groups = left.iter().map(|group| group.display().to_string()).collect();
    }
    report
}
