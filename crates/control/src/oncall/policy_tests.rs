use super::*;
use proptest::prelude::*;

fn connection(id: u64, weight: f64, slos: Vec<Kept>) -> Connection {
    let class = if slos.is_empty() { "be" } else { "ls" }.to_owned();
    Connection {
        id,
        class,
        weight,
        queries: 10,
        mean: None,
        cv: None,
        slos,
        tokens: 1,
    }
}

fn missed(violations: f64) -> Vec<Kept> {
    vec![Kept::Percentile {
        percentile: Ratio::new(0.99),
        violations: Ratio::new(violations),
        budget: None,
    }]
}

fn tokens(grants: &Grants) -> Vec<u32> {
    grants.grants.iter().map(|grant| grant.tokens).collect()
}

#[test]
fn fair_is_in_proportion_and_apples_is_even() {
    let both = [connection(1, 1.0, Vec::new()), connection(2, 2.5, Vec::new())];
    assert_eq!(tokens(&Fair { tokens: 2 }.decide(&both)), [2, 5]);
    let apples = Apples { tokens: 4 }.decide(&both);
    assert_eq!(tokens(&apples), [4, 4]);
    assert!(apples.grants.iter().all(|grant| !grant.again));
}

#[test]
fn a_violation_raises_the_quota_and_makes_best_effort_yield() {
    let mut policy = PsloStyle::new(4);
    let of = |violations| {
        [
            connection(1, 1.0, missed(violations)),
            connection(2, 1.0, Vec::new()),
        ]
    };
    // 0.0096 x 1.05 exceeds 1 - 0.99.
    let violated = policy.decide(&of(0.0096));
    assert_eq!(tokens(&violated), [8, 1]);
    assert!(violated.grants[0].again && violated.grants[1].yields);
    (0..10).for_each(|_| drop(policy.decide(&of(1.0))));
    assert_eq!(tokens(&policy.decide(&of(1.0))), [256, 1]);
    assert_eq!(tokens(&policy.decide(&of(0.0))), [255, 4]);
    (0..300).for_each(|_| drop(policy.decide(&of(0.0))));
    assert_eq!(tokens(&policy.decide(&of(0.0))), [2, 4]);
}

/// Longer turns of all make the tails that they are to cut: with nobody beside them to take turns from they shrink.
#[test]
fn a_quota_grows_only_while_somebody_without_an_slo_asks() {
    let mut policy = PsloStyle::new(1);
    let of = |queries| {
        let best_effort = Connection {
            queries,
            ..connection(2, 1.0, Vec::new())
        };
        [connection(1, 1.0, missed(1.0)), best_effort]
    };
    (0..10).for_each(|_| drop(policy.decide(&of(10))));
    assert_eq!(tokens(&policy.decide(&of(10))), [64, 1]);
    assert_eq!(tokens(&policy.decide(&of(0))), [32, 1]);
    (0..5).for_each(|_| drop(policy.decide(&of(0))));
    assert_eq!(tokens(&policy.decide(&of(0))), [2, 1]);
}

#[test]
fn a_class_without_a_row_in_a_table_has_a_turn() {
    let mut table = Table([("ls".to_owned(), (8, 1.0))].into());
    let both = [connection(1, 1.0, missed(0.0)), connection(2, 1.0, Vec::new())];
    assert_eq!(tokens(&table.decide(&both)), [8, 1]);
}

#[test]
fn a_connection_that_stalls_misses_whatever_was_before() {
    let mut slos = missed(0.0);
    slos.iter_mut().for_each(Kept::stall);
    assert!(slos[0].is_violated());
}

#[test]
fn disengagement_is_guarded_by_its_own_policy() {
    let slo = Kept::Disengagement {
        target: Ratio::new(0.001),
        measured: Ratio::new(0.002),
        budget: None,
    };
    let both = [connection(1, 1.0, vec![slo]), connection(2, 1.0, missed(1.0))];
    assert_eq!(tokens(&UtsloStyle::new(4).decide(&both)), [8, 1]);
}

/// With a mean above its budget a connection would miss its percentile before many queries did: that is an estimate, and said to be.
#[test]
fn a_mean_over_its_budget_is_violated_as_estimated() {
    let mut policy = PsloStyle::new(4);
    let slo = TailSlo {
        percentile: Ratio::new(0.99),
        target: Seconds::new(0.1),
    };
    let of = |mean_ms: f64, violations: f64| {
        let kept = Kept::percentile(slo, Ratio::new(violations), Some(Ratio::new(1.0))).unwrap();
        // Of an exponential: 100 ms / ln 100.
        assert!((kept.budget().unwrap().as_millis() - 21.7147).abs() < 1e-3);
        let mut sensitive = connection(1, 1.0, vec![kept]);
        (sensitive.mean, sensitive.queries) = (Some(Seconds::from_millis(mean_ms)), 128);
        [sensitive, connection(2, 1.0, Vec::new())]
    };
    let mut rule = |mean_ms, violations| {
        let grants = policy.decide(&of(mean_ms, violations));
        let numbers = &grants.reasons[0].numbers;
        let number = |name: &str| numbers.iter().find(|(known, _)| known == name).unwrap().1;
        let counts = (number("violated_measured"), number("violated_estimated_only"));
        (
            grants.reasons[0].rule.to_string(),
            counts,
            grants.grants[1].yields,
        )
    };
    assert_eq!(rule(21.0, 0.0), ("policy-kept".to_owned(), (0.0, 0.0), false));
    assert_eq!(
        rule(22.0, 0.0),
        ("policy-over-budget".to_owned(), (0.0, 1.0), true)
    );
    assert_eq!(rule(22.0, 0.1), ("policy-violated".to_owned(), (1.0, 0.0), true));
    assert_eq!(rule(2.0, 0.1), ("policy-violated".to_owned(), (1.0, 0.0), true));
}

/// A ratio that is never kept has no budget but 0, and one that always is has none.
#[test]
fn a_disengagement_ratio_has_a_budget() {
    let points = [(0.0, 0.01), (1.0, 0.1)].map(|(at, share)| (Seconds::new(at), Ratio::new(share)));
    let of = Disengagement::new(points.to_vec()).unwrap();
    let budget = |target: f64| {
        let cv = Some(Ratio::new(1.0));
        Kept::disengagement(Ratio::new(target), Ratio::new(0.0), &of, cv).budget()
    };
    assert_eq!((budget(0.001), budget(0.2)), (Some(Seconds::ZERO), None));
    let within = budget(0.02).unwrap().get();
    assert!((0.05..0.2).contains(&within), "{within}");
}

/// A pause grows while the mean is well within its budget, halves where it is not, and best effort always yields.
#[test]
fn a_paced_connection_asks_as_late_as_its_budget_allows() {
    let mut policy = Paced::new(4);
    let of = |mean_ms: f64| {
        let kept = Kept::Percentile {
            percentile: Ratio::new(0.99),
            violations: Ratio::ZERO,
            budget: Some(Seconds::from_millis(20.0)),
        };
        let mut sensitive = connection(1, 1.0, vec![kept]);
        (sensitive.mean, sensitive.queries) = (Some(Seconds::from_millis(mean_ms)), 128);
        [sensitive, connection(2, 1.0, Vec::new())]
    };
    let mut pause = |mean_ms| {
        let grants = policy.decide(&of(mean_ms)).grants;
        assert!(!grants[0].yields && grants[1].yields && grants[1].tokens == 4);
        grants[0].retry.as_millis()
    };
    assert!((pause(5.0) - 1.0).abs() < 1e-9);
    assert!((pause(11.9) - 2.0).abs() < 1e-9);
    assert!((pause(19.0) - 2.0).abs() < 1e-9);
    assert!((pause(21.0) - 1.0).abs() < 1e-9);
    // A connection that asks nothing, or is not made to pause, keeps its mean: the pause ends at 60 % of the budget.
    let after_a_minute = (0..240).map(|_| pause(5.0)).last();
    assert!(
        after_a_minute.is_some_and(|ms| (ms - 12.0).abs() < 1e-9),
        "{after_a_minute:?}"
    );
    let nobody = policy.decide(&[connection(2, 1.0, Vec::new())]);
    assert_eq!(nobody.reasons[0].rule, "policy-idle");
}

proptest! {
    /// Nobody is without a token for longer than the bound, whatever the table says and how long periods are.
    #[test]
    fn starvation_is_bounded(lengths in proptest::collection::vec(0.05..5.0f64, 1..200)) {
        let mut running = Running::new(Box::new(Table(BTreeMap::from([("ls".to_owned(), (3, 2.0))]))));
        let both = [connection(1, 1.0, missed(0.0)), connection(2, 1.0, Vec::new())];
        let mut waited = 0.0;
        for length in lengths {
            let grants = running.decide(Seconds::new(length), &both);
            prop_assert_eq!(grants.grants[0].tokens, 3);
            waited = if grants.grants[1].tokens > 0 { 0.0 } else { waited + length };
            prop_assert!(waited < MAX_WAIT.get());
        }
    }
}
