//! A real gateway with its control port, and several controllers.

use super::*;
use crate::cluster::Gateways;
use crate::cluster::gateway_port::{BoundPort, ControlPort};
use crate::live::Device;
use headroom_control::Decision;
use headroom_gateway::{BackendConfig, Gateway};
use headroom_units::Setting;
use headroom_wire::Address;
use headroom_wire::access::Rules;
use headroom_wire::client::{CallError, ClientOptions, GatewayClient};
use headroom_wire::server::Listen;

const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(300);
const PATIENCE: Duration = Duration::from_secs(20);

struct Served {
    _gateway: Arc<Handle>,
    _port: ControlPort,
    control: Address,
    _dir: tempfile::TempDir,
}

/// With a batcher that holds nothing, and a cache of 8 MiB.
fn served() -> Served {
    let mut config = GatewayConfig {
        listen: vec!["127.0.0.1:0".parse().unwrap()],
        backends: vec![BackendConfig::new("http://127.0.0.1:9")],
        threads: 1,
        ..GatewayConfig::default()
    };
    config.batch.interval_ms = Some(0);
    config.cache.bytes = 8 << 20;
    config.cache.max_object_bytes = 64 << 10;
    let gateway = Arc::new(Gateway::start(config).unwrap());
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("gateway.sock");
    let port = BoundPort::open(vec![Listen::Unix { path: path.clone() }]).unwrap();
    let port = port.serve(Arc::clone(&gateway), Rules::default()).unwrap();
    Served {
        _gateway: gateway,
        _port: port,
        control: Address::Unix(path),
        _dir: dir,
    }
}

async fn controller(served: &Served) -> GatewayClient {
    GatewayClient::connect(&served.control, &ClientOptions::default())
        .await
        .unwrap()
}

fn setting(lever: Lever, value: f64) -> Vec<LeverSetting> {
    vec![LeverSetting {
        lever: lever.name().to_owned(),
        value,
    }]
}

fn of(levers: &[LeverSetting], lever: Lever) -> f64 {
    levers.iter().find(|one| one.lever == lever.name()).unwrap().value
}

fn on(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.unwrap().block_on(test);
}

/// Asks until it is granted.
async fn granted(client: &GatewayClient, settings: Vec<LeverSetting>) -> Vec<LeverSetting> {
    let begun = Instant::now();
    loop {
        match client.set_levers(settings.clone(), LONG).await {
            Ok(now) => return now,
            Err(CallError::Refused(Refusal::Busy { .. })) if begun.elapsed() < PATIENCE => {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_lever_that_another_lease_holds_is_refused_and_the_others_are_not() {
    let served = served();
    on(async {
        let (first, second) = (controller(&served).await, controller(&served).await);
        first
            .set_levers(setting(Lever::BatchInterval, 0.2), LONG)
            .await
            .unwrap();

        let refused = second
            .set_levers(setting(Lever::BatchInterval, 0.1), LONG)
            .await
            .unwrap_err();
        assert!(
            matches!(&refused, CallError::Refused(Refusal::Busy { limit: 1, .. })),
            "{refused}"
        );
        let said = refused.to_string();
        for words in ["batch_interval", "a local process", "for another", "close one"] {
            assert!(said.contains(words), "{words}: {said}");
        }

        // What nobody holds it may set; nothing that it sets or gives back moves what the first one holds.
        let size = 4_194_304.0;
        let now = second
            .set_levers(setting(Lever::CacheSize, size), LONG)
            .await
            .unwrap();
        assert_eq!(
            (of(&now, Lever::BatchInterval), of(&now, Lever::CacheSize)),
            (0.2, size)
        );
        let both = [
            setting(Lever::CacheSize, size),
            setting(Lever::BatchInterval, 0.1),
        ]
        .concat();
        second.set_levers(both, LONG).await.unwrap_err();
        let now = second.set_levers(Vec::new(), Duration::ZERO).await.unwrap();
        assert_eq!(
            (of(&now, Lever::BatchInterval), of(&now, Lever::CacheSize)),
            (0.2, 8_388_608.0)
        );

        // Given back it is free at once.
        first.set_levers(Vec::new(), Duration::ZERO).await.unwrap();
        let now = second
            .set_levers(setting(Lever::BatchInterval, 0.1), LONG)
            .await
            .unwrap();
        assert_eq!(of(&now, Lever::BatchInterval), 0.1);
    });
}

#[test]
fn a_lease_that_ended_frees_its_levers_though_its_holder_is_connected() {
    let served = served();
    on(async {
        let (first, second) = (controller(&served).await, controller(&served).await);
        first
            .set_levers(setting(Lever::BatchInterval, 0.2), SHORT)
            .await
            .unwrap();
        let now = granted(&second, setting(Lever::BatchInterval, 0.1)).await;
        assert_eq!(of(&now, Lever::BatchInterval), 0.1);
        // It had its turn.
        first
            .set_levers(setting(Lever::BatchInterval, 0.2), SHORT)
            .await
            .unwrap_err();
    });
}

#[test]
fn the_same_controller_over_a_new_connection_waits_for_no_lease() {
    let served = served();
    on(async {
        let first = controller(&served).await;
        first
            .set_levers(setting(Lever::BatchInterval, 0.2), LONG)
            .await
            .unwrap();
        drop(first);
        let again = controller(&served).await;
        let begun = Instant::now();
        let now = granted(&again, setting(Lever::BatchInterval, 0.2)).await;
        assert_eq!(of(&now, Lever::BatchInterval), 0.2);
        assert!(begun.elapsed() < PATIENCE && PATIENCE < LONG);
    });
}

#[test]
fn a_controller_whose_lever_another_holds_says_so_and_what_to_do() {
    let served = served();
    let holder = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let first = holder.block_on(controller(&served));
    let holds = first.set_levers(setting(Lever::BatchInterval, 0.2), LONG);
    holder.block_on(holds).unwrap();

    let gateways = vec![("g1".to_owned(), served.control.clone())];
    let period = Duration::from_millis(200);
    let gateways = Gateways::start(gateways, &ClientOptions::default(), period).unwrap();
    assert!(gateways.connect(PATIENCE, || false).is_empty());
    let mut levers = gateways.levers(LONG);
    let decided = Setting::from([(Lever::BatchInterval, 0.1)]);
    let said = || {
        let error = levers.apply(&mut Decision::of(decided)).unwrap_err();
        Some(error.to_string()).filter(|said| !said.contains("not answered yet"))
    };
    let begun = Instant::now();
    let said = std::iter::repeat_with(said)
        .find_map(|said| said.or_else(|| (begun.elapsed() > PATIENCE).then(String::new)))
        .unwrap();
    for words in [
        "gateway g1",
        "batch_interval",
        "stop the other one",
        "wait until its lease ends",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
}
