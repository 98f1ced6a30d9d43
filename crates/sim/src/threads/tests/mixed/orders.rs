//! What must hold of the mixed population.

use super::*;
use headroom_control::{CoreRange, Law, Plant, PowerEnvelope, Stack};
use headroom_units::{Cores, LeverRange, Seconds, Watts};

/// The main order, where the processor is the bottleneck and threads inflate each other's work (MySQL-like): on call with consolidation,
/// every SLO is kept, also the tightened ones, and best effort is served more than by any scheme without on-call threads, none of which keeps
/// the SLOs.
#[test]
fn on_call_with_consolidation_keeps_slos_and_serves_best_effort_more() {
    let mut scenario = mixed(true);
    scenario.classes = population(10.0);
    (scenario.duration_s, scenario.warm_up_s) = (16.0, 8.0);
    let [least, _] = BEST_EFFORT_PER_S[1];
    let mut areas = consolidation(&scenario, least, 1.5);
    let reef = run_scheme(&scenario, Gating::OnCall(36.0, 0.0), pslo(), &mut areas, 11.0);
    assert!(
        reef.missed() < 1.0 && reef.kept > 0.95,
        "{} {}",
        reef.missed(),
        reef.kept
    );
    type Scheme = (Gating, Option<Box<dyn Policy>>, Box<dyn AreaLaw>);
    let schemes: [Scheme; 3] = [
        (Gating::Turns, pslo(), Box::new(NoAreas)),
        (Gating::None, None, Box::new(CgroupWeights::following())),
        (Gating::Turns, pslo(), Box::new(demeter(&scenario, least))),
    ];
    for (gating, policy, mut areas) in schemes {
        let other = run_scheme(&scenario, gating, policy, &mut *areas, 11.0);
        assert!(other.missed() > 1.0 && other.kept < 0.5, "{}", areas.name());
        assert!(reef.best_effort() > 1.5 * other.best_effort(), "{}", areas.name());
    }
}

/// Where the disk is the bottleneck (MongoDB-like), consolidation keeps the SLOs too, at a lower power than the server alone.
#[test]
fn consolidation_keeps_slos_where_the_disk_is_the_bottleneck() {
    let mut scenario = mixed(false);
    scenario.classes = population(10.0);
    (scenario.duration_s, scenario.warm_up_s) = (16.0, 8.0);
    let [least, _] = BEST_EFFORT_PER_S[0];
    let mut areas = consolidation(&scenario, least, 1.5);
    let reef = run_scheme(&scenario, Gating::OnCall(36.0, 0.0), pslo(), &mut areas, 11.0);
    let none = run_scheme(&scenario, Gating::None, None, &mut NoAreas, 11.0);
    assert!(
        reef.missed() < 1.0 && reef.kept > 0.95,
        "{} {}",
        reef.missed(),
        reef.kept
    );
    assert!(none.missed() > 1.0 && none.kept < 0.5);
    assert!(reef.totals.power() < none.totals.power());
    // What it cannot do in this model: the disk has no areas, and what best effort may lose it loses.
    assert!(reef.best_effort() < none.best_effort());
}

/// A paced policy keeps the SLOs without areas, and leaves best effort more than a policy of turns alone does: many times as much where
/// the processor is the bottleneck, and some percent where the disk is, if C bounds the disk's queue too.
#[test]
fn paced_connections_keep_slos_and_leave_best_effort_the_rest() {
    for (mysql, gain) in [(true, 3.0), (false, 1.05)] {
        let mut scenario = mixed(mysql);
        scenario.classes = population(10.0);
        (scenario.duration_s, scenario.warm_up_s) = (20.0, 8.0);
        scenario.gate = Some(GateFigures {
            disk_gives_back: false,
            ..GateFigures::default()
        });
        let of = |gating, policy| run_scheme(&scenario, gating, policy, &mut NoAreas, 11.0);
        let (paced, turns) = (of(Gating::OnCall(36.0, 0.0), paced()), of(Gating::Turns, pslo()));
        assert!(
            paced.missed() < 1.0 && paced.kept > 0.8,
            "{} {}",
            paced.missed(),
            paced.kept
        );
        assert!(
            paced.best_effort() > gain * turns.best_effort(),
            "{} {}",
            paced.best_effort(),
            turns.best_effort()
        );
    }
}

/// Where the disk is the bottleneck and C does not bound its queue, no order of turns helps: the wait is in the disk.
#[test]
fn turns_alone_cannot_shorten_the_queue_of_the_disk() {
    let mut scenario = mixed(false);
    scenario.classes = population(10.0);
    (scenario.duration_s, scenario.warm_up_s) = (16.0, 8.0);
    let of = |disk_gives_back| {
        let scenario = ThreadsScenario {
            gate: Some(GateFigures {
                disk_gives_back,
                ..GateFigures::default()
            }),
            ..scenario.clone()
        };
        run_scheme(&scenario, Gating::OnCall(36.0, 0.0), paced(), &mut NoAreas, 11.0)
    };
    let (given, bounded) = (of(true), of(false));
    assert!(
        given.missed() > 1.0 && bounded.missed() < 1.0,
        "{} {}",
        given.missed(),
        bounded.missed()
    );
}

/// Laws as live control runs them drive the server: a law that has every worker wait for its turn.
#[test]
fn a_stack_of_laws_drives_the_server() {
    struct TwoAtOnce(Running);

    impl Law for TwoAtOnce {
        fn name(&self) -> &'static str {
            "two-at-once"
        }

        fn levers(&self) -> &[Lever] {
            &[Lever::Concurrency, Lever::QueryBatch]
        }

        fn decide(&mut self, observation: &Observation) -> Decision {
            let each = observation.oncall.as_ref().map(|oncall| &oncall.each[..]);
            let grants = self.0.decide(observation.length, each.unwrap_or_default());
            let setting = Setting::default()
                .with(Lever::Concurrency, Some(2.0))
                .with(Lever::QueryBatch, Some(1.0));
            Decision {
                grants: grants.grants,
                reasons: grants.reasons,
                ..Decision::of(setting)
            }
        }

        fn forget(&mut self) {}
    }

    let mut scenario = plain(4, 50);
    (scenario.duration_s, scenario.warm_up_s) = (10.0, 1.0);
    scenario.gate = Some(free(100, 1));
    let range = |max| LeverRange {
        min: 1.0,
        max,
        step: 1.0,
        delay: Seconds::ZERO,
    };
    let cores = CoreRange::new(Cores::new(1.0), Cores::new(4.0), Cores::new(1.0)).unwrap();
    let power = PowerEnvelope {
        base: Watts::new(10.0),
        per_core: Watts::new(4.0),
        lowest_cap: Watts::new(14.0),
    };
    let plant = Plant::new(cores, power)
        .unwrap()
        .with_range(Lever::Concurrency, range(100.0))
        .unwrap()
        .with_range(Lever::QueryBatch, range(8.0))
        .unwrap();
    let policy = Running::new(Box::new(PsloStyle::new(4)));
    let mut laws = Stack::of(Box::new(TwoAtOnce(policy)), plant, 5).unwrap();
    let totals = run_law(&scenario, &mut laws, 1).unwrap();
    // Two workers at once serve 2000 queries of 1 ms per second.
    near(totals.throughput(), 2000.0, 0.02);
}
