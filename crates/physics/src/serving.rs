//! What serving requests takes of a machine: processor time, the network link, and watts for both.
//!
//! A request takes processor time and passes the link; with both resources the capacity of a machine for any mix of requests
//! follows (the utilisation law: what each request takes, times how many come, adds up), and with the watts at idle, of busy
//! cores and of a busy link what it draws. It is the model behind "small requests are bound by the processor, large ones by
//! the network" (Yamada, Kawai and Oshima, power characteristics of servers by request, Sections 4 to 6).
//!
//! ```
//! use headroom_physics::serving::{RequestCost, ServingMachine};
//! use headroom_physics::ServerFigures;
//! use headroom_units::{PerSecond, Seconds, Watts};
//!
//! let machine = ServingMachine {
//!     name: "small".to_owned(),
//!     cores: 2,
//!     link_bytes_per_s: 125e6,
//!     idle: Watts::new(24.0),
//!     busy: Watts::new(3.0),
//!     link: Watts::new(1.0),
//!     server: ServerFigures::default(),
//! };
//! let small = RequestCost { cpu: Seconds::new(200e-6), bytes: 1_300.0 };
//! let large = RequestCost { cpu: Seconds::new(400e-6), bytes: 1e6 };
//! assert_eq!(machine.capacity(small), PerSecond::new(10_000.0));
//! assert_eq!(machine.capacity(large), PerSecond::new(125.0));
//! let half = machine.load([(small, PerSecond::new(5_000.0))]);
//! assert!(half.is_bound_by_cpu());
//! assert_eq!(machine.power(half), Watts::new(24.0 + 1.5 + 0.052));
//! ```

mod kinds;

pub use kinds::{LongAnswers, ServingKind, StudiedCost, StudiedService, WIRE_BYTES_PER_S};

use crate::machine::{FigureError, MAX_CORES, check};
use crate::server::ServerFigures;
use headroom_units::{PerSecond, Ratio, Seconds, Watts};
use serde::{Deserialize, Serialize};

/// A machine that serves requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServingMachine {
    /// Its kind.
    pub name: String,
    /// Cores that serve at once, as the service sees them (hardware threads).
    pub cores: usize,
    /// What its link carries in one direction, bytes a second.
    pub link_bytes_per_s: f64,
    /// Drawn while it serves nothing.
    pub idle: Watts,
    /// What all cores busy with the service add to it.
    pub busy: Watts,
    /// What a full link adds to it, beside the processor time that the traffic takes.
    pub link: Watts,
    /// What switching it off and on takes.
    pub server: ServerFigures,
}

/// What one request takes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequestCost {
    /// Time of one core, that of interrupts among it.
    pub cpu: Seconds,
    /// Bytes over the link in the direction that carries more.
    pub bytes: f64,
}

/// What a service on a machine takes for a request by the size of its answer.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServiceCost {
    /// Time of one core for a request, whatever its size.
    pub per_request: Seconds,
    /// Time of one core for each byte.
    pub per_byte: Seconds,
    /// Bytes beside the content: heads and frames of a request.
    pub head_bytes: f64,
    /// Bytes over the link for each byte of the content: frames and packet headers, 1 or a little more.
    pub bytes_per_byte: f64,
}

/// How busy the two resources are: 1 is full, more cannot be served.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ServingLoad {
    /// Of the cores.
    pub cpu: Ratio,
    /// Of the link.
    pub link: Ratio,
}

impl ServiceCost {
    /// What a request of so many bytes takes.
    pub fn of(&self, size_bytes: f64) -> RequestCost {
        RequestCost {
            cpu: self.per_request + self.per_byte * size_bytes,
            bytes: self.head_bytes + self.bytes_per_byte * size_bytes,
        }
    }
}

impl ServingMachine {
    /// Checks all figures.
    ///
    /// # Errors
    /// [`FigureError`] with the key of the first that cannot be.
    pub fn check(&self) -> Result<(), FigureError> {
        check(
            "cores",
            self.cores as f64,
            (1..=MAX_CORES).contains(&self.cores),
            "give 1 to 4096 cores",
        )?;
        check(
            "link_bytes_per_s",
            self.link_bytes_per_s,
            self.link_bytes_per_s > 0.0,
            "give a positive number of bytes a second (a gigabit is 125000000)",
        )?;
        for (key, power) in [("idle", self.idle), ("busy", self.busy), ("link", self.link)] {
            check(
                key,
                power.get(),
                (0.0..=1e5).contains(&power.get()),
                "give 0 to 100000 watts",
            )?;
        }
        self.server.check()
    }

    /// How busy it is under these requests, each kind at its rate.
    pub fn load(&self, requests: impl IntoIterator<Item = (RequestCost, PerSecond)>) -> ServingLoad {
        let (mut cpu, mut link) = (0.0, 0.0);
        for (cost, rate) in requests {
            cpu += cost.cpu.get() * rate.get();
            link += cost.bytes * rate.get();
        }
        ServingLoad {
            cpu: Ratio::new(cpu / self.cores as f64),
            link: Ratio::new(link / self.link_bytes_per_s),
        }
    }

    /// The most requests of one kind that it can serve.
    pub fn capacity(&self, cost: RequestCost) -> PerSecond {
        let by_cpu = self.cores as f64 / cost.cpu.get();
        PerSecond::new(by_cpu.min(self.link_bytes_per_s / cost.bytes))
    }

    /// What it draws under a load that it can serve; of more than that as much as under the most.
    pub fn power(&self, load: ServingLoad) -> Watts {
        self.idle + self.busy * load.cpu.get().min(1.0) + self.link * load.link.get().min(1.0)
    }
}

impl ServingLoad {
    /// The busier of the two resources.
    pub fn most(&self) -> Ratio {
        self.cpu.max(self.link)
    }

    /// Whether the cores are the first to be full.
    pub fn is_bound_by_cpu(&self) -> bool {
        self.cpu >= self.link
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn machine() -> ServingMachine {
        ServingMachine {
            name: "test".to_owned(),
            cores: 4,
            link_bytes_per_s: 125e6,
            idle: Watts::new(36.7),
            busy: Watts::new(70.0),
            link: Watts::new(2.0),
            server: ServerFigures::default(),
        }
    }

    #[test]
    fn a_large_request_fills_the_link_and_a_small_one_the_cores() {
        let service = ServiceCost {
            per_request: Seconds::new(80e-6),
            per_byte: Seconds::new(0.2e-9),
            head_bytes: 300.0,
            bytes_per_byte: 1.04,
        };
        let machine = machine();
        let rate = |size: f64| machine.capacity(service.of(size)).get();
        assert!((rate(1024.0) - 4.0 / (80e-6 + 0.2048e-6)).abs() < 1e-6);
        assert!((rate(102_400.0) - 125e6 / (300.0 + 1.04 * 102_400.0)).abs() < 1e-6);
        let full = machine.load([(service.of(1024.0), machine.capacity(service.of(1024.0)))]);
        assert!(full.is_bound_by_cpu() && (full.most().get() - 1.0).abs() < 1e-12);
    }

    #[test]
    fn figures_that_cannot_be_are_refused_by_key() {
        let key = |change: fn(&mut ServingMachine)| {
            let mut bad = machine();
            change(&mut bad);
            bad.check().unwrap_err().key
        };
        assert_eq!(key(|bad| bad.cores = 0), "cores");
        assert_eq!(key(|bad| bad.link_bytes_per_s = 0.0), "link_bytes_per_s");
        assert_eq!(key(|bad| bad.busy = Watts::new(f64::NAN)), "busy");
        machine().check().unwrap();
    }

    proptest! {
        #[test]
        fn at_its_capacity_one_resource_is_full_and_none_is_over(cpu in 1e-6..1e-1f64, bytes in 1.0..1e8f64) {
            let cost = RequestCost { cpu: Seconds::new(cpu), bytes };
            let load = machine().load([(cost, machine().capacity(cost))]);
            prop_assert!((load.most().get() - 1.0).abs() < 1e-9);
            let (idle, most) = (machine().idle.get(), (machine().idle + machine().busy + machine().link).get());
            prop_assert!((idle..=most + 1e-9).contains(&machine().power(load).get()));
        }
    }
}
