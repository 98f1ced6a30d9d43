//! The levers of gateways: set over their control ports, by `headroom up` and by a controller, and as configured when nobody sets them.

use crate::common::{
    Config, Gateway, Group, Program, Server, Traffic, Up, assert_has, metrics_at, refused, succeeds, until,
};
use crate::parts::{Plain, status};
use headroom_record::Archive;
use headroom_units::{Lever, Part, Quantity, Role, Sensor};
use headroom_wire::Address;
use headroom_wire::client::{ClientOptions, GatewayClient, Observer};
use headroom_wire::message::LeverSetting;
use std::fs;
use std::future::Future;
use std::time::{Duration, Instant};

const PART: Duration = Duration::from_millis(50);
/// Answers may be kept for a second.
const KEPT: &str = "Cache-Control: max-age=1\r\n";

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(future)
}

fn setting(lever: Lever, value: f64) -> LeverSetting {
    LeverSetting {
        lever: lever.name().to_owned(),
        value,
    }
}

fn of(levers: &[LeverSetting], lever: Lever) -> Option<f64> {
    let named = levers.iter().find(|one| one.lever == lever.name())?;
    Some(named.value)
}

/// The interval that is in force in a gateway which nobody observes; nothing while it cannot be asked.
fn interval_of(address: &Address) -> Option<f64> {
    block_on(async {
        let client = GatewayClient::connect(address, &ClientOptions::default())
            .await
            .ok()?;
        let period = client
            .observe(PART, Observer::Commands)
            .await
            .ok()?
            .next()
            .await
            .ok()??;
        of(&period.levers, Lever::BatchInterval)
    })
}

#[test]
fn what_is_set_over_the_control_port_holds_for_its_lease_and_is_as_configured_else() {
    let words = "--batch 20 --cache 8MiB --cache-object 64KiB --target-ms 500";
    let gateway = Gateway::start_with(&["127.0.0.1:9".parse().unwrap()], words);
    let address = gateway.control().parse().unwrap();
    block_on(async {
        let client = GatewayClient::connect(&address, &ClientOptions::default())
            .await
            .unwrap();
        let [interval, size] = &*client.gateway().levers else {
            panic!("{:?}", client.gateway().levers);
        };
        assert_eq!((&*interval.name, &*interval.unit), ("batch_interval", "seconds"));
        assert_eq!((interval.range.minimum, interval.range.maximum), (0.0, 0.25));
        assert_eq!(interval.configured, 0.02);
        assert_eq!((&*size.name, &*size.unit), ("cache_size", "bytes"));
        let (least, most) = (size.range.minimum, size.range.maximum);
        assert!(least >= 65_536.0 && least < most / 4.0, "{size:?}");
        assert_eq!((most, size.configured), (8_388_608.0, 8_388_608.0));

        let mut periods = client.observe(PART, Observer::Commands).await.unwrap();
        let (short, long) = (Duration::from_millis(600), Duration::from_secs(60));
        let both = vec![
            setting(Lever::BatchInterval, 0.2),
            setting(Lever::CacheSize, least),
        ];
        assert_eq!(client.set_levers(both.clone(), long).await.unwrap(), both);
        // Of a period that began before it nothing is asked.
        periods.next().await.unwrap().unwrap();
        assert_eq!(periods.next().await.unwrap().unwrap().levers, both);

        let one = vec![setting(Lever::BatchInterval, 0.1)];
        let now = client.set_levers(one.clone(), long).await.unwrap();
        assert_eq!(of(&now, Lever::BatchInterval), Some(0.1));
        assert_eq!(
            of(&now, Lever::CacheSize),
            Some(most),
            "what is not named is as configured"
        );

        for (settings, lease, words) in [
            (
                vec![setting(Lever::BatchInterval, 0.3)],
                long,
                "0 to 0.25 seconds",
            ),
            (one.clone(), PART, "lease_ms is 50 ms, outside 100 to 86400000 ms"),
            (
                vec![setting(Lever::CacheSize, least), setting(Lever::Cores, 1.0)],
                long,
                "expected a lever of this gateway: batch_interval, cache_size",
            ),
        ] {
            let error = client.set_levers(settings, lease).await.unwrap_err();
            assert_has(error.to_string(), &[words]);
        }
        periods.next().await.unwrap().unwrap();
        let levers = periods.next().await.unwrap().unwrap().levers;
        assert_eq!(
            of(&levers, Lever::BatchInterval),
            Some(0.1),
            "nothing was changed"
        );

        // Renewed it goes on for longer than one lease; a controller that hangs renews no more, however open its connection is.
        let begun = Instant::now();
        while begun.elapsed() < short * 2 {
            client.set_levers(one.clone(), short).await.unwrap();
            let period = periods.next().await.unwrap().unwrap();
            assert_eq!(of(&period.levers, Lever::BatchInterval), Some(0.1));
        }
        let begun = Instant::now();
        loop {
            let period = periods.next().await.unwrap().unwrap();
            if of(&period.levers, Lever::BatchInterval) == Some(0.02) {
                break;
            }
            assert!(begun.elapsed() < Duration::from_secs(20), "{period:?}");
        }

        // A second controller cannot set what the first one's lease holds.
        client.set_levers(one.clone(), long).await.unwrap();
        let other = GatewayClient::connect(&address, &ClientOptions::default())
            .await
            .unwrap();
        let refused = other.set_levers(one.clone(), long).await.unwrap_err();
        assert_has(
            refused.to_string(),
            &[
                "controller that sets batch_interval",
                "a local process",
                "for another",
            ],
        );
        drop(other);

        client.set_levers(one, long).await.unwrap();
        let back = client.set_levers(Vec::new(), Duration::ZERO).await.unwrap();
        assert_eq!(of(&back, Lever::BatchInterval), Some(0.02));
    });
    assert_has(gateway.program.err(), &["levers were not set", "batch_interval"]);
}

/// What the newest run of a record says of the cluster, and of the latency, where all of these are there.
fn recorded(config: &Config) -> Option<(Part, f64)> {
    let archive = Archive::open(&config.db()).unwrap();
    let newest = archive.find("latest").unwrap();
    let periods = archive.periods(newest.id).unwrap();
    let all: [Quantity; 5] = [
        Lever::BatchInterval.into(),
        Sensor::CacheHitRatio.into(),
        Sensor::BatchProcessing.into(),
        Sensor::BatchWaiting.into(),
        Sensor::BatchGroupSize.into(),
    ];
    periods.iter().rev().find_map(|period| {
        assert!(period.seen["in_force"].is_object(), "{}", period.seen);
        let cluster = period.parts.iter().find(|part| part.role == Role::Cluster)?;
        let known = all.iter().all(|quantity| cluster.get(*quantity).is_some());
        Some((cluster.clone(), period.latency?.mean.get())).filter(|_| known)
    })
}

const CONSTANT: &str = "name = \"constant\"\n\n[law.constant]\nsetting = { batch_interval = 0.1 }\n";

#[test]
fn up_sets_the_interval_records_what_comes_of_it_and_leaves_none_behind_when_it_is_killed() {
    let Some(group) = Group::new() else { return };
    let server = Server::answering(Duration::from_millis(2), KEPT);
    let law = "name = \"slo-power\"\n\n[law.slo-power]\nguard = 0.8\n";
    let without = Config::new(&group, server.address).with(law, CONSTANT);
    let key = "constant moves the lever batch_interval, which is not here";
    refused(without.command(), &[key, "`gateway.batch.interval_ms`"]);
    let front = "[gateway.batch]\ninterval_ms = 0\n\n[gateway.cache]\nbytes = 8388608\n\n[service]";
    let config = without.with("[service]", front);
    assert_has(succeeds(config.check()).out(), &["batch_interval", "cache_size"]);

    let in_force = |up: &Up| {
        until("the interval is in force, and batches come of it", || {
            let seen = up.status()["observation"].clone();
            let interval = seen["in_force"]["batch_interval"].as_f64()?;
            let batches = seen["batching"]["batches"].as_u64()?;
            let hits = seen["cache"]["hits"].as_u64()?;
            (interval == 0.1 && batches > 0 && hits > 0).then_some(())
        });
    };
    let mut up = Up::start(&config);
    let traffic = [Traffic::to(up.gateway), Traffic::to(up.gateway)];
    in_force(&up);
    up.counted("headroom_service_batches_total", 2.0);
    assert!(up.metric("headroom_service_batch_requests_total") >= 2.0);
    assert!(up.metric("headroom_service_batch_waiting_seconds_total") > 0.0);
    let pid = up.program.pid();
    up.program.kill();
    let socket = config.run_dir().join(format!("gateway-{pid}.sock"));
    assert!(fs::exists(&socket).unwrap(), "the gateway serves on");
    let address: Address = format!("unix:{}", socket.display()).parse().unwrap();
    until("nobody renews it, and it is as configured", || {
        interval_of(&address).filter(|interval| *interval == 0.0)
    });
    drop(traffic);

    // The next one takes the gateway over.
    let mut up = Up::start(&config);
    assert_has(up.program.err(), &["taking over the gateway that serves"]);
    let traffic = [Traffic::to(up.gateway), Traffic::to(up.gateway)];
    in_force(&up);
    up.counts("headroom_periods_total", 5.0);
    drop(traffic);
    up.program.stop();
    let (cluster, mean) = recorded(&config).expect("a period with all of it");
    assert_eq!(cluster.get(Lever::BatchInterval), Some(0.1));
    // Of the interval what the processing of the batch before left.
    let waiting = cluster.get(Sensor::BatchWaiting).unwrap();
    assert!(waiting > 0.0 && waiting <= 0.1 + 1e-6, "{cluster:?}");
    assert!(cluster.get(Sensor::BatchGroupSize).unwrap() >= 1.0, "{cluster:?}");
    assert!(cluster.get(Sensor::CacheHitRatio).unwrap() > 0.0, "{cluster:?}");
    assert!(mean > 0.0);
}

#[test]
fn a_law_of_the_interval_waits_for_no_calibration_of_the_cpu() {
    let Some(group) = Group::new() else { return };
    let server = Server::answering(Duration::ZERO, KEPT);
    let law = "name = \"slo-power\"\n\n[law.slo-power]\nguard = 0.8\n";
    // Behind a cache the service has hardly any work to show by what a core serves.
    let config = Config::new(&group, server.address)
        .with(law, "name = \"seek\"\n")
        .with("requests_per_core_s = 250.0\n", "")
        .with(
            "[service]",
            "[gateway.batch]\ninterval_ms = 0\n\n[gateway.cache]\nbytes = 8388608\n\n[service]",
        );
    let mut up = Up::start(&config);
    until("it decides by itself", || {
        let status = up.status();
        let rule = status["decided"]["reasons"][0]["rule"].as_str()?.to_owned();
        assert_eq!(status["calibrating"], false, "{status}");
        (!rule.is_empty() && status["observation"]["period"].as_u64()? >= 1).then_some(())
    });
    up.program.stop();
    assert!(
        !up.program.err().contains("what one core serves"),
        "{}",
        up.program.err()
    );
}

#[test]
fn a_controller_sets_all_gateways_and_puts_them_back_however_it_ends() {
    let node = Plain::start();
    let server = Server::answering(Duration::from_millis(2), KEPT);
    let start = || Gateway::start_with(&[server.address], "--batch 0 --cache 8MiB");
    let gateways = [start(), start()];
    let addresses = [0, 1].map(|at: usize| gateways[at].control().parse::<Address>().unwrap());
    let second = format!("g2 = \"{}\"\n\n[cluster]", gateways[1].control());
    let config = Config::controller(&[("n1", node.at())], &gateways[0].control(), 2000)
        .with("\n[cluster]", &second)
        .with("name = \"slo-power\"\n", CONSTANT);
    let check = succeeds(config.command().arg("--check")).json();
    let levers = check["levers"].as_array().unwrap();
    let named = |name: &str| levers.iter().any(|lever| lever["lever"] == name);
    assert!(named("batch_interval") && named("cache_size"), "{check}");
    assert_eq!(addresses.each_ref().map(interval_of), [Some(0.0); 2]);

    let traffic = [0, 1].map(|at: usize| Traffic::to(gateways[at].address));
    let mut dry = Program::start(config.command().arg("--dry-run"));
    let admin = metrics_at(&mut dry);
    until("what would be set is said", || {
        let status = status(admin)?;
        assert_ne!(
            status["observation"]["in_force"]["batch_interval"], 0.1,
            "{status}"
        );
        let would = status["decided"]["setting"]["batch_interval"].as_f64()?;
        (would == 0.1 && status["observation"]["period"].as_u64()? > 3).then_some(())
    });
    dry.stop();
    assert_eq!(addresses.each_ref().map(interval_of), [Some(0.0); 2]);

    let set = || {
        let (controller, admin) = config.start();
        until("both have it", || {
            let status = status(admin)?;
            let seen = &status["observation"];
            let has = |part: &serde_json::Value| part["values"]["batch_interval"] == 0.1;
            let all_have = status["gateways"].as_array()?.iter().all(has);
            let batches = seen["batching"]["batches"].as_u64()?;
            (all_have && seen["in_force"]["batch_interval"] == 0.1 && batches > 1).then_some(())
        });
        controller
    };
    let mut controller = set();
    controller.stop();
    assert_eq!(
        addresses.each_ref().map(interval_of),
        [Some(0.0); 2],
        "{}",
        controller.err()
    );
    let (cluster, _) = recorded(&config).expect("a period with all of it");
    assert_eq!(cluster.get(Lever::BatchInterval), Some(0.1));

    let mut controller = set();
    controller.kill();
    for address in &addresses {
        until("the interval is put back", || {
            interval_of(address).filter(|interval| *interval == 0.0)
        });
    }
    traffic.iter().for_each(|one| assert_eq!(one.wrong(), 0));

    // One that has no batcher is named, and the law refused with the remedy.
    let without = Gateway::start(&[server.address]);
    let config = config.with(&gateways[1].control(), &without.control());
    let words = [
        "constant moves the lever batch_interval, which is not here",
        "--batch",
    ];
    let program = refused(config.command(), &words);
    assert_has(program.err(), &["law.name"]);
}
