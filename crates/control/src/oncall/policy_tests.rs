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

#[test]
fn disengagement_is_guarded_by_its_own_policy() {
    let slo = Kept::Disengagement {
        target: Ratio::new(0.001),
        measured: Ratio::new(0.002),
    };
    let both = [connection(1, 1.0, vec![slo]), connection(2, 1.0, missed(1.0))];
    assert_eq!(tokens(&UtsloStyle::new(4).decide(&both)), [8, 1]);
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
