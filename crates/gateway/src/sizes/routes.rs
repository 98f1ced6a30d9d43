//! Where the requests of each class of sizes are to go.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Of each class whose size is known the weight of each backend; empty where none are in force.
pub(crate) type Weights = Arc<Vec<Vec<u32>>>;

/// The weights of all cores, which may be changed at any time. A request reads one number that seldom changes.
#[derive(Debug, Default)]
pub(crate) struct SharedRoutes {
    /// Counts the changes.
    changes: AtomicU64,
    weights: Mutex<Weights>,
}

impl SharedRoutes {
    /// From the next request on.
    pub(crate) fn set(&self, weights: Vec<Vec<u32>>) {
        let mut held = self.weights.lock().unwrap_or_else(PoisonError::into_inner);
        if **held != weights {
            *held = Arc::new(weights);
            self.changes.fetch_add(1, Ordering::Release);
        }
    }

    /// What is in force.
    pub(crate) fn get(&self) -> Weights {
        let held = self.weights.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&held)
    }
}

/// The weights as one core goes by them, and whose turn it is of each class there.
#[derive(Debug)]
pub(crate) struct CoreRoutes {
    shared: Arc<SharedRoutes>,
    changes: u64,
    weights: Weights,
    /// As [`crate::backend::Balancer`] has them, of each class.
    credit: Vec<Vec<i64>>,
}

impl CoreRoutes {
    pub(crate) fn new(shared: Arc<SharedRoutes>) -> Self {
        Self {
            shared,
            changes: 0,
            weights: Weights::default(),
            credit: Vec::new(),
        }
    }

    /// The weights of a class and whose turn it is; `None` where it has no weight above 0.
    pub(crate) fn of(&mut self, class: usize) -> Option<(&[u32], &mut [i64])> {
        let changes = self.shared.changes.load(Ordering::Acquire);
        if changes != self.changes {
            self.changes = changes;
            self.weights = self.shared.get();
            self.credit = self.weights.iter().map(|row| vec![0; row.len()]).collect();
        }
        let weights = self.weights.get(class)?;
        let credit = self.credit.get_mut(class)?;
        weights
            .iter()
            .any(|weight| *weight > 0)
            .then_some((weights, credit))
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
        shared.set(vec![vec![3, 1], vec![0, 0]]);
        let (weights, credit) = core.of(0).unwrap();
        assert_eq!((weights, &*credit), (&[3, 1][..], &[0, 0][..]));
        credit[0] = 5;
        // The same again leaves whose turn it is.
        shared.set(vec![vec![3, 1], vec![0, 0]]);
        assert_eq!(core.of(0).unwrap().1, [5, 0]);
        assert!(core.of(1).is_none() && core.of(2).is_none());
        shared.set(Vec::new());
        assert!(core.of(0).is_none());
    }
}
