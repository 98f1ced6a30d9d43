//! How many requests each backend may have in flight beside what is configured, for the length of a lease.

use headroom_gateway::{BackendChange, Handle};
use headroom_wire::Invalid;
use headroom_wire::message::InFlightBound;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::task::AbortHandle;

/// The bounds that are in force, by backend: what waits for the end of each lease.
pub(super) struct Bounds {
    gateway: Arc<Handle>,
    leases: Mutex<BTreeMap<usize, Lease>>,
}

/// Waits for its end, however often it is renewed.
struct Lease {
    ends: AbortHandle,
    /// A lease that ends after something newer was asked for ends nothing.
    number: u64,
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.ends.abort();
    }
}

impl Bounds {
    pub fn new(gateway: Arc<Handle>) -> Self {
        Self {
            gateway,
            leases: Mutex::default(),
        }
    }

    fn leases(&self) -> MutexGuard<'_, BTreeMap<usize, Lease>> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the bound of a backend until the lease is over.
    ///
    /// # Errors
    /// No such backend.
    pub fn set(self: &Arc<Self>, backend: usize, bound: InFlightBound) -> Result<(), Invalid> {
        let mut leases = self.leases();
        let change = BackendChange::MostInFlight(bound.most);
        self.gateway
            .set_backend_state(backend, change)
            .map_err(|error| Invalid::new("backend", error, "the index of a backend"))?;
        let before = leases.remove(&backend);
        if bound.most.is_some() {
            let number = before.map_or(0, |lease| lease.number + 1);
            let bounds = Arc::clone(self);
            let ends = tokio::spawn(async move {
                tokio::time::sleep(bound.lease).await;
                bounds.end(backend, number);
            });
            let ends = ends.abort_handle();
            leases.insert(backend, Lease { ends, number });
        }
        Ok(())
    }

    fn end(&self, backend: usize, number: u64) {
        let mut leases = self.leases();
        if leases.get(&backend).is_some_and(|lease| lease.number == number) {
            leases.remove(&backend);
            tracing::warn!(
                backend,
                "no controller has renewed how many requests the backend may have: it is as configured"
            );
            self.lift(backend);
        }
    }

    /// All are as configured.
    pub fn release(&self) {
        for backend in std::mem::take(&mut *self.leases()).into_keys() {
            self.lift(backend);
        }
    }

    fn lift(&self, backend: usize) {
        let lifted = self
            .gateway
            .set_backend_state(backend, BackendChange::MostInFlight(None));
        if let Err(error) = lifted {
            // There was one when it was set.
            tracing::error!("a bound was not lifted: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_gateway::{BackendConfig, Gateway, GatewayConfig};
    use std::time::{Duration, Instant};

    const LONG: Duration = Duration::from_secs(60);
    const SHORT: Duration = Duration::from_millis(200);

    fn bounds() -> Arc<Bounds> {
        let backend = |port: u16| BackendConfig::new(format!("http://127.0.0.1:{port}"));
        let config = GatewayConfig {
            listen: vec!["127.0.0.1:0".parse().unwrap()],
            backends: vec![backend(9), backend(10)],
            threads: 1,
            ..GatewayConfig::default()
        };
        Arc::new(Bounds::new(Arc::new(Gateway::start(config).unwrap())))
    }

    fn bound(most: u32, lease: Duration) -> InFlightBound {
        InFlightBound {
            most: Some(most),
            lease,
        }
    }

    fn now(bounds: &Bounds) -> Vec<Option<u32>> {
        let health = bounds.gateway.backends_health().into_iter();
        health.map(|backend| backend.most_in_flight).collect()
    }

    #[tokio::test]
    async fn a_bound_ends_with_its_lease_unless_it_is_renewed() {
        let bounds = bounds();
        bounds.set(0, bound(8, LONG)).unwrap();
        bounds.set(1, bound(20, SHORT)).unwrap();
        assert_eq!(now(&bounds), [Some(8), Some(20)]);
        // What is renewed does not end with the lease before.
        bounds.set(1, bound(21, LONG)).unwrap();
        tokio::time::sleep(SHORT * 2).await;
        assert_eq!(now(&bounds), [Some(8), Some(21)]);
        bounds.set(1, bound(22, SHORT)).unwrap();
        let begun = Instant::now();
        while now(&bounds)[1].is_some() {
            assert!(begun.elapsed() < Duration::from_secs(20), "it does not end");
            tokio::time::sleep(SHORT / 4).await;
        }
        assert_eq!(now(&bounds), [Some(8), None]);
        let lifted = InFlightBound {
            most: None,
            lease: Duration::ZERO,
        };
        bounds.set(0, lifted).unwrap();
        assert_eq!(now(&bounds), [None, None]);
        bounds.set(0, bound(5, LONG)).unwrap();
        bounds.release();
        assert_eq!(now(&bounds), [None, None]);
        assert!(bounds.set(2, bound(5, LONG)).is_err());
    }
}
