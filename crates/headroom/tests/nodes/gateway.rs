//! The control port of `headroom gateway`, called as a controller calls it.

use crate::common::{Gateway, assert_has, get, until};
use headroom_wire::Refusal;
use headroom_wire::client::{CallError, ClientOptions, GatewayClient, Observer};
use headroom_wire::message::{BackendState, LeverSetting, SetBackend};
use std::time::Duration;

const PART: Duration = Duration::from_millis(50);

fn change(state: Option<BackendState>, weight: Option<u32>) -> SetBackend {
    SetBackend {
        backend: 0,
        state,
        weight,
        bound: None,
    }
}

#[test]
fn periods_lose_no_request_and_one_controller_takes_them_and_sets_the_backends() {
    // Nobody listens on the backend: each request fails at once, and is counted as that.
    let gateway = Gateway::of_nobody();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let (address, options) = (gateway.control().parse().unwrap(), ClientOptions::default());
    assert_eq!(
        get(gateway.address, "/").unwrap().status,
        502,
        "before anybody observes"
    );
    runtime.block_on(async {
        let client = GatewayClient::connect(&address, &options).await.unwrap();
        assert_eq!(client.gateway().backends[0].url, "http://127.0.0.1:9");
        let mut periods = client.observe(PART, Observer::Commands).await.unwrap();
        let first = periods.next().await.unwrap().unwrap();
        assert_eq!(
            (first.number, first.arrivals),
            (1, 0),
            "what came before is in no period"
        );

        let other = GatewayClient::connect(&address, &options).await.unwrap();
        let refused = other.observe(PART, Observer::Commands).await.unwrap_err();
        assert!(
            matches!(&refused, CallError::Refused(Refusal::Busy { limit: 1, .. })),
            "{refused}"
        );
        assert!(
            refused.to_string().starts_with("the gateway serves 1 controller"),
            "{refused}"
        );
        let short = other
            .observe(Duration::from_millis(1), Observer::Commands)
            .await
            .unwrap_err();
        assert_has(short.to_string(), &["period_ms is 1 ms, outside 20 to 60000 ms"]);

        for _ in 0..20 {
            let gateway = gateway.address;
            let status = tokio::task::spawn_blocking(move || get(gateway, "/").unwrap().status)
                .await
                .unwrap();
            assert!(status >= 500, "{status}");
        }
        // The reader was slow meanwhile: periods are longer, and nothing is missing.
        let (mut arrivals, mut failures, mut number) = (0, 0, 1);
        while arrivals < 20 {
            let period = periods.next().await.unwrap().unwrap();
            number += 1;
            assert_eq!(period.number, number, "no gaps");
            arrivals += period.arrivals;
            failures += period.failures;
        }
        assert_eq!((arrivals, failures), (20, 20));

        let drained = other
            .set_backend(change(Some(BackendState::Drain), Some(7)))
            .await
            .unwrap();
        assert_eq!((drained.state, drained.weight), (BackendState::Drain, 7));
        let error = other.set_backend(change(None, Some(1001))).await.unwrap_err();
        assert_has(error.to_string(), &["weight is 1001: expected 0 to 1000"]);
        let nobody = SetBackend {
            backend: 1,
            ..change(None, None)
        };
        let error = other.set_backend(nobody).await.unwrap_err();
        assert_has(error.to_string(), &["backend is 1"]);
        let up = other
            .set_backend(change(Some(BackendState::Up), None))
            .await
            .unwrap();
        assert_eq!((up.state, up.weight), (BackendState::Up, 7));

        let lever = LeverSetting {
            lever: "batch interval".into(),
            value: 50.0,
        };
        assert_eq!(other.gateway().levers, []);
        let error = other
            .set_levers(vec![lever], Duration::from_secs(1))
            .await
            .unwrap_err();
        assert_has(
            error.to_string(),
            &["\"batch interval\": expected a lever of this gateway, which has none"],
        );
        assert_eq!(other.set_levers(Vec::new(), Duration::ZERO).await.unwrap(), []);

        drop(periods);
        drop(client);
    });
    // The turn is free again as soon as the first is gone.
    until("another may observe", || {
        runtime
            .block_on(async {
                let client = GatewayClient::connect(&address, &options).await?;
                client.observe(PART, Observer::Commands).await
            })
            .ok()
            .map(|_| ())
    });
}
