//! Places for handshakes: who holds them without finishing gives them up.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// The handshakes that have begun and not ended.
#[derive(Clone, Debug)]
pub(super) struct Handshakes(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    places: usize,
    of_one_address: usize,
    begun: Mutex<Begun>,
}

#[derive(Debug, Default)]
struct Begun {
    next: u64,
    /// Oldest first.
    waiting: Vec<Waiting>,
    /// Addresses of established operators, one entry for each connection.
    established: Vec<IpAddr>,
}

#[derive(Debug)]
struct Waiting {
    number: u64,
    network: IpAddr,
    /// Dropped, it tells the handshake to give up.
    _place: oneshot::Sender<()>,
}

/// A place for one handshake, free again when it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    shared: Arc<Shared>,
    number: u64,
    taken: oneshot::Receiver<()>,
}

/// An operator's connection, from whose address handshakes are given up last.
#[derive(Debug)]
pub(super) struct Established {
    shared: Arc<Shared>,
    network: IpAddr,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Begun> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What one host can choose freely is one address: the half of an IPv6 address that a network gives its hosts.
pub(super) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let prefix = u128::from(address) >> 64 << 64;
            IpAddr::V6(Ipv6Addr::from(prefix))
        }
        address => address,
    }
}

impl Handshakes {
    /// So many places, of which one address has a quarter at most.
    pub(super) fn new(places: usize) -> Self {
        let places = places.max(1);
        Self(Arc::new(Shared {
            places,
            of_one_address: places.div_ceil(4),
            begun: Mutex::default(),
        }))
    }

    /// A place for a handshake. Where there is none the oldest handshake gives its own up: of the same address where that
    /// has all it may have, else of the address that has the most, those of established operators last.
    pub(super) fn begin(&self, address: IpAddr) -> Place {
        let network = network(address);
        let mut begun = self.0.lock();
        let of = |begun: &Begun, network: IpAddr| {
            begun.waiting.iter().filter(|one| one.network == network).count()
        };
        let gives_up = if of(&begun, network) >= self.0.of_one_address {
            Some(network)
        } else if begun.waiting.len() >= self.0.places {
            let networks = begun.waiting.iter().map(|one| one.network);
            // Of equals the last is taken, which is the one with the oldest handshake.
            networks
                .rev()
                .max_by_key(|network| (!begun.established.contains(network), of(&begun, *network)))
        } else {
            None
        };
        if let Some(at) = begun.waiting.iter().position(|one| Some(one.network) == gives_up) {
            begun.waiting.remove(at);
        }
        let (place, taken) = oneshot::channel();
        let number = begun.next;
        begun.next += 1;
        begun.waiting.push(Waiting {
            number,
            network,
            _place: place,
        });
        Place {
            shared: Arc::clone(&self.0),
            number,
            taken,
        }
    }

    /// Notes an operator's connection.
    pub(super) fn establish(&self, address: IpAddr) -> Established {
        let network = network(address);
        self.0.lock().established.push(network);
        Established {
            shared: Arc::clone(&self.0),
            network,
        }
    }
}

impl Place {
    /// Ready when another handshake has got the place.
    pub(super) async fn taken(&mut self) {
        // Nothing is ever sent: the end of the other side is the message.
        let _ = (&mut self.taken).await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let number = self.number;
        self.shared.lock().waiting.retain(|one| one.number != number);
    }
}

impl Drop for Established {
    fn drop(&mut self) {
        let mut begun = self.shared.lock();
        if let Some(at) = begun.established.iter().position(|one| *one == self.network) {
            begun.established.swap_remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn host(number: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, number])
    }

    fn is_taken(place: &mut Place) -> bool {
        place.taken.try_recv() == Err(oneshot::error::TryRecvError::Closed)
    }

    #[test]
    fn one_address_has_a_quarter_and_its_own_oldest_gives_up() {
        let handshakes = Handshakes::new(16);
        let mut idle: Vec<Place> = (0..16).map(|_| handshakes.begin(host(1))).collect();
        let taken: Vec<bool> = idle.iter_mut().map(is_taken).collect();
        assert_eq!(taken, [[true; 12].as_slice(), &[false; 4]].concat());
        let mut other = handshakes.begin(host(2));
        assert!(
            !is_taken(&mut other) && !is_taken(&mut idle[12]),
            "there is room for another address"
        );
    }

    #[test]
    fn when_all_are_taken_the_address_with_the_most_gives_up_and_operators_last() {
        let handshakes = Handshakes::new(4);
        let _operator = handshakes.establish(host(1));
        let mut of_operator = handshakes.begin(host(1));
        let mut others: Vec<Place> = (2..5).map(|number| handshakes.begin(host(number))).collect();
        let _more: Vec<Place> = (5..8).map(|number| handshakes.begin(host(number))).collect();
        assert!(!is_taken(&mut of_operator));
        assert!(others.iter_mut().all(is_taken));
    }

    #[test]
    fn hosts_of_one_ipv6_network_are_one_address_and_mapped_addresses_are_what_they_map() {
        let of = |text: &str| network(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:2"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:10.0.0.1"), host(1));
    }

    proptest! {
        #[test]
        fn never_more_than_the_places_and_the_newest_has_always_one(
            places in 1..20usize, hosts in proptest::collection::vec(0..6u8, 1..80), ends in any::<u64>(),
        ) {
            let handshakes = Handshakes::new(places);
            let mut held = Vec::new();
            for (number, of) in hosts.into_iter().enumerate() {
                held.push(handshakes.begin(host(of)));
                let newest = held.last_mut().unwrap();
                prop_assert!(!is_taken(newest));
                if ends >> (number % 64) & 1 == 1 {
                    held.swap_remove(0);
                }
                let begun = handshakes.0.lock();
                prop_assert!(begun.waiting.len() <= places);
                for one in &begun.waiting {
                    let of_it = begun.waiting.iter().filter(|other| other.network == one.network).count();
                    prop_assert!(of_it <= places.div_ceil(4));
                }
            }
            drop(held);
            prop_assert!(handshakes.0.lock().waiting.is_empty());
        }
    }
}
