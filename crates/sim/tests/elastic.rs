//! The elastic law on a cluster's good and bad days, in worlds that it was not tuned on.

use headroom_control::elastic::{Elastic, ElasticTuning, ServerTraits};
use headroom_control::resize::{
    AlwaysOn, FirstAttempts, Maintenance, PowerState, PowerTuning, ResizeTuning, Stepwise,
};
use headroom_control::{Law, Slo};
use headroom_sim::Bare;
use headroom_sim::accept::{AcceptFault, AcceptScenario, AcceptTotals, SynRetries, run};
use headroom_units::{Ratio, Seconds, Watts};
use headroom_workload::{ArrivalProcess, Shape, Spacing};

/// Ten servers of 8 workers that take 133 ms: 60 requests a second each. A rate a minute.
fn cluster(rates_per_s: Vec<f64>, serving: usize) -> AcceptScenario {
    AcceptScenario {
        duration_s: rates_per_s.len() as f64 * 60.0,
        arrivals: ArrivalProcess::Series {
            rates_per_s,
            hold_s: 60.0,
            spacing: Spacing::Poisson,
        },
        servers: 10,
        serving,
        workers: 8,
        cores: 1_000.0,
        cpu_s: 8.0 / 60.0,
        cpu: Shape::Exponential {},
        boot_s: 120.0,
        shutdown_s: 30.0,
        queue: headroom_control::capacity::QueueTuning::default(),
        power_states: PowerTuning {
            drained_for_s: Some(30.0),
            ..PowerTuning::default()
        },
        ..AcceptScenario::default()
    }
}

/// The same of event loops: each accepts at once whatever comes, and takes 60 a second by its processor.
fn event_loops(rates_per_s: Vec<f64>, serving: usize) -> AcceptScenario {
    AcceptScenario {
        workers: 1_000_000,
        cores: 1.0,
        cpu_s: 1.0 / 60.0,
        ..cluster(rates_per_s, serving)
    }
}

fn elastic(tuning: ElasticTuning) -> Box<dyn Law> {
    let slo = Slo::new(Ratio::new(0.95), Seconds::new(1.0)).unwrap();
    Box::new(Elastic::new(slo, tuning).unwrap())
}

/// What a run comes to, its changes of the number of servers, and that number at its end.
fn under(mut law: Box<dyn Law>, scenario: &AcceptScenario, seed: u64) -> (AcceptTotals, usize, usize) {
    let (mut changes, mut wanted) = (0, None);
    let totals = run(scenario, &mut Bare(&mut *law), seed, &mut |step| {
        let now = step.decision.setting.servers();
        changes += usize::from(wanted.is_some() && wanted != now);
        wanted = now;
    });
    (totals.unwrap(), changes, wanted.unwrap())
}

fn lost(totals: &AcceptTotals) -> u64 {
    totals.abandoned + totals.lost
}

#[test]
fn a_constant_low_load_ends_on_one_server_whatever_chance_does() {
    for seed in 1..=6 {
        for rate in [3.0, 12.0] {
            let (totals, changes, end) = under(
                elastic(ElasticTuning::default()),
                &cluster(vec![rate; 60], 10),
                seed,
            );
            assert_eq!((end, changes, lost(&totals)), (1, 9, 0), "{rate}/s, seed {seed}");
        }
    }
}

#[test]
fn what_the_user_asks_to_survive_is_not_tried_away() {
    for tuning in [
        ElasticTuning {
            survive_zone: true,
            ..ElasticTuning::default()
        },
        ElasticTuning {
            reserve: 1,
            ..ElasticTuning::default()
        },
        ElasticTuning {
            surge: 10.0,
            ..ElasticTuning::default()
        },
    ] {
        let (_, _, end) = under(elastic(tuning), &cluster(vec![12.0; 60], 10), 1);
        assert_eq!(end, 10);
    }
}

#[test]
fn a_load_at_the_edge_of_a_server_does_not_have_one_come_and_go() {
    // Less its margin a server takes 54/s.
    for seed in 1..=3 {
        let scenario = cluster(vec![54.5; 120], 2);
        let (totals, changes, _) = under(elastic(ElasticTuning::default()), &scenario, seed);
        let published = Stepwise::online(ResizeTuning::default()).unwrap();
        let (_, flaps, _) = under(Box::new(published), &scenario, seed);
        assert!(
            changes <= 4 && flaps > 20,
            "seed {seed}: {changes} changes, as published {flaps}"
        );
        assert_eq!(lost(&totals), 0);
    }
}

#[test]
fn every_second_boot_hangs_and_nothing_is_lost() {
    let rise = (0..45).map(|minute| 40.0 + 8.0 * f64::from(minute)).collect();
    let scenario = AcceptScenario {
        faults: vec![AcceptFault::BootsHang {
            every: 2,
            at_s: 0.0,
            until_s: 1e9,
        }],
        ..cluster(rise, 1)
    };
    let (ours, ..) = under(elastic(ElasticTuning::default()), &scenario, 1);
    let published = Stepwise::online(ResizeTuning::default()).unwrap();
    let (theirs, ..) = under(Box::new(published), &scenario, 1);
    assert!(
        lost(&ours) == 0 && lost(&theirs) > 100,
        "{} and {}",
        lost(&ours),
        lost(&theirs)
    );
}

#[test]
fn an_outage_of_all_ends_a_boot_later_with_as_many_as_before() {
    let scenario = AcceptScenario {
        faults: vec![AcceptFault::ServersLost {
            first: 0,
            count: 10,
            at_s: 2_400.0,
            until_s: 2_403.0,
        }],
        ..cluster(vec![200.0; 60], 5)
    };
    let mut law = elastic(ElasticTuning::default());
    let mut back_s = 0.0;
    run(&scenario, &mut Bare(&mut *law), 1, &mut |step| {
        let taking = step
            .servers
            .iter()
            .filter(|server| server.state.takes_requests())
            .count();
        if step.at.get() > 2_420.0 && taking < 4 {
            back_s = step.at.get() - 2_400.0;
        }
    })
    .unwrap();
    // Found dead after 10 s; those that were off are started, and the dead switched off and on.
    assert!((120.0..150.0).contains(&back_s), "{back_s} s");
}

#[test]
fn event_loops_that_no_queue_shows_are_grown_by_how_long_their_requests_take() {
    let rates = [vec![12.0; 40], vec![150.0; 80]].concat();
    let (ours, _, end) = under(
        elastic(ElasticTuning::default()),
        &event_loops(rates.clone(), 1),
        1,
    );
    let published = Stepwise::online(ResizeTuning::default()).unwrap();
    let (theirs, ..) = under(Box::new(published), &event_loops(rates, 1), 1);
    assert!(end >= 3, "{end}");
    let answered = |totals: &AcceptTotals| totals.completed as f64 / totals.requests as f64;
    assert!(
        answered(&ours) > 0.99 && answered(&theirs) < 0.7,
        "{} and {}",
        answered(&ours),
        answered(&theirs)
    );
}

/// By the elastic law and by the static one as published, under a load that needs half of them.
#[test]
fn every_server_is_taken_out_in_turn_and_nobody_notices() {
    let out = |server: usize| AcceptFault::TakenOut {
        server,
        how: Maintenance {
            power_off: server.is_multiple_of(2),
            at_once: false,
        },
        at_s: 600.0 + 600.0 * server as f64,
        until_s: 1_080.0 + 600.0 * server as f64,
    };
    let scenario = AcceptScenario {
        faults: (0..10).map(out).collect(),
        ..cluster(vec![250.0; 120], 6)
    };
    let fixed = headroom_units::PerSecond::new(54.0);
    for (law, name) in [
        (elastic(ElasticTuning::default()), "elastic"),
        (
            Box::new(Stepwise::fixed(fixed, ResizeTuning::default()).unwrap()) as Box<dyn Law>,
            "static",
        ),
    ] {
        let mut law = law;
        let (mut was_out, mut fewest) = ([false; 10], 10);
        let totals = run(&scenario, &mut Bare(&mut *law), 1, &mut |step| {
            for (was_out, server) in was_out.iter_mut().zip(step.servers) {
                *was_out |= server.state == PowerState::Maintenance;
            }
            let takes = step.servers.iter().filter(|one| one.state.takes_requests());
            fewest = fewest.min(takes.count());
        })
        .unwrap();
        assert_eq!(was_out, [true; 10], "{name}");
        // 250/s are five servers of 60 less the margin of a tenth; the static law goes by the count of one period.
        let least = if name == "elastic" { 5 } else { 4 };
        assert!(
            fewest >= least && lost(&totals) == 0,
            "{name}: {fewest}, {}",
            lost(&totals)
        );
    }
}

/// Of ten alike the first four serve, as the user says at twice the watts of the others.
#[test]
fn servers_that_draw_more_are_exchanged_one_by_one_and_never_back() {
    let watts = |at: usize| ServerTraits {
        full: Some(Watts::new(if at < 4 { 130.0 } else { 65.0 })),
        ..ServerTraits::default()
    };
    let tuning = ElasticTuning {
        servers: (0..10).map(watts).collect(),
        ..ElasticTuning::default()
    };
    let scenario = cluster(vec![170.0; 180], 4);
    let mut law = elastic(tuning);
    let (mut wasteful, mut fewest) = (Vec::new(), 10);
    let totals = run(&scenario, &mut Bare(&mut *law), 1, &mut |step| {
        let takes = |from: usize, to: usize| {
            let some = step.servers[from..to].iter();
            some.filter(|one| one.state.takes_requests()).count()
        };
        fewest = fewest.min(takes(0, 10));
        wasteful.push(takes(0, 4));
    })
    .unwrap();
    assert_eq!((wasteful.last(), lost(&totals)), (Some(&0), 0));
    assert!(wasteful.is_sorted_by(|before, now| before >= now));
    assert!(fewest >= 4, "{fewest}");
}

#[test]
fn a_server_that_is_needed_is_not_taken_out_but_by_force() {
    let states = |at_once| {
        let scenario = AcceptScenario {
            faults: vec![AcceptFault::TakenOut {
                server: 0,
                how: Maintenance {
                    at_once,
                    ..Maintenance::default()
                },
                at_s: 1_200.0,
                until_s: 1e9,
            }],
            servers: 4,
            ..cluster(vec![200.0; 60], 4)
        };
        let mut law = elastic(ElasticTuning::default());
        let mut last = None;
        run(&scenario, &mut Bare(&mut *law), 1, &mut |step| {
            last = Some(step.servers[0].state);
        })
        .unwrap();
        last
    };
    assert_eq!(states(false), Some(PowerState::Leaving));
    assert_eq!(states(true), Some(PowerState::Maintenance));
}

/// 400 a second at a server of 60: with retries its accept queue counts thousands.
#[test]
fn retries_of_a_surge_are_not_taken_for_demand() {
    let rates = [vec![40.0; 2], vec![400.0; 5], vec![40.0; 3]].concat();
    for (retries, most) in [
        (SynRetries::Linux65, 4_000.0),
        (SynRetries::Linux31, 2_000.0),
        (SynRetries::Never, 350.0),
    ] {
        let scenario = AcceptScenario {
            servers: 1,
            retries,
            ..cluster(rates.clone(), 1)
        };
        let mut first = FirstAttempts::default();
        let (mut found, mut attempts) = (Vec::new(), 0.0_f64);
        run(&scenario, &mut Bare(&mut AlwaysOn), 1, &mut |step| {
            let queue = &step.servers[0].queue;
            let now = first.observe(1.0, queue.arrivals, queue.drops);
            attempts = attempts.max(queue.arrivals);
            if (122.0..420.0).contains(&step.at.get()) {
                found.push(now);
            }
        })
        .unwrap();
        let near = found.iter().filter(|rate| (320.0..480.0).contains(*rate)).count();
        assert!(
            attempts > most && near * 10 >= found.len() * 9,
            "{retries:?}: {near} of {}, up to {attempts} attempts",
            found.len()
        );
    }
}
