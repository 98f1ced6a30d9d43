//! Where the requests of each class of sizes are to go.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Where the requests of one class go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClassRoute {
    /// The weight of each backend, in the order of the configuration; with no weight above 0 the class goes as configured.
    pub weights: Vec<u32>,
    /// How many requests, of all classes, each backend may have in flight and be sent one of this class by its weight. A request for which
    /// none with a weight has room goes to the one, of all, whose requests are the smallest share of this number; with 0 a backend takes
    /// none of these either. Empty for no bounds.
    pub most_in_flight: Vec<u32>,
}

impl From<Vec<u32>> for ClassRoute {
    fn from(weights: Vec<u32>) -> Self {
        Self {
            weights,
            most_in_flight: Vec::new(),
        }
    }
}

/// Of each class whose size is known where it goes; empty where none are in force.
pub(crate) type Routes = Arc<Vec<ClassRoute>>;

/// The routes of all cores, which may be changed at any time. A request reads one number that seldom changes.
#[derive(Debug, Default)]
pub(crate) struct SharedRoutes {
    /// Counts the changes.
    changes: AtomicU64,
    routes: Mutex<Routes>,
}

impl SharedRoutes {
    /// From the next request on.
    pub(crate) fn set(&self, routes: Vec<ClassRoute>) {
        let mut held = self.routes.lock().unwrap_or_else(PoisonError::into_inner);
        if **held != routes {
            *held = Arc::new(routes);
            self.changes.fetch_add(1, Ordering::Release);
        }
    }

    /// What is in force.
    pub(crate) fn get(&self) -> Routes {
        let held = self.routes.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&held)
    }
}

/// The routes as one core goes by them, and whose turn it is of each class there.
#[derive(Debug)]
pub(crate) struct CoreRoutes {
    shared: Arc<SharedRoutes>,
    changes: u64,
    routes: Routes,
    /// As [`crate::backend::Balancer`] has them, of each class.
    credit: Vec<Vec<i64>>,
}

impl CoreRoutes {
    pub(crate) fn new(shared: Arc<SharedRoutes>) -> Self {
        Self {
            shared,
            changes: 0,
            routes: Routes::default(),
            credit: Vec::new(),
        }
    }

    /// Where a class goes and whose turn it is; `None` where it has no weight above 0.
    pub(crate) fn of(&mut self, class: usize) -> Option<(&ClassRoute, &mut [i64])> {
        let changes = self.shared.changes.load(Ordering::Acquire);
        if changes != self.changes {
            self.changes = changes;
            let before = std::mem::replace(&mut self.routes, self.shared.get());
            // Bounds change with the load; whose turn it is stays, as long as the weights do.
            let weights = |routes: &Routes| routes.iter().map(|one| one.weights.clone()).collect::<Vec<_>>();
            if weights(&before) != weights(&self.routes) {
                let credit = |one: &ClassRoute| vec![0; one.weights.len()];
                self.credit = self.routes.iter().map(credit).collect();
            }
        }
        let route = self.routes.get(class)?;
        let credit = self.credit.get_mut(class)?;
        route
            .weights
            .iter()
            .any(|weight| *weight > 0)
            .then_some((route, credit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_follows_what_is_set() {
        let shared = Arc::new(SharedRoutes::default());
        let mut core = CoreRoutes::new(Arc::clone(&shared));
        assert!(core.of(0).is_none());
        let routes = || vec![ClassRoute::from(vec![3, 1]), vec![0, 0].into()];
        shared.set(routes());
        let (route, credit) = core.of(0).unwrap();
        assert_eq!((&route.weights[..], &*credit), (&[3, 1][..], &[0, 0][..]));
        credit[0] = 5;
        // The same again leaves whose turn it is, and so do other bounds.
        shared.set(routes());
        assert_eq!(core.of(0).unwrap().1, [5, 0]);
        let mut bounded = routes();
        bounded[0].most_in_flight = vec![4, 4];
        shared.set(bounded);
        let (route, credit) = core.of(0).unwrap();
        assert_eq!((&route.most_in_flight[..], &*credit), (&[4, 4][..], &[5, 0][..]));
        assert!(core.of(1).is_none() && core.of(2).is_none());
        shared.set(Vec::new());
        assert!(core.of(0).is_none());
    }
}
