//! The addresses of one backend as a core connects to them: in turn, past those that fail.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::time::error::Elapsed;

use crate::config::{HealthConfig, ms};

/// An address that failed is passed over for at most so many times its first time before it is doubled no more.
const MAX_DOUBLINGS: u32 = 16;

#[derive(Debug)]
struct Address {
    to: SocketAddr,
    /// Connections in a row that failed.
    failures: u32,
    /// It is tried last until then.
    passed_over_until: Option<Instant>,
}

/// One backend's addresses.
#[derive(Debug)]
pub(crate) struct Addresses {
    list: RefCell<Vec<Address>>,
    /// Whose turn it is.
    next: Cell<usize>,
    /// For how long an address that failed is passed over, at first and at most.
    passing_over: (Duration, Duration),
}

impl Addresses {
    /// Core `core` begins with another address than its neighbour.
    pub(crate) fn new(addresses: &[SocketAddr], core: usize, health: &HealthConfig) -> Self {
        let this = Self {
            list: RefCell::default(),
            next: Cell::new(core),
            passing_over: (ms(health.ejection_ms), ms(health.ejection_max_ms)),
        };
        this.set(addresses);
        this
    }

    /// From now on it is these; what is known of those that stay stays.
    pub(crate) fn set(&self, addresses: &[SocketAddr]) {
        let mut list = self.list.borrow_mut();
        let mut known = std::mem::take(&mut *list);
        list.extend(addresses.iter().map(|to| {
            let kept = known.iter().position(|address| address.to == *to);
            kept.map(|index| known.swap_remove(index)).unwrap_or(Address {
                to: *to,
                failures: 0,
                passed_over_until: None,
            })
        }));
    }

    /// In which order the next connection tries them.
    fn turn(&self, now: Instant) -> Vec<SocketAddr> {
        let list = self.list.borrow();
        let first = self.next.get() % list.len().max(1);
        self.next.set(first + 1);
        let (mut order, mut last) = (Vec::with_capacity(list.len()), Vec::new());
        for address in list[first..].iter().chain(&list[..first]) {
            match address.passed_over_until {
                Some(until) if until > now => last.push(address.to),
                _ => order.push(address.to),
            }
        }
        order.append(&mut last);
        order
    }

    fn with(&self, to: SocketAddr, change: impl FnOnce(&mut Address)) {
        let mut list = self.list.borrow_mut();
        list.iter_mut().find(|address| address.to == to).map(change);
    }

    fn connected(&self, to: SocketAddr) {
        self.with(to, |address| {
            address.failures = 0;
            address.passed_over_until = None;
        });
    }

    fn failed(&self, to: SocketAddr) {
        let (first, most) = self.passing_over;
        self.with(to, |address| {
            let doubled = first * (1 << address.failures.min(MAX_DOUBLINGS));
            address.failures = address.failures.saturating_add(1);
            address.passed_over_until = Some(Instant::now() + doubled.min(most));
        });
    }

    /// Opens a connection to the address whose turn it is; one that fails gives way to the next, as [`first_open`] says.
    ///
    /// # Errors
    /// What the last one failed by, or that time ran out.
    pub(crate) async fn connect<T, F: Future<Output = io::Result<T>>>(
        &self,
        patience: Duration,
        open: impl Fn(SocketAddr) -> F,
    ) -> Result<io::Result<T>, Elapsed> {
        let only = match &self.list.borrow()[..] {
            [only] => Some(only.to),
            _ => None,
        };
        if let Some(to) = only {
            return tokio::time::timeout(patience, open(to)).await;
        }
        let order = self.turn(Instant::now());
        let noted = |to, opened| match opened {
            true => self.connected(to),
            false => self.failed(to),
        };
        first_open(&order, patience, open, noted).await
    }
}

/// Opens a connection to the first of these that takes one, and notes of each that was tried whether it did. Each may take its equal part of
/// the time that is left of `patience`, and the last one all of it.
///
/// # Errors
/// What the last one failed by, or that time ran out.
pub(crate) async fn first_open<T, F: Future<Output = io::Result<T>>>(
    order: &[SocketAddr],
    patience: Duration,
    open: impl Fn(SocketAddr) -> F,
    mut noted: impl FnMut(SocketAddr, bool),
) -> Result<io::Result<T>, Elapsed> {
    let begun = Instant::now();
    let mut outcome = Ok(Err(io::Error::new(io::ErrorKind::NotFound, "no address")));
    for (tried, to) in order.iter().enumerate() {
        let left = patience.saturating_sub(begun.elapsed());
        let part = left / u32::try_from(order.len() - tried).unwrap_or(u32::MAX);
        outcome = tokio::time::timeout(part, open(*to)).await;
        let opened = matches!(outcome, Ok(Ok(_)));
        noted(*to, opened);
        if opened {
            break;
        }
        tracing::debug!(address = %to, timed_out = outcome.is_err(), "an address of a backend failed");
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(count: u16) -> Vec<SocketAddr> {
        (1..=count)
            .map(|port| SocketAddr::from(([127, 0, 0, 1], port)))
            .collect()
    }

    fn of(count: u16) -> Addresses {
        Addresses::new(&addresses(count), 0, &HealthConfig::default())
    }

    fn block<T>(future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(future)
    }

    /// The ports that connections reach where these refuse.
    fn reached(addresses: &Addresses, connections: usize, refuse: &[u16]) -> Vec<u16> {
        let open = |to: SocketAddr| async move {
            match refuse.contains(&to.port()) {
                true => Err(io::ErrorKind::ConnectionRefused.into()),
                false => Ok(to.port()),
            }
        };
        let connect = || block(addresses.connect(Duration::from_secs(1), open)).unwrap();
        (0..connections).filter_map(|_| connect().ok()).collect()
    }

    #[test]
    fn addresses_take_turns_and_one_that_refuses_is_passed_over() {
        let all = of(3);
        assert_eq!(reached(&all, 6, &[]), [1, 2, 3, 1, 2, 3]);
        // Its turn goes to the next one.
        assert_eq!(reached(&all, 4, &[1]), [2, 2, 3, 2]);
        assert!(reached(&all, 3, &[1, 2, 3]).is_empty());
        // All failed: whoever is there again is found at once.
        assert_eq!(reached(&all, 1, &[1, 3]), [2]);
    }

    #[test]
    fn one_that_is_silent_leaves_time_for_the_others() {
        let all = of(2);
        let open = |to: SocketAddr| async move {
            match to.port() {
                1 => std::future::pending().await,
                port => Ok(port),
            }
        };
        let begun = Instant::now();
        let first = block(all.connect(Duration::from_millis(400), open))
            .unwrap()
            .unwrap();
        let took = begun.elapsed();
        assert_eq!(first, 2);
        assert!(took >= Duration::from_millis(200), "{took:?}");
        // Then it is passed over, and nobody waits for it.
        let order = all.turn(Instant::now());
        assert_eq!(order.iter().map(SocketAddr::port).collect::<Vec<_>>(), [2, 1]);
    }

    #[test]
    fn what_is_known_of_an_address_stays_with_it_and_its_time_doubles() {
        let all = of(3);
        for _ in 0..3 {
            all.failed(addresses(2)[1]);
        }
        let left = || {
            let list = all.list.borrow();
            let address = list.iter().find(|address| address.to.port() == 2).unwrap();
            address.passed_over_until.unwrap() - Instant::now()
        };
        let eight_hundred = Duration::from_millis(800);
        assert!(
            left() <= eight_hundred && left() > eight_hundred / 2,
            "{:?}",
            left()
        );
        all.set(&addresses(2));
        assert_eq!(all.list.borrow()[1].failures, 3);
        all.connected(addresses(2)[1]);
        assert_eq!(all.list.borrow()[1].failures, 0);
    }
}
