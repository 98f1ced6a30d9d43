//! Scenario files: what is left out is the default, and what is wrong is named with its key.

use headroom_sim::scenario::EXAMPLE;
use headroom_sim::{Scenario, ScenarioError};

fn parse(text: &str) -> Result<Scenario, String> {
    toml::from_str(text).map_err(|error| error.to_string())
}

fn refused(text: &str) -> ScenarioError {
    parse(text).unwrap().check().unwrap_err()
}

#[test]
fn an_empty_file_is_the_default_and_the_default_is_a_cluster_of_the_papers_size() {
    let scenario = parse("").unwrap();
    assert_eq!(scenario, Scenario::default());
    scenario.check().unwrap();
    let plant = scenario.plant().unwrap();
    assert_eq!(
        (plant.cores().min().get(), plant.cores().max().get()),
        (6.0, 48.0)
    );
    // Three times 20 W + 56 W of the package + 16 cores of 4 W.
    assert!((plant.full_allocation().cap.get() - 420.0).abs() < 1e-9);
    let paper = Scenario::paper().plant().unwrap();
    assert!((paper.full_allocation().cap.get() - 276.84).abs() < 1e-9);
    assert_eq!(plant.frequency().unwrap().max().get(), 2.1e9);
    assert_eq!(
        (scenario.periods(), scenario.slo().unwrap().target().as_millis()),
        (900, 250.0)
    );
}

/// The keys of a table, and of the tables inside it, as dotted paths.
fn keys(prefix: &str, value: &toml::Value, all: &mut Vec<String>) {
    match value {
        toml::Value::Table(table) => {
            for (key, value) in table {
                all.push(format!("{prefix}{key}"));
                keys(&format!("{prefix}{key}."), value, all);
            }
        }
        toml::Value::Array(array) => array.iter().for_each(|value| keys(prefix, value, all)),
        _ => {}
    }
}

#[test]
fn the_example_is_the_default_and_names_every_key() {
    assert_eq!(parse(EXAMPLE).unwrap(), Scenario::default());
    let mut written = Vec::new();
    keys("", &toml::from_str(EXAMPLE).unwrap(), &mut written);
    let mut there_are = Vec::new();
    keys(
        "",
        &toml::Value::try_from(Scenario::default()).unwrap(),
        &mut there_are,
    );
    there_are.retain(|key| key != "faults");
    written.sort();
    there_are.sort();
    assert_eq!(written, there_are);
    // What is commented out is right, too.
    let faults: String = EXAMPLE
        .lines()
        .skip_while(|line| *line != "# [[faults]]")
        .take_while(|line| line.starts_with('#') && !line.contains("A run that"))
        .map(|line| format!("{}\n", line.trim_start_matches(['#', ' '])))
        .collect();
    let faulty = parse(&faults).unwrap();
    faulty.check().unwrap();
    assert_eq!(faulty.faults.len(), 4);
    for line in EXAMPLE.lines().filter(|line| line.starts_with("#   { kind")) {
        let value = &line[line.find('{').unwrap()..=line.rfind('}').unwrap()];
        let as_size = parse(&format!("[service]\nsize = {value}"));
        let as_arrivals = parse(&format!("arrivals = {value}"));
        let as_machine = parse(&format!("[[nodes]]\nmachine = {value}"));
        let scenario = as_size
            .or(as_arrivals)
            .or(as_machine)
            .unwrap_or_else(|error| panic!("{line}: {error}"));
        scenario.check().unwrap();
    }
}

#[test]
fn a_scenario_survives_its_own_file() {
    let scenario = parse(
        r#"
        name = "shop"
        duration_s = 60
        core_step = 0.1
        [service]
        target_ms = 100
        size = { kind = "pareto", exponent = 1.5, range = 1000.0 }
        [[nodes]]
        count = 2
        cores = 8
        machine = { kind = "broadwell" }
        [[nodes]]
        count = 1
        cores = 64
        speed = 1.4
        machine = { kind = "line", base_w = 90, highest_ghz = 3.0 }
        [balancer]
        rule = { kind = "weighted", weights = [1, 1, 8] }
        [arrivals]
        kind = "mmpp"
        rates_per_s = [100, 800]
        transitions_per_s = [[0, 0.1], [1.0, 0]]
        [[faults]]
        kind = "node-loss"
        node = 3
        at_s = 10
        "#,
    )
    .unwrap();
    scenario.check().unwrap();
    assert_eq!(scenario.full_capacity().get(), 24.0 * (16.0 + 64.0 * 1.4));
    let written = toml::to_string(&scenario).unwrap();
    assert_eq!(parse(&written).unwrap(), scenario);
}

#[test]
fn unknown_keys_are_refused_at_every_depth() {
    for text in [
        "nmae = \"x\"",
        "[service]\ntarget = 3",
        "[service]\nsize = { kind = \"exponential\", scv = 1.0 }",
        "[service]\nsize = { kind = \"zipf\" }",
        "[[nodes]]\ncore = 3",
        "[[nodes]]\nmachine = { kind = \"line\", watts = 3 }",
        "[[nodes]]\ncapping = { interval = 3 }",
        "[balancer]\nrule = { kind = \"round-robin\", weights = [1] }",
        "[delays]\nboot_s = 3",
        "[telemetry]\nlost = 3",
        "[arrivals]\nkind = \"poisson\"\nrate = 3",
        "[[faults]]\nkind = \"node-loss\"\nnode = 1\nat_s = 1\nuntil = 3",
        "[limits]\nmemory = 3",
    ] {
        let error = parse(text).unwrap_err();
        assert!(error.contains("unknown"), "{text}: {error}");
    }
}

#[test]
fn what_is_wrong_is_named_with_key_value_and_rule() {
    for (text, key, why) in [
        ("duration_s = -3", "duration_s", "is -3"),
        ("core_step = 0", "core_step", "is 0"),
        ("core_step = 20", "nodes.0.cores", "is 16 with core_step 20"),
        ("[service]\npercentile = 100", "service.percentile", "is 100"),
        ("[service]\nperiod_s = 0", "service.period_s", "is 0"),
        (
            "[service]\nrate_per_core_s = -24",
            "service.rate_per_core_s",
            "is -24",
        ),
        (
            "[service]\nsize = { kind = \"lognormal\", scv = -1.0 }",
            "service.size.scv",
            "is -1",
        ),
        ("nodes = []", "nodes", "has 0 nodes"),
        (
            "[[nodes]]\ncores = 4\nfewest_cores = 5",
            "nodes.0.fewest_cores",
            "is 5: it must be 0.001 to 4",
        ),
        (
            "[[nodes]]\n[[nodes]]\nmachine = { kind = \"line\", boot_s = -1 }",
            "nodes.1.machine.boot_s",
            "is -1",
        ),
        (
            "[[nodes]]\n[[nodes]]\ncores = 8\nparking = \"offline\"\nquota = {}",
            "nodes.1.parking",
            "is \"offline\" beside nodes.1.quota: a quota leaves all 8 cores online",
        ),
        (
            "[[nodes]]\nmachine = { kind = \"line\", base_w = 40, off_w = 41 }",
            "nodes.0.machine.off_w",
            "is 41: it must be at most base_w, 40",
        ),
        ("[[nodes]]\nlowest_cap_w = 190", "nodes.0.lowest_cap_w", "is 190"),
        (
            "[[nodes]]\nmachine = { kind = \"line\", base_w = -1 }",
            "nodes.0.machine.base_w",
            "is -1",
        ),
        (
            "[power_states]\nboot_timeout_s = 30\n[[nodes]]\n[nodes.machine]\nkind = \"line\"\nboot_s = 30",
            "power_states.boot_timeout_s",
            "is 30, and a server boots in 30 s",
        ),
        ("[delays]\ncap_s = -0.001", "delays.cap_s", "is -0.001"),
        ("[telemetry]\nloss = 2", "telemetry.loss", "is 2"),
        ("[telemetry]\ndelay_s = 61", "telemetry.delay_s", "is 61"),
        (
            "[arrivals]\nkind = \"poisson\"\nrate_per_s = 1152",
            "arrivals",
            "grow without end",
        ),
        (
            "[arrivals]\nkind = \"series\"\nrates_per_s = [1, -1]\nhold_s = 10",
            "arrivals.rates_per_s",
            "is -1 at value 2",
        ),
        (
            "[balancer]\nrule = { kind = \"weighted\", weights = [1] }",
            "balancer.rule.weights",
            "1 values for 3 nodes",
        ),
        (
            "[[faults]]\nkind = \"node-loss\"\nnode = 4\nat_s = 1",
            "faults.0.node",
            "is 4: there are nodes 1 to 3",
        ),
        (
            "[[faults]]\nkind = \"slow-node\"\nnode = 1\nfactor = 0\nat_s = 1\nuntil_s = 2",
            "faults.0.factor",
            "is 0",
        ),
        (
            "[[faults]]\nkind = \"telemetry-lost\"\nat_s = 5\nuntil_s = 2",
            "faults.0.until_s",
            "must be after at_s, 5",
        ),
        (
            "[[faults]]\nkind = \"telemetry-lost\"\nat_s = -5\nuntil_s = 2",
            "faults.0.at_s",
            "is -5",
        ),
        (
            "faults = [{ kind = \"slow-node\", node = 1, factor = 2, at_s = 5, until_s = 9 }, \
             { kind = \"slow-node\", node = 1, factor = 2, at_s = 1, until_s = 6 }]",
            "faults.0.at_s",
            "is 5: the one before it, faults.1, has not ended",
        ),
        ("[limits]\nevents = 0", "limits.events", "is 0"),
        ("[limits]\nin_flight = 0", "limits.in_flight", "is 0"),
    ] {
        let error = refused(text);
        assert_eq!(error.key, key, "{text}: {error}");
        assert!(error.why.contains(why), "{text}: {error}");
    }
    let overload = "allow_overload = true\n[arrivals]\nkind = \"poisson\"\nrate_per_s = 1152";
    parse(overload).unwrap().check().unwrap();
}
