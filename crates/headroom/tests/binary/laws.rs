//! Every law, chosen on the command line or in the file.

use crate::common::{Config, Group, NOBODY, Up, Wiki, assert_has, get, number, succeeds, wait};

#[test]
fn a_law_of_the_command_line_controls_the_service_with_the_file_s_parameters() {
    let Some(group) = Group::new() else { return };
    group.limit(150_000, 100_000);
    let wiki = Wiki::start("127.0.0.1:0");
    group.add(wiki.program.pid());
    for (law, table, rule) in [
        // A page takes a few milliseconds and the target is 250: far under.
        ("pegasus", "", "far-under"),
        // One sync a second, and nobody asks for anything: fewer pods would do.
        (
            "hpa",
            "[law.hpa]\nsync_s = 1\n[law.hpa.down]\nstabilisation_window_s = 0\n",
            "scale-down",
        ),
    ] {
        let config = Config::new(&group, wiki.address).with("[power]\n", &format!("{table}[power]\n"));
        let mut up = Up::start_with(&config, &["--law", law]);
        let decided = |up: &Up| {
            let metrics = up.metrics();
            assert!(
                metrics
                    .of("headroom_decisions_total")
                    .all(|sample| sample.labels["law"] == law)
            );
            metrics
                .of("headroom_decisions_total")
                .any(|sample| sample.labels["rule"] == rule && sample.value > 0.0)
        };
        let mut asked = 0;
        wait(&format!("{law} decides by {rule}"), || {
            get(up.gateway, "/").unwrap();
            asked += 1;
            decided(&up)
        });
        up.counted("headroom_service_completions_total", f64::from(asked));
        let status = up.status();
        assert_eq!(status["law"], law);
        up.program.stop();
        let summary = up.program.json();
        assert_eq!(summary["law"], law);
        assert!(number(&summary, "power_w.allocated_mean") > 0.0);
        assert_eq!(number(&summary, "requests.completed"), f64::from(asked));
    }
}

#[test]
fn every_law_that_needs_no_frequency_is_possible_on_this_machine() {
    let Some(group) = Group::new() else { return };
    for law in [
        "fixed",
        "slo-power",
        "power-only",
        "elastic-only",
        "hpa",
        "k8s-as-run",
        "pegasus",
        "pegasus-as-run",
        "power-manager",
    ] {
        let config = Config::new(&group, NOBODY).with("slo-power\"", &format!("{law}\""));
        let program = succeeds(config.check());
        assert_has(program.out(), &[&format!("law      {law}\n")]);
    }
}
