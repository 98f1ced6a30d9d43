use super::*;

const GOOD: &str = "[slo]\ntarget_ms = 250\n\n[nodes]\nn1 = \"unix:/a\"\n\n[gateways]\ng1 = \"unix:/b\"\n";

fn parse(text: &str) -> Result<(ControllerFile, Document), ConfigErrors> {
    ControllerFile::checked(Document::shipped("controller.toml", text), "controller")
}

#[test]
fn a_lever_without_an_actuator_is_named() {
    let text = format!("{GOOD}[law]\nname = [\"slo-power\", \"always-on\"]\n");
    let said = parse(&text).unwrap_err().to_string();
    assert!(
        said.contains("controller.toml:5: nodes.n1.power: is missing: always-on moves the lever servers"),
        "{said}"
    );
}

#[test]
fn the_queries_of_servers_on_call_are_requests_where_that_is_written() {
    let without = GOOD.replace("[gateways]\ng1 = \"unix:/b\"\n", "[cluster]\nqueries = true\n");
    for law in [
        "\"on-call\"",
        "\"reef\"",
        "\"joint\"",
        "[\"slo-power\", \"on-call\"]",
    ] {
        let (config, _) = parse(&format!("{without}[law]\nname = {law}\n")).unwrap();
        assert!(config.cluster.queries && config.commands(), "{law}");
    }
}

#[test]
fn each_mistake_is_told_with_file_line_value_and_remedy() {
    for (from, to, said) in [
        (
            "unix:/a",
            "n1",
            "controller.toml:5: nodes.n1: \"n1\" is no address",
        ),
        (
            "unix:/a",
            "n1:7443",
            "controller.toml:5: nodes.n1: n1:7443 is TCP",
        ),
        (
            "unix:/b",
            "g1:7443",
            "controller.toml:8: gateways.g1: g1:7443 is TCP",
        ),
        (
            "n1 = \"unix:/a\"\n",
            "",
            "controller.toml:4: nodes: has 0: joint needs 1 to 256",
        ),
        (
            "[gateways]",
            "n2 = \"unix:/a\"\n[gateways]",
            "controller.toml:7: nodes.n2: unix:/a is the agent of n1 too",
        ),
        (
            "g1 = \"unix:/b\"",
            "g1 = \"unix:/b\"\ng2 = \"unix:/b\"",
            "controller.toml:9: gateways.g2: unix:/b is the gateway g1 too",
        ),
        (
            "[gateways]\ng1 = \"unix:/b\"\n",
            "",
            "gateways: has 0: joint goes by latency, so name gateways, or another source under [telemetry], or write cluster.queries = true",
        ),
        (
            "\n[nodes]",
            "[cluster]\nqueries = true\n[nodes]",
            "controller.toml:4: cluster.queries: is true, and [gateways] counts requests already",
        ),
        (
            "\n[nodes]",
            "[law.on-call]\npolicy = \"apples\"\n[nodes]",
            "controller.toml:4: law.on-call.policy: gives each connection turns of its own, and a controller is told of no connection",
        ),
        (
            "\n[nodes]",
            "[law.reef.areas]\nlaw = \"reef\"\n[nodes]",
            "controller.toml:4: law.reef.areas.law: divides cores among connections, and a controller is told of no connection: remove it, \
             or run `headroom up` with [oncall]",
        ),
        (
            "target_ms = 250",
            "target_ms = -1",
            "controller.toml:2: slo.target_ms",
        ),
        (
            "\n[nodes]",
            "[cluster]\nlease_ms = 1500\n[nodes]",
            "controller.toml:4: cluster.lease_ms: is 1500: a lease outlives",
        ),
        (
            "\n[nodes]",
            "[cluster]\nrefused_periods_to_leave = 0\n[nodes]",
            "controller.toml:4: cluster.refused_periods_to_leave: is 0.0: it must be between 1.0 and 1000.0",
        ),
        (
            "\n[nodes]",
            "[cluster]\ncores_step = 0\n[nodes]",
            "controller.toml:4: cluster.cores_step: is 0.0",
        ),
        (
            "\n[nodes]",
            "[control]\nperiod_ms = 5\n[nodes]",
            "controller.toml:4: control.period_ms: is 5.0: it must be between 100.0",
        ),
        (
            "\n[nodes]",
            "[haproxy]\nsocket = \"/s\"\nbackend = \"b\"\n[law]\nname = \"slo-power\"\n[nodes]",
            "controller.toml:3: haproxy: is for a law that switches servers, and slo-power switches none",
        ),
        (
            "\n[nodes]",
            "[law.slo-power]\nguard = 3\n[nodes]",
            "controller.toml:4: law.slo-power.guard",
        ),
    ] {
        assert!(GOOD.contains(from));
        let parsed = parse(&GOOD.replace(from, to)).and_then(|(file, document)| Ok(file.client(&document)?));
        let text = parsed.expect_err("a mistake must not pass").to_string();
        assert!(text.contains(said), "{text}");
    }
}

#[test]
fn laws_that_set_gateways_alone_need_no_nodes() {
    let without = GOOD.replace("[nodes]\nn1 = \"unix:/a\"\n\n", "");
    for law in ["\"seek\"", "[\"batching\"]"] {
        let (config, _) = parse(&format!("{without}[law]\nname = {law}\n")).unwrap();
        assert!(
            config.commands() && !config.sets_nodes() && !config.resizes(),
            "{law}"
        );
    }
    for (text, said) in [
        (
            format!("{without}[law]\nname = [\"seek\", \"slo-power\"]\n"),
            "nodes: has 0: slo-power needs 1 to 256",
        ),
        (
            "[slo]\ntarget_ms = 250\n\n[law]\nname = \"seek\"\n".to_owned(),
            "gateways: has 0",
        ),
    ] {
        let error = parse(&text).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
}
