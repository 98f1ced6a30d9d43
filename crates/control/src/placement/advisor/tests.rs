use super::*;
use headroom_physics::ServerFigures;
use proptest::prelude::*;

fn machine(name: &str, cores: usize, [idle, busy, off]: [f64; 3]) -> ServingMachine {
    ServingMachine {
        name: name.to_owned(),
        cores,
        link_bytes_per_s: 125e6,
        idle: Watts::new(idle),
        busy: Watts::new(busy),
        link: Watts::new(2.0),
        server: ServerFigures {
            off: Watts::new(off),
            booting: Watts::new(idle.max(off)),
            shutting_down: Watts::new(idle.max(off)),
            ..ServerFigures::default()
        },
    }
}

fn serving(cpu_us: f64, bytes: f64, limit: f64) -> Serving {
    Serving {
        cost: RequestCost {
            cpu: Seconds::new(cpu_us * 1e-6),
            bytes,
        },
        limit: Some(Ratio::new(limit)),
    }
}

/// Machines like two of the paper's: a large one that is best at small requests, and small ones that are best at large ones.
fn two_kinds(large: u32, small: u32, steps: &[[f64; 2]]) -> Problem {
    let kind = |machine, count, serves: [Serving; 2]| Kind {
        machine,
        count,
        serves: serves.to_vec(),
    };
    Problem {
        classes: vec!["1 kB".to_owned(), "100 kB".to_owned()],
        kinds: vec![
            kind(
                machine("large", 8, [36.7, 72.9, 1.5]),
                large,
                [serving(160.0, 1.4e3, 0.95), serving(200.0, 105e3, 0.9)],
            ),
            kind(
                machine("small", 8, [3.7, 13.6, 0.5]),
                small,
                [serving(1_600.0, 1.4e3, 0.9), serving(8_000.0, 105e3, 0.7)],
            ),
        ],
        steps: steps
            .iter()
            .map(|rates| Step {
                length: Seconds::new(3600.0),
                rates: rates.iter().map(|rate| PerSecond::new(*rate)).collect(),
            })
            .collect(),
        spare: false,
    }
}

/// Whether a plan serves all, nobody more than it can, and says truly what it draws.
fn assert_holds(problem: &Problem, plan: &Plan) {
    let mut energy = plan.switching.get();
    for (step, planned) in problem.steps.iter().zip(&plan.steps) {
        for (class, rate) in step.rates.iter().enumerate() {
            let served: f64 = (0..problem.kinds.len())
                .map(|kind| planned.rate(kind, class).get())
                .sum();
            assert!(
                (served - rate.get()).abs() <= 1e-5 * rate.get().max(1.0),
                "{served} of {rate}"
            );
        }
        let mut watts = problem.off_w();
        for (index, kind) in problem.kinds.iter().enumerate() {
            let groups = planned.groups.iter().filter(|group| group.kind == index);
            let used: u32 = groups.map(|group| group.machines).sum();
            assert!(used <= planned.on[index] && planned.on[index] <= kind.count);
            watts += kind.on_w() * f64::from(planned.on[index]);
        }
        for group in &planned.groups {
            assert!(group.load.most() <= group.limit + Ratio::new(1e-5), "{group:?}");
            let kind = &problem.kinds[group.kind];
            for (class, rate) in group.rates.iter().enumerate() {
                watts += kind.work_w(class) * rate.get();
                assert!(
                    rate.get() < 1e-6 || kind.serves[class].limit.is_some_and(|limit| limit >= group.limit)
                );
            }
        }
        assert!(
            (watts - planned.power.get()).abs() < 1e-3,
            "{watts} W for {}",
            planned.power
        );
        energy += planned.power.get() * step.length.get();
    }
    assert!((energy - plan.energy.get()).abs() < 1e-6 * energy);
    assert!(plan.bound <= plan.energy);
}

/// The least watts of one step by trying everything: numbers on, and shares of both classes in hundredths. A share between is none cheaper by more
/// than what a hundredth of the work takes.
fn tried(problem: &Problem, step: usize, on: &[u32]) -> f64 {
    let rates = &problem.steps[step].rates;
    let fits = |kind: usize, shares: [f64; 2]| {
        let of = &problem.kinds[kind];
        let uses = [0, 1].map(|class| {
            of.uses(class)
                .map(|uses| uses * rates[class].get() * shares[class])
        });
        let [loose, tight] = [0, 1].map(|class| of.serves[class].limit.unwrap().get());
        let room = |machines: u32, limit: f64| f64::from(machines) * limit + 1e-12;
        (0..=on[kind]).any(|strict| {
            // The share of the first class that must, and that can, be served beside the second.
            let (mut least, mut most) = (0.0f64, 1.0f64);
            for (first, second) in uses[0].iter().zip(&uses[1]) {
                let first = first.max(1e-15);
                least = least.max(1.0 - room(on[kind] - strict, loose) / first);
                most = most.min((room(strict, tight) - second) / first);
            }
            most >= 0.0 && least <= most
        })
    };
    let mut best = f64::INFINITY;
    for first in 0..=100 {
        for second in 0..=100 {
            let large = [f64::from(first) / 100.0, f64::from(second) / 100.0];
            if !(fits(0, large) && fits(1, large.map(|share| 1.0 - share))) {
                continue;
            }
            let work = |kind: usize, class: usize| problem.kinds[kind].work_w(class) * rates[class].get();
            let watts: f64 = (0..2)
                .map(|class| large[class] * work(0, class) + (1.0 - large[class]) * work(1, class))
                .sum();
            best = best.min(watts);
        }
    }
    let idle: f64 = problem
        .kinds
        .iter()
        .zip(on)
        .map(|(kind, on)| kind.on_w() * f64::from(*on))
        .sum();
    best + idle + problem.off_w()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn no_plan_that_can_be_tried_is_better(rates in prop::collection::vec((0.0..25e3f64, 0.0..1_500.0f64), 1..4)) {
        let steps: Vec<[f64; 2]> = rates.into_iter().map(|(one, two)| [one, two]).collect();
        let problem = two_kinds(1, 3, &steps);
        let numbers: Vec<Vec<u32>> = (0..=1).flat_map(|large| (0..=3).map(move |small| vec![large, small])).collect();
        let power: Vec<Vec<f64>> = (0..steps.len())
            .map(|step| numbers.iter().map(|on| tried(&problem, step, on)).collect())
            .collect();
        // Every path.
        let mut best = f64::INFINITY;
        for path in 0..numbers.len().pow(steps.len() as u32) {
            let at = |step: usize| path / numbers.len().pow(step as u32) % numbers.len();
            let mut energy = 0.0;
            for step in 0..steps.len() {
                energy += power[step][at(step)] * 3600.0;
                if step > 0 {
                    for (kind, of) in problem.kinds.iter().enumerate() {
                        let (from, to) = (numbers[at(step - 1)][kind], numbers[at(step)][kind]);
                        let [boot, shutdown] = of.switching_j();
                        energy += boot * f64::from(to.saturating_sub(from)) + shutdown * f64::from(from.saturating_sub(to));
                    }
                }
            }
            best = best.min(energy);
        }
        match plan(&problem) {
            Ok(plan) => {
                assert_holds(&problem, &plan);
                prop_assert!(plan.energy.get() <= best * (1.0 + 1e-9) + 1.0, "{} J, tried {best} J", plan.energy);
                prop_assert_eq!(plan.gap(), Ratio::ZERO);
            }
            Err(AdvisorError::Unmet { .. }) => prop_assert!(best.is_infinite(), "tried {best} J"),
            Err(error) => prop_assert!(false, "{error}"),
        }
    }

    #[test]
    fn it_is_never_worse_than_an_alternative_nor_for_one_more_machine(
        rates in prop::collection::vec((0.0..60e3f64, 0.0..4e3f64), 1..5), spare: bool,
    ) {
        let steps: Vec<[f64; 2]> = rates.into_iter().map(|(one, two)| [one, two]).collect();
        let problem = Problem { spare, ..two_kinds(3, 6, &steps) };
        let Ok(best) = plan(&problem) else { return Ok(()) };
        assert_holds(&problem, &best);
        for other in alternatives(&problem).unwrap() {
            let Ok(plan) = &other.plan else { continue };
            // An alternative with all machines on is not asked for a spare one, and one that is late for nothing.
            if other.late.is_empty() {
                prop_assert!(best.energy.get() <= plan.energy.get() * (1.0 + 1e-9), "{}", other.name);
                assert_holds(&problem, plan);
            }
        }
        let seconds: f64 = problem.steps.iter().map(|step| step.length.get()).sum();
        for kind in 0..2 {
            let mut more = problem.clone();
            more.kinds[kind].count += 1;
            let off_j = more.kinds[kind].machine.server.off.get() * seconds;
            let with = plan(&more).unwrap();
            prop_assert!(with.energy.get() - off_j <= best.energy.get() * (1.0 + 1e-9));
        }
    }
}

#[test]
fn small_requests_go_to_the_large_machine_and_large_ones_to_the_small_machines() {
    let problem = two_kinds(2, 10, &[[30_000.0, 100.0], [0.0, 100.0]]);
    let plan = plan(&problem).unwrap();
    let share =
        |step: usize, class: usize| plan.steps[step].rate(0, class) / problem.steps[step].rates[class];
    assert!(share(0, 0) > 0.7, "{plan:?}");
    assert_eq!(
        plan.steps[1].on,
        [0, 1],
        "one small machine serves the large ones alone"
    );
    assert!(share(1, 1).abs() < 1e-9);
    let mixed = two_kinds(2, 10, &[[30_000.0, 100.0], [100.0, 1.0]]);
    let moved = migrations(&mixed, &super::plan(&mixed).unwrap());
    let moved: Vec<_> = moved
        .iter()
        .map(|one| (one.step, one.class, one.from, one.to))
        .collect();
    // While the large machine is on for the small ones, large ones are cheaper there too.
    assert_eq!(moved, [(1, 0, 0, 1), (1, 1, 0, 1)]);
}

#[test]
fn a_short_dip_is_not_worth_a_boot() {
    let mut problem = two_kinds(2, 0, &[[70_000.0, 0.0], [1_000.0, 0.0], [70_000.0, 0.0]]);
    assert_eq!(plan(&problem).unwrap().steps[1].on, [1, 0]);
    problem.steps[1].length = Seconds::new(30.0);
    let plan = plan(&problem).unwrap();
    assert_eq!(
        (plan.steps[1].on.clone(), plan.switching),
        (vec![2, 0], Joules::ZERO)
    );
}

#[test]
fn a_spare_machine_is_one_that_the_rest_do_not_need() {
    let problem = Problem {
        spare: true,
        ..two_kinds(3, 0, &[[70_000.0, 0.0]])
    };
    assert_eq!(plan(&problem).unwrap().steps[0].on, [3, 0]);
    let fewer = Problem {
        spare: true,
        ..two_kinds(2, 0, &[[70_000.0, 0.0]])
    };
    let error = plan(&fewer).unwrap_err().to_string();
    assert!(error.contains("with one machine to spare"), "{error}");
}

#[test]
fn what_is_missing_is_said_by_step_and_class() {
    let error = plan(&two_kinds(1, 1, &[[100.0, 10.0], [100_000.0, 10.0]])).unwrap_err();
    let AdvisorError::Unmet {
        step,
        class,
        unmet_per_s,
        ..
    } = &error
    else {
        panic!("{error}")
    };
    assert_eq!((*step, class.as_str()), (1, "1 kB"));
    // 0.95 of 50,000/s at the large machine; at the small one, which has the others, 0.7 of 5,000/s less what these 10 take.
    assert!(
        (*unmet_per_s - (100_000.0 - 47_500.0 - 3_450.0)).abs() < 1.0,
        "{error}"
    );
    let mut slow = two_kinds(1, 1, &[[100.0, 10.0]]);
    for kind in &mut slow.kinds {
        kind.serves[1].limit = None;
    }
    let error = plan(&slow).unwrap_err();
    assert_eq!(
        error,
        AdvisorError::Unplaceable {
            class: "100 kB".to_owned()
        }
    );
    slow.steps[0].rates[1] = PerSecond::ZERO;
    assert!(
        plan(&slow).is_ok(),
        "a class that nobody asks for needs no machine"
    );
}

#[test]
fn a_problem_that_cannot_be_is_refused() {
    let refused = |change: fn(&mut Problem)| {
        let mut problem = two_kinds(1, 1, &[[100.0, 10.0]]);
        change(&mut problem);
        plan(&problem).unwrap_err().to_string()
    };
    assert!(refused(|problem| problem.steps.clear()).contains("0 steps"));
    assert!(refused(|problem| problem.kinds[0].count = 5_000).contains("5000 machines of kind large"));
    assert!(refused(|problem| problem.steps[0].rates[0] = PerSecond::new(f64::NAN)).contains("step 0"));
    assert!(refused(|problem| problem.kinds[1].serves.truncate(1)).contains("kind small says"));
}

#[test]
fn routing_alone_and_switching_alone_save_less_than_both() {
    let problem = two_kinds(2, 10, &[[30_000.0, 600.0], [2_000.0, 50.0], [10_000.0, 400.0]]);
    let best = plan(&problem).unwrap().energy.get();
    let all = alternatives(&problem).unwrap();
    let energy = |name: &str| {
        all.iter()
            .find(|one| one.name == name)
            .unwrap()
            .plan
            .as_ref()
            .map(|plan| plan.energy.get())
    };
    let [round, least, routed] = [
        "all on, round robin",
        "all on, least connections",
        "all on, by size",
    ]
    .map(|name| energy(name).unwrap());
    let switched = energy("switched, least connections").unwrap();
    assert!(best < routed && routed < least && routed < round);
    assert!(best <= switched && switched < least);
    assert_eq!(all.len(), 9);
}

#[test]
fn how_many_small_machines_equal_a_large_one() {
    let problem = two_kinds(2, 10, &[[30_000.0, 600.0]]);
    let all = equivalences(&problem, &Bounds::default());
    let of = |class| {
        all.iter()
            .find(|one| one.class == class && (one.one, one.many) == (0, 1))
            .unwrap()
    };
    let small = of(Some(0));
    // 47,500 against 4,500 requests/s.
    assert!((small.machines - 10.5556).abs() < 1e-3, "{small:?}");
    assert!((small.power.get() - (36.7 + 72.9 * 0.95 + 2.0 * 47_500.0 * 1.4e3 / 125e6)).abs() < 1e-6);
    let large = of(Some(1));
    // The large one by its link, the small one by its cores.
    assert!(
        (large.machines - 0.9 * 125e6 / 105e3 / 700.0).abs() < 1e-6,
        "{large:?}"
    );
    assert!(all.iter().any(|one| one.class.is_none()));
    let levels = consolidation(&problem, &Bounds::default());
    assert_eq!(levels.len(), 20);
    for level in &levels {
        assert!(level.consolidated <= level.spread + Watts::new(1e-9));
    }
}

/// The size that `headroom place` is made for: it must not take minutes.
#[test]
fn three_kinds_six_classes_and_a_day_are_planned_without_a_gap() {
    let mut problem = two_kinds(4, 20, &[]);
    let kind = |machine, count, cpu: [f64; 6], limits: [f64; 6]| Kind {
        machine,
        count,
        serves: (0..6)
            .map(|class| serving(cpu[class], 1.4e3 * 4f64.powi(class as i32), limits[class]))
            .collect(),
    };
    problem.classes = (0..6).map(|class| format!("class {class}")).collect();
    problem.kinds = vec![
        kind(
            machine("large", 8, [36.7, 72.9, 1.5]),
            4,
            [160.0, 165.0, 170.0, 180.0, 200.0, 300.0],
            [0.95, 0.95, 0.95, 0.95, 0.93, 0.9],
        ),
        kind(
            machine("middle", 4, [24.2, 2.9, 1.0]),
            10,
            [1000.0, 1020.0, 1100.0, 1200.0, 1500.0, 2500.0],
            [0.95, 0.95, 0.94, 0.93, 0.9, 0.85],
        ),
        kind(
            machine("small", 8, [3.7, 13.6, 0.5]),
            20,
            [850.0, 900.0, 1100.0, 2500.0, 8000.0, 30e3],
            [0.95, 0.95, 0.93, 0.9, 0.8, 0.6],
        ),
    ];
    problem.steps = (0..24)
        .map(|hour| {
            let day = 1.2 - (f64::from(hour) / 24.0 * std::f64::consts::TAU).cos();
            let rates = [20e3, 4e3, 1e3, 400.0, 100.0, 20.0];
            Step {
                length: Seconds::new(3600.0),
                rates: rates.iter().map(|rate| PerSecond::new(rate * day)).collect(),
            }
        })
        .collect();
    let plan = plan(&problem).unwrap();
    assert_holds(&problem, &plan);
    assert!(plan.gap() < Ratio::new(1e-6), "{}", plan.gap());
}

#[test]
fn no_machine_is_planned_for_more_than_it_was_measured_to_serve() {
    // By its cores the large one serves 50,000/s of the first class; a lock lets 20,000 pass.
    let problem = two_kinds(2, 0, &[[18_000.0, 0.0]]);
    let most = |rate: f64| Bounds {
        most: vec![vec![Some(PerSecond::new(rate)), None], vec![None, None]],
        ..Bounds::default()
    };
    let on = |rate: f64| plan_within(&problem, &most(rate)).unwrap().steps[0].on.clone();
    assert_eq!(on(20_000.0), [1, 0]);
    assert_eq!(on(18_500.0), [2, 0], "0.95 of 18,500 is not enough");
    let error = plan_within(&problem, &most(9_000.0)).unwrap_err();
    let AdvisorError::Unmet { unmet_per_s, .. } = &error else {
        panic!("{error}")
    };
    assert!(
        (unmet_per_s - (18_000.0 - 2.0 * 0.95 * 9_000.0)).abs() < 1.0,
        "{error}"
    );
    // Under a balancer too: two machines with half of it each are late, though their cores are not full.
    let blind = alternatives_within(&problem, &most(9_000.0)).unwrap();
    let late = |name: &str| blind.iter().find(|one| one.name == name).unwrap().late.clone();
    assert_eq!(late("all on, round robin"), [0]);
    assert_eq!(late("all on, weighted round robin"), [0]);
}

#[test]
fn a_step_is_planned_for_its_peak_and_draws_what_its_mean_does() {
    let problem = two_kinds(2, 0, &[[40_000.0, 0.0], [40_000.0, 0.0]]);
    let peaks = |second: f64| Bounds {
        peaks: vec![Ratio::new(1.0), Ratio::new(second)],
        ..Bounds::default()
    };
    let planned = |second: f64| plan_within(&problem, &peaks(second)).unwrap();
    let on = |plan: &Plan| [plan.steps[0].on[0], plan.steps[1].on[0]];
    assert_eq!((on(&planned(1.0)), on(&planned(1.3))), ([1, 1], [1, 2]));
    let risen = planned(1.3).steps[1].power - planned(1.0).steps[1].power;
    assert!(
        (risen.get() - problem.kinds[0].on_w()).abs() < 1e-6,
        "one machine more that idles: {risen}"
    );
    let error = plan_within(&problem, &peaks(3.0)).unwrap_err().to_string();
    assert!(
        error.contains("of 120000.0 at the peak of the step, 3.00 times its mean"),
        "{error}"
    );
    for wrong in [0.9, f64::NAN, 1e9] {
        assert!(
            plan_within(&problem, &peaks(wrong))
                .unwrap_err()
                .to_string()
                .contains("peak of")
        );
    }
    let short = Bounds {
        peaks: vec![Ratio::new(1.0)],
        ..Bounds::default()
    };
    assert!(
        plan_within(&problem, &short)
            .unwrap_err()
            .to_string()
            .contains("1 peaks for 2 steps")
    );
}

#[test]
fn weights_by_capacity_load_machines_alike() {
    let problem = two_kinds(1, 2, &[[20_000.0, 0.0]]);
    let all = alternatives(&problem).unwrap();
    let weighted = all
        .iter()
        .find(|one| one.name == "all on, weighted round robin")
        .unwrap();
    let groups = &weighted.plan.as_ref().unwrap().steps[0].groups;
    // 0.95 of 50,000/s and 0.9 of 5,000/s.
    let shares = [47_500.0 / 56_500.0, 4_500.0 * 2.0 / 56_500.0];
    for (group, share) in groups.iter().zip(shares) {
        assert!(
            (group.rates[0].get() - 20_000.0 * share).abs() < 1e-6,
            "{groups:?}"
        );
    }
    assert!(weighted.late.is_empty());
    let round = all.iter().find(|one| one.name == "all on, round robin").unwrap();
    assert_eq!(round.late, [0], "a third of all is more than a small one serves");
    // More than the large one serves: by weights one small one beside it is enough, by round robin no number of them.
    let all = alternatives(&two_kinds(1, 2, &[[50_000.0, 0.0]])).unwrap();
    let switched = |name: &str| all.iter().find(|one| one.name == name).unwrap().plan.clone();
    assert_eq!(
        switched("switched, weighted round robin").unwrap().steps[0].on,
        [1, 1]
    );
    let late = AdvisorError::Late { step: 0, peak: 1.0 };
    assert_eq!(switched("switched, round robin"), Err(late));
}

#[test]
fn what_machines_that_are_off_draw_is_standby() {
    let problem = two_kinds(2, 10, &[[1_000.0, 0.0], [1_000.0, 0.0]]);
    let plan = plan(&problem).unwrap();
    let on = &plan.steps[0].on;
    let off_w = 1.5 * f64::from(2 - on[0]) + 0.5 * f64::from(10 - on[1]);
    assert!((plan.standby(&problem).get() - 7200.0 * off_w).abs() < 1e-6);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn no_group_is_over_what_was_measured_nor_over_its_limit_at_the_peak(
        rates in (0.0..40e3f64, 0.0..1_500.0f64), most in (1e3..50e3f64, 100.0..2e3f64, 500.0..5e3f64), peak in 1.0..2.0f64,
    ) {
        let problem = two_kinds(2, 6, &[[rates.0, rates.1]]);
        let measured = |rate: f64| Some(PerSecond::new(rate));
        let bounds = Bounds {
            most: vec![vec![measured(most.0), measured(most.1)], vec![measured(most.2), None]],
            peaks: vec![Ratio::new(peak)],
        };
        let Ok(plan) = plan_within(&problem, &bounds) else { return Ok(()) };
        assert_holds(&problem, &plan);
        for group in &plan.steps[0].groups {
            let shares = group.rates.iter().zip(&bounds.most[group.kind]);
            let shares: f64 = shares.map(|(rate, most)| most.map_or(0.0, |most| *rate / most)).sum();
            let each = shares / f64::from(group.machines);
            prop_assert!(each * peak <= group.limit.get() + 1e-5, "{group:?}");
            prop_assert!((each - group.measured.get()).abs() < 1e-9);
            prop_assert!(group.load.most().get() * peak <= group.limit.get() + 1e-5);
        }
    }
}
