//! Other applications on the server's machine.

use super::*;

/// One thread of another application on each core with a saturated server of as many workers: each has half of the cores, and the
/// server's figures are of its own queries alone.
#[test]
fn another_application_has_its_share_and_is_in_no_figure_of_the_server() {
    for on_call in [false, true] {
        let mut scenario = plain(2, 4);
        (scenario.duration_s, scenario.warm_up_s) = (60.0, 2.0);
        // Longer than a slice, and no think time.
        scenario.query.instructions = 3e7;
        scenario.query.shape = Shape::Deterministic {};
        // Twice the work with more than one active thread of the server: those of the other application do not count.
        scenario.query.inflation = IpqCurve {
            points: [(2.0, 1.0), (3.0, 2.0)]
                .map(|(threads, factor)| IpqPoint { threads, factor })
                .to_vec(),
        };
        scenario.arrivals = QueryArrivals::Closed {
            think_s: 1e-9,
            think: Shape::Deterministic {},
        };
        scenario.gate = on_call.then(|| free(2, 1));
        scenario.classes = vec![
            ClassFigures::best_effort("server", 2),
            ClassFigures::other_application("other", 2, 6e7),
        ];
        let totals = alone(&scenario);
        let [server, other] = [0, 1].map(|class: usize| totals.classes[class].queries as f64);
        near(server / totals.length_s, 1.0 / 0.03, 0.06);
        near(other / totals.length_s, 1.0 / 0.06, 0.06);
        assert_eq!(totals.queries as f64, server);
        assert_eq!(totals.latency.count(), totals.queries);
        near(totals.ipq, 1.0, 1e-9);
        near(totals.busy.get(), 2.0 * totals.length_s, 1e-3);
    }
}

/// Threads of another application never wait at the gate, and their queries are none of what a law sees.
#[test]
fn a_law_sees_the_servers_queries_alone() {
    let mut scenario = plain(4, 3);
    (scenario.duration_s, scenario.warm_up_s) = (10.0, 1.0);
    scenario.gate = Some(free(1, 1));
    scenario.classes = vec![
        ClassFigures::best_effort("server", 1),
        ClassFigures::other_application("other", 2, 1e6),
    ];
    let mut seen = 0;
    let mut law = |observation: &headroom_control::Observation| {
        let (oncall, traffic) = (observation.oncall.clone()?, observation.traffic.clone()?);
        assert_eq!(oncall.queries, oncall.classes[0].queries);
        assert!(oncall.classes[1].queries > 0 && traffic.in_flight <= Some(1));
        assert!(oncall.waiting == 0 && traffic.arrivals < 2 * oncall.queries + 2);
        seen += 1;
        None
    };
    run(&scenario, &mut law, 1).unwrap();
    assert!(seen > 90);
}
