use super::*;
use crate::common::{frequencies, plant, slo};
use headroom_units::{Lever, LeverRange, Seconds, Setting};

fn context() -> LawContext {
    LawContext {
        slo: slo(250.0),
        plant: plant([0.2, 2.0, 0.1], [6.0, 2.86, 6.2]),
        service_rate: PerSecond::new(250.0),
        machines: vec![MachineFigures::skylake(2)],
    }
}

/// A plant with every lever that a law of machines may need.
fn with_frequency() -> LawContext {
    let plant = context().plant.with_frequency(frequencies(0.8, 2.1));
    let range = LeverRange::between(0.0, 1.0);
    let plant = plant.with_range(Lever::BatchInterval, range).unwrap();
    LawContext {
        plant: plant.with_range(Lever::Placement, range).unwrap(),
        ..context()
    }
}

/// One backend, and what it is.
const PLACED: &str = r#"{"placement": {"machines": {"http://10.0.0.1:80": "arm"}, "kinds": {"arm": {"cores": 8, "link_bytes_per_s": 4e7,
    "idle_w": 3.7, "busy_w": 13.6, "link_w": 0.5, "request_us": 800, "kilobyte_us": 2, "head_bytes": 300, "bytes_per_byte": 1.05}}}}"#;

/// `[law]` as JSON, which has the same shape.
fn config(json: &str) -> LawConfig {
    serde_json::from_str(json).unwrap()
}

#[test]
fn every_law_is_built_under_the_name_that_it_gives_itself() {
    for name in LawName::all() {
        let mut all = LawConfig::of(name);
        let unset = all.build(&with_frequency());
        assert_eq!(unset.is_ok(), name.has_defaults(), "{name}");
        all.fixed_capacity.capacity_per_s = Some(100.0);
        all.scheduled.slots = Some(vec![1, 2]);
        all.placement = config(PLACED).placement;
        all.constant.setting = Setting::default().with(Lever::Coalescing, Some(50.0));
        let law = all.build(&with_frequency()).unwrap();
        assert_eq!(law.name(), name.as_str());
        assert_eq!(law.levers() == [Lever::Servers], name.resizes(), "{name}");
        assert_eq!(config(&format!(r#"{{"name": "{name}"}}"#)).names, name.into());
        assert!(!name.about().is_empty() && !name.about().ends_with('.'), "{name}");
    }
}

#[test]
fn a_law_waits_for_the_rate_of_a_core_only_where_it_goes_by_it() {
    let names = LawName::all().filter(|name| name.needs_service_rate());
    let names: Vec<&str> = names.map(LawName::as_str).collect();
    let by_rate = [
        "headroom",
        "slo-power",
        "power-only",
        "elastic-only",
        "hpa",
        "joint",
        "hpa-nodes",
    ];
    assert_eq!(names, by_rate);
}

#[test]
fn an_sla_of_batches_above_the_slo_is_noted_where_a_law_goes_by_it() {
    let notes = |json: &str| config(json).notes(slo(250.0));
    let above = r#"{"name": "batching", "batching": {"sla_ms": 5000}}"#;
    let said = notes(above).join("");
    for words in [
        "law.batching.sla_ms is 5000",
        "slo.target_ms, 250",
        "sla_ms = 125",
    ] {
        assert!(said.contains(words), "{said}");
    }
    assert_eq!(
        notes(&above.replace("\"batching\",", "\"batching-dvfs\",")).len(),
        1
    );
    assert!(notes(&above.replace("5000", "250")).is_empty());
    assert!(notes(&above.replace("\"batching\",", "\"seek\",")).is_empty());
    assert!(notes(r#"{"name": "batching"}"#).is_empty());
}

#[test]
fn a_parameter_outside_its_range_is_named_once() {
    let error = config(r#"{"name": "dvfs", "dvfs": {"frequencies_ghz": [2.0, -1.0]}}"#)
        .check()
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        "law.dvfs.frequencies_ghz[1]: is -1: it must be greater than 0"
    );
}

#[test]
fn a_constant_outside_the_range_of_its_lever_is_refused_by_name() {
    let refused = |setting: &str| {
        let config = config(&format!(
            r#"{{"name": "constant", "constant": {{"setting": {setting}}}}}"#
        ));
        config.build(&context()).err().unwrap().to_string()
    };
    let key = "law.constant.setting";
    assert_eq!(
        refused(r#"{"cores": 99}"#),
        format!("{key}.cores: is 99 cores: 0.2 to 2 cores here")
    );
    assert!(refused(r#"{"cap": -5}"#).starts_with(&format!("{key}.cap: is -5 watts: 6.2 to ")));
    let mut none = LawConfig::of("constant".parse().unwrap());
    none.constant.setting = Setting::default().with(Lever::Coalescing, Some(f64::NAN));
    assert_eq!(none.check().unwrap_err().key, format!("{key}.coalescing"));
}

#[test]
fn several_laws_are_named_in_a_list() {
    let both = config(r#"{"name": ["slo-power", "dynamic"], "servers_every_periods": 10}"#);
    assert_eq!(both.names.to_string(), "slo-power+dynamic");
    assert_eq!(
        (both.names.iter().count(), both.names.first()),
        (2, LawName::SLO_POWER)
    );
    let refused = |json: &str| serde_json::from_str::<LawConfig>(json).unwrap_err().to_string();
    assert!(refused(r#"{"name": []}"#).contains("is empty: name a law"));
    assert!(refused(r#"{"name": ["slo-power", "slopower"]}"#).contains("\"slopower\" is no law"));
}

#[test]
fn a_law_of_servers_says_what_it_lacks() {
    let refused = |json: &str| config(json).build(&context()).err().unwrap().to_string();
    assert!(refused(r#"{"name": "static"}"#).starts_with("law.static.capacity_per_s: is missing"));
    assert!(refused(r#"{"name": "scheduled"}"#).starts_with("law.scheduled: needs exactly one"));
    let curve = r#"{"name": "scheduled", "scheduled": {"curve_per_s": [100.0]}}"#;
    assert!(refused(curve).starts_with("law.scheduled.capacity_per_s: is missing"));
    let never = config(r#"{"servers_every_periods": 0}"#).check().unwrap_err();
    assert_eq!(never.key, "law.servers_every_periods");
}

#[test]
fn the_names_that_code_refers_to_are_those_laws() {
    for (law, name) in [
        (LawName::FIXED, "fixed"),
        (LawName::HEADROOM, "headroom"),
        (LawName::JOINT, "joint"),
        (LawName::CONSTANT, "constant"),
        (LawName::ON_CALL, "on-call"),
        (LawName::REEF, "reef"),
        (LawName::SLO_POWER, "slo-power"),
        (LawName::POWER_ONLY, "power-only"),
        (LawName::ELASTIC_ONLY, "elastic-only"),
        (LawName::K8S_AS_RUN, "k8s-as-run"),
        (LawName::PEGASUS_AS_RUN, "pegasus-as-run"),
        (LawName::POWER_MANAGER, "power-manager"),
        (LawName::POWERSAVE, "powersave"),
    ] {
        assert_eq!(law.as_str(), name);
    }
}

#[test]
fn a_name_that_no_law_has_is_refused_with_all_names() {
    let error = "slopower".parse::<LawName>().unwrap_err().to_string();
    assert!(
        error.starts_with("\"slopower\" is no law: choose one of fixed, headroom, slo-power,"),
        "{error}"
    );
}

#[test]
fn each_laws_mistake_comes_with_its_key() {
    for (json, key, why) in [
        (
            r#"{"headroom": {"confidence": 1.0}}"#,
            "law.headroom.confidence",
            "is 1: it must be",
        ),
        (r#"{"hpa": {"sync_s": 0}}"#, "law.hpa.sync_s", "is 0: it must be"),
        (
            r#"{"hpa": {"up": {"stabilisation_window_s": -1}}}"#,
            "law.hpa.up.stabilisation_window_s",
            "",
        ),
        (r#"{"k8s-as-run": {"nodes": 0}}"#, "law.k8s-as-run.nodes", "is 0"),
        (r#"{"pegasus": {"raise": 0}}"#, "law.pegasus.raise", "is 0"),
        (
            r#"{"power-manager": {"levels": [{"target_ms": 9, "cap_share": 2}]}}"#,
            "law.power-manager.levels.cap_share",
            "",
        ),
    ] {
        let error = config(json).check().unwrap_err();
        assert_eq!(error.key, key);
        assert!(error.why.contains(why), "{error}");
    }
}

#[test]
fn what_a_machine_cannot_do_comes_with_the_laws_key() {
    for (json, key, why) in [
        (
            r#"{"name": "powersave"}"#,
            "law.name",
            "powersave runs all cores at their lowest frequency",
        ),
        (
            r#"{"name": "hpa", "hpa": {"cores_per_pod": 0.25}}"#,
            "law.hpa.cores_per_pod",
            "is 0.25: it must be a multiple of 0.1",
        ),
        (
            r#"{"name": "power-manager", "power-manager": {"cap_w": 900}}"#,
            "law.power-manager.cap_w",
            "is 900: it must be a cap between 6.20 W",
        ),
    ] {
        let law = config(json);
        law.check().unwrap();
        let error = law.build(&context()).map(drop).unwrap_err();
        assert_eq!(error.key, key);
        assert!(error.why.contains(why), "{error}");
    }
}

#[test]
fn a_target_that_one_request_alone_misses_is_out_of_reach_for_the_laws_that_it_can_harm() {
    let tight = LawContext {
        slo: slo(4.0),
        ..context()
    };
    let reachable = |name| LawConfig::of(name).reachable(&tight);
    assert_eq!(reachable(LawName::HEADROOM).unwrap_err().key, "slo.target_ms");
    assert_eq!(reachable(LawName::FIXED), Ok(()));
    assert_eq!(LawConfig::of(LawName::HEADROOM).reachable(&context()), Ok(()));
    let error = LawConfig::of(LawName::SLO_POWER)
        .build(&tight)
        .map(drop)
        .unwrap_err();
    assert_eq!(error.key, "slo.target_ms");
}

#[test]
fn the_guard_is_that_of_the_laws_that_have_one() {
    let guard = |config: LawConfig| config.build(&with_frequency()).unwrap().guard();
    let of = |name| guard(LawConfig::of(name));
    assert_eq!(of(LawName::SLO_POWER), Some(Seconds::new(0.2)));
    assert_eq!(of(LawName::ELASTIC_ONLY), Some(Seconds::new(0.2)));
    assert_eq!(of(LawName::PEGASUS_AS_RUN), None);
    assert_eq!(of(LawName::HEADROOM), None, "its guard is the target");
    let mut careful = LawConfig::of(LawName::HEADROOM);
    careful.headroom.guard = 0.9;
    assert_eq!(guard(careful), Some(Seconds::new(0.225)));
}

#[test]
fn every_law_with_a_table_is_searched_from_where_it_stands_and_accepts_both_ends() {
    let context = with_frequency();
    for name in LawName::of_machines().filter(|name| name.has_defaults()) {
        let config = LawConfig::of(name);
        let parameters = config.search_space(&context).unwrap();
        assert_eq!(parameters.is_empty(), name.table().is_none(), "{name}");
        for parameter in &parameters {
            let (key, start) = (parameter.key, parameter.get(&config));
            assert!(parameter.low < parameter.high, "{name} {key}");
            assert!(
                (parameter.low..=parameter.high).contains(&start),
                "{name} {key} starts at {start}"
            );
            // The coordinator's two controls have tables of their own.
            let of_part = name.as_str() == "batching-dvfs" && ["batching", "dvfs"].contains(&parameter.table);
            let of_it = parameter.table.starts_with(name.table().unwrap());
            assert!(of_it || of_part, "{name} {key}");
            for value in [parameter.low, parameter.high] {
                let mut with = config.clone();
                parameter.set(&mut with, value);
                assert_eq!(parameter.get(&with), value, "{name} {key}");
                let refused = with.build(&context).map(drop).err();
                assert_eq!(refused, None, "{name} {key} = {value}");
            }
        }
    }
}

#[test]
fn the_power_managers_cap_starts_at_its_level() {
    let config = LawConfig::of(LawName::POWER_MANAGER);
    let [cap] = &config.search_space(&context()).unwrap()[..] else {
        panic!("more than the cap")
    };
    // 0.68 of 6 + 2 x 2.86 W, the level of 250 ms.
    assert!((cap.get(&config) - 0.68 * 11.72).abs() < 1e-9);
    assert_eq!((cap.table, cap.key, cap.whole), ("power-manager", "cap_w", false));
    let mut given = config.clone();
    given.power_manager.cap_w = Some(7.0);
    assert_eq!(cap.get(&given), 7.0);
}

#[test]
fn what_no_machine_makes_good_is_foreseen_as_the_law_itself_says_it() {
    let interval = (Lever::BatchInterval, LeverRange::between(0.0, 0.2));
    for json in [
        r#"{"name": "batching", "batching": {"min_interval_ms": 300}}"#,
        r#"{"name": "batching-dvfs", "batching": {"max_interval_ms": 240}}"#,
        r#"{"name": "seek", "seek": {"max_interval_ms": 210}}"#,
        r#"{"name": "joint", "seek": {"max_interval_ms": 210}}"#,
        r#"{"name": "constant", "constant": {"setting": {"batch_interval": 0.3}}}"#,
        r#"{"name": "slo-power", "slo-power": {"guard": 0.01}}"#,
    ] {
        let law = config(json);
        let known = |of_cluster: &[(Lever, LeverRange)], unknown: &[Lever]| Foreseen {
            slo: slo(250.0),
            service_rate: Some(PerSecond::new(250.0)),
            of_cluster: of_cluster.to_vec(),
            unknown: unknown.to_vec(),
        };
        let with = with_frequency();
        let with = LawContext {
            plant: with.plant.with_range(interval.0, interval.1).unwrap(),
            ..with
        };
        let said = law.build(&with).map(drop).unwrap_err();
        assert_eq!(law.foreseen(&known(&[interval], &[])), [said], "{json}");
        // Nothing is said of a lever that is not known.
        let is_of_interval = !json.contains("guard");
        let unknown = law.foreseen(&known(&[interval], &[Lever::BatchInterval]));
        assert_eq!(unknown.is_empty(), is_of_interval, "{json}");
        // Where it is not there, the laws that need it cannot run.
        let none = law.foreseen(&known(&[], &[]));
        let needs = is_of_interval && !json.contains("joint");
        assert_eq!(
            none.iter().any(|error| error.key == "law.name"),
            needs,
            "{json}: {none:?}"
        );
    }
    // What `mistakes` says is not said again.
    let wrong = config(r#"{"name": "batching", "batching": {"min_interval_ms": -1}}"#);
    let known = Foreseen {
        slo: slo(250.0),
        service_rate: None,
        of_cluster: vec![interval],
        unknown: Vec::new(),
    };
    assert_eq!((wrong.mistakes().len(), wrong.foreseen(&known)), (1, Vec::new()));
}

#[test]
fn all_that_is_outside_its_range_is_said_at_once() {
    let wrong = config(
        r#"{"seek": {"budget": 0, "ratio": 9, "retry_periods": 0},
            "batching": {"sla_ms": -1, "forgetting": 2, "explore_periods": 1},
            "dvfs": {"alpha_large": 0, "frequencies_ghz": [0]},
            "slo-power": {"guard": 0, "sustained_periods": 0},
            "hpa": {"metrics": [], "sync_s": 0},
            "servers_every_periods": 0}"#,
    );
    let keys: Vec<String> = wrong.mistakes().into_iter().map(|error| error.key).collect();
    let expected = [
        "law.slo-power.guard",
        "law.slo-power.sustained_periods",
        "law.hpa.metrics",
        "law.hpa.sync_s",
        "law.batching.sla_ms",
        "law.batching.forgetting",
        "law.batching.explore_periods",
        "law.seek.budget",
        "law.seek.ratio",
        "law.seek.retry_periods",
        "law.dvfs.alpha_large",
        "law.dvfs.frequencies_ghz",
        "law.dvfs.frequencies_ghz[0]",
        "law.servers_every_periods",
    ];
    assert_eq!(keys, expected);
}

#[test]
fn all_bounds_between_keys_are_said_beside_what_is_outside_its_range() {
    let wrong = config(
        r#"{"name": "batching", "batching": {"sla_ms": 450, "min_interval_ms": 700, "max_interval_ms": 800,
            "explore_max_ms": 900, "budget": 9}}"#,
    );
    let known = Foreseen {
        slo: slo(1_000.0),
        service_rate: None,
        of_cluster: vec![(Lever::BatchInterval, LeverRange::between(0.0, 0.5))],
        unknown: Vec::new(),
    };
    let keys = |errors: Vec<LawError>| errors.into_iter().map(|error| error.key).collect::<Vec<_>>();
    assert_eq!(keys(wrong.mistakes()), ["law.batching.budget"]);
    let between = ["max_interval_ms", "min_interval_ms", "explore_max_ms"];
    assert_eq!(
        keys(wrong.foreseen(&known)),
        between.map(|key| format!("law.batching.{key}"))
    );
}

#[test]
fn what_follows_from_a_wrong_value_is_no_mistake_of_its_own() {
    let keys = |json: &str| -> Vec<String> {
        let wrong = config(json).mistakes();
        wrong.into_iter().map(|error| error.key).collect()
    };
    let lags = format!(
        r#"{{"batching": {{"output_lags": {}, "explore_periods": 20}}}}"#,
        u64::MAX
    );
    assert_eq!(keys(&lags), ["law.batching.output_lags"]);
    let levels = r#"{"power-manager": {"levels": [{"target_ms": 100, "cap_share": 0.7},
        {"target_ms": -1, "cap_share": 0.7}, {"target_ms": 200, "cap_share": 0.7}, {"target_ms": 90, "cap_share": 0.6}]}}"#;
    assert_eq!(keys(levels), ["law.power-manager.levels.target_ms"; 2]);
}
