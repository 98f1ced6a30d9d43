//! The three machines that Yamada, Kawai and Oshima measured ("power characteristics of servers by request", Sections 3 to 5), as
//! [`ServingMachine`]s that serve as theirs did.
//!
//! Calibrated on what the paper has of density 100 % alone: the watts of Section 3.1, the 100 % columns of Tables 1 and 2, and the
//! throughputs in the text of Sections 4.1 and 5.1, where 1 MB is 1024 KB (with it 50.1 MB/s of Table 1's 668.74 KB/s/W are the 76 W
//! that the text has). What other densities come to is predicted. Where each figure is from:
//!
//! | figure | Xeon | Atom | Arm |
//! |---|---|---|---|
//! | idle watts | paper | paper | paper |
//! | link watts: iperf less idle | paper | paper | paper: `ksoftirqd`'s core is among them |
//! | busy watts | fitted: 39.1, not the infinite loop's 72.9 | fitted: 6.0, not the infinite loop's 2.9 | paper: the infinite loop, three of its four cores |
//! | link rate | fitted to 110.4 MB/s of content | the same | fitted: what one core's `ksoftirqd` carries |
//! | processor time by request and byte | fitted | fitted | fitted |
//! | link's head of a request | none | none | fitted: what its packets cost the driver |
//! | long answers | none | none | fitted to 999 KB |
//! | off, boot, shutdown | free | free | free |
//!
//! **Busy watts.** An infinite loop is not the service at 100 % CPU: on the Xeon it draws 109.6 W where Apache with all cores busy draws
//! 76.7 W, on the Atom 27.1 W where Table 1 and 40 MB/s come to 33 W. So the watts of a busy core are those of the service. On
//! the Arm the cores are not what is full (next paragraph), and the loop's watts by core agree with both tables.
//!
//! **The Arm's driver.** Its network card hangs on USB, and its interrupts are one core's work (Section 3.1: `ksoftirqd`). So its link is
//! modelled as what that core carries, and three cores are left for the service. Its throughputs are then those of one resource:
//! a request without keep-alive (ApacheBench) costs the driver as much as 10.6 KB of content, one of memcached's as 0.9 KB, which gives
//! 4, 22 and 37 MB/s of Apache's three sizes (the text: as the Atom, 20, near 40) and 24 and 41 at 1 and 10 KB of memcached's (24.0, 40.3).
//! That 999 KB are served slower than 10 KB is to Section 5.1 the driver's work for large transfers: here what lies beyond 64 KB of an
//! answer costs it 27 % more.

use super::{RequestCost, ServiceCost, ServingLoad, ServingMachine};
use crate::server::ServerFigures;
use headroom_units::{PerSecond, Ratio, Seconds, Watts};
use serde::{Deserialize, Serialize};

/// A gigabit a second, bytes: the wire of all three (Section 3.1).
pub const WIRE_BYTES_PER_S: f64 = 125e6;

/// Bytes on the wire for each of the content: fitted, with it a gigabit carries the 110.4 MB/s of Sections 4.1 and 5.1.
const WIRE_PER_BYTE: f64 = 1.0793;

/// A machine of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ServingKind {
    /// Intel Xeon E3-1240 v3, 3.4 GHz, four cores of two threads.
    Xeon,
    /// Intel Atom S1260, 2.0 GHz, two cores of two threads.
    Atom,
    /// Exynos 5 Octa, four Cortex-A15 of 1.6 GHz (its four A7 are not counted), a network card on USB.
    Arm,
}

/// A service of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StudiedService {
    /// Apache, static files, a connection for each request (ApacheBench without keep-alive).
    Apache,
    /// Memcached, `get` over connections that stay.
    Memcached,
}

/// What a request takes of a machine of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StudiedCost {
    /// Of every request.
    pub base: ServiceCost,
    /// What a long answer takes beside it; `None` where it takes no more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub long: Option<LongAnswers>,
}

/// What long answers take of a link beside what their length does: the driver that falls behind under large transfers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LongAnswers {
    /// From so many bytes of content on.
    pub from_bytes: f64,
    /// Bytes over the link beside the others, for each byte beyond that.
    pub bytes_per_byte: f64,
}

impl StudiedCost {
    /// What a request for so many bytes takes.
    pub fn of(&self, size_bytes: f64) -> RequestCost {
        let cost = self.base.of(size_bytes);
        let beyond = |long: LongAnswers| long.bytes_per_byte * (size_bytes - long.from_bytes).max(0.0);
        RequestCost {
            bytes: cost.bytes + self.long.map_or(0.0, beyond),
            ..cost
        }
    }
}

impl StudiedService {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Apache, Self::Memcached];

    /// As arguments and tables have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Apache => "apache",
            Self::Memcached => "memcached",
        }
    }

    /// The sizes that the paper asks it for, in units of 1024 bytes (Section 3.2).
    pub const fn sizes_kb(self) -> [u32; 3] {
        match self {
            Self::Apache => [1, 10, 100],
            Self::Memcached => [1, 10, 999],
        }
    }
}

impl ServingKind {
    /// All three, in the order of the paper's tables.
    pub const ALL: [Self; 3] = [Self::Xeon, Self::Atom, Self::Arm];

    /// As arguments and tables have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Xeon => "xeon",
            Self::Atom => "atom",
            Self::Arm => "arm",
        }
    }

    /// The machine. What switching it takes is not in the paper: free figures of such a machine.
    pub fn machine(self) -> ServingMachine {
        let (cores, link_bytes_per_s, [idle, busy, link], [off, booting, boot_s, down, down_s]) = match self {
            Self::Xeon => (
                8,
                WIRE_BYTES_PER_S,
                [36.7, 39.1, 39.4 - 36.7],
                [3.0, 70.0, 60.0, 45.0, 10.0],
            ),
            Self::Atom => (
                4,
                WIRE_BYTES_PER_S,
                [24.2, 6.0, 25.0 - 24.2],
                [2.0, 27.1, 60.0, 25.0, 10.0],
            ),
            Self::Arm => (
                3,
                44.58 * 1024.0 * 1024.0 * WIRE_PER_BYTE,
                [3.7, (17.3 - 3.7) * 3.0 / 4.0, 6.0 - 3.7],
                [0.5, 7.0, 30.0, 4.0, 5.0],
            ),
        };
        ServingMachine {
            name: self.name().to_owned(),
            cores,
            link_bytes_per_s,
            idle: Watts::new(idle),
            busy: Watts::new(busy),
            link: Watts::new(link),
            server: ServerFigures {
                off: Watts::new(off),
                booting: Watts::new(booting),
                boot: Seconds::new(boot_s),
                shutting_down: Watts::new(down),
                shutdown: Seconds::new(down_s),
            },
        }
    }

    /// What a request of a service takes of it.
    pub fn cost(self, service: StudiedService) -> StudiedCost {
        use StudiedService::{Apache, Memcached};
        // Microseconds of a core for a request and for each KB, and KB of content that the link's head of a request is worth.
        let (request_us, kb_us, head_kb) = match (self, service) {
            (Self::Xeon, Apache) => (152.5, 3.21, 0.0),
            (Self::Xeon, Memcached) => (13.75, 2.31, 0.0),
            (Self::Atom, Apache) => (834.0, 19.7, 0.0),
            (Self::Atom, Memcached) => (33.5, 10.4, 0.0),
            (Self::Arm, Apache) => (73.9, 6.3, 10.6),
            // What memcached copies is ksoftirqd's work here, which the link has.
            (Self::Arm, Memcached) => (37.4, 0.0, 0.86),
        };
        let long = LongAnswers {
            from_bytes: 64.0 * 1024.0,
            bytes_per_byte: 0.268 * WIRE_PER_BYTE,
        };
        StudiedCost {
            base: ServiceCost {
                per_request: Seconds::from_micros(request_us),
                per_byte: Seconds::from_micros(kb_us / 1024.0),
                head_bytes: head_kb * 1024.0 * WIRE_PER_BYTE,
                bytes_per_byte: WIRE_PER_BYTE,
            },
            long: (self == Self::Arm).then_some(long),
        }
    }

    /// The share of all its cores that is busy under a load, as its kernel would say: on the Arm with the core that the driver keeps.
    pub fn cpu_use(self, load: ServingLoad) -> Ratio {
        match self {
            Self::Arm => Ratio::new((3.0 * load.cpu.get() + load.link.get()) / 4.0),
            Self::Xeon | Self::Atom => load.cpu,
        }
    }

    /// The share of all its cores that its network card's driver takes (`ksoftirqd`); zero where the paper has none.
    pub fn driver_use(self, load: ServingLoad) -> Ratio {
        match self {
            Self::Arm => Ratio::new(load.link.get() / 4.0),
            Self::Xeon | Self::Atom => Ratio::ZERO,
        }
    }

    /// The share of a gigabit that answers of a size fill at a rate.
    pub fn network_use(size_bytes: f64, rate: PerSecond) -> Ratio {
        Ratio::new(rate.get() * size_bytes * WIRE_PER_BYTE / WIRE_BYTES_PER_S)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Line = (ServingKind, StudiedService, [f64; 3], [Option<f64>; 3]);

    /// Tables 1 and 2 at density 100 %, KB/s/W, and the text's MB/s of a cell where it has one.
    const FULL: [Line; 6] = {
        use ServingKind::{Arm, Atom, Xeon};
        use StudiedService::{Apache, Memcached};
        [
            (
                Xeon,
                Apache,
                [668.74, 2258.29, 2711.17],
                [Some(50.1), Some(110.5), None],
            ),
            (Atom, Apache, [156.43, 1230.70, 3880.46], [None, Some(40.0), None]),
            (
                Arm,
                Apache,
                [563.52, 3073.64, 5567.51],
                [None, Some(20.0), Some(39.0)],
            ),
            (
                Xeon,
                Memcached,
                [2342.19, 2730.09, 2779.01],
                [Some(115.2), Some(110.4), Some(110.4)],
            ),
            (
                Atom,
                Memcached,
                [2967.67, 4132.12, 4228.29],
                [Some(88.3), Some(110.4), Some(110.4)],
            ),
            (
                Arm,
                Memcached,
                [2678.50, 6545.94, 6003.86],
                [Some(24.0), Some(40.3), None],
            ),
        ]
    };

    #[test]
    fn at_full_density_the_tables_are_met_to_4_percent_and_the_text_to_9() {
        for (kind, service, tables, texts) in FULL {
            let machine = kind.machine();
            machine.check().unwrap();
            for ((size_kb, table), text) in service.sizes_kb().into_iter().zip(tables).zip(texts) {
                let cost = kind.cost(service).of(f64::from(size_kb) * 1024.0);
                let rate = machine.capacity(cost);
                let kb_per_s = rate.get() * f64::from(size_kb);
                let efficiency = kb_per_s / machine.power(machine.load([(cost, rate)])).get();
                let error = efficiency / table - 1.0;
                assert!(
                    error.abs() < 0.04,
                    "{kind:?} {service:?} {size_kb} KB: {efficiency} {table}"
                );
                if let Some(text) = text {
                    let error = kb_per_s / 1024.0 / text - 1.0;
                    assert!(
                        error.abs() < 0.09,
                        "{kind:?} {service:?} {size_kb} KB: {kb_per_s} {text}"
                    );
                }
            }
        }
    }

    #[test]
    fn the_arm_is_bound_by_its_driver_and_the_others_by_cores_or_wire() {
        let bound = |kind: ServingKind, service, kb: f64| {
            let cost = kind.cost(service).of(kb * 1024.0);
            let machine = kind.machine();
            machine.load([(cost, machine.capacity(cost))])
        };
        let small = bound(ServingKind::Arm, StudiedService::Apache, 1.0);
        assert!(!small.is_bound_by_cpu());
        assert!((ServingKind::Arm.driver_use(small).get() - 0.25).abs() < 1e-9);
        assert!(ServingKind::Arm.cpu_use(small) > Ratio::new(0.25));
        assert!(bound(ServingKind::Xeon, StudiedService::Apache, 1.0).is_bound_by_cpu());
        let large = bound(ServingKind::Atom, StudiedService::Memcached, 999.0);
        assert!(!large.is_bound_by_cpu());
        assert_eq!(ServingKind::Atom.driver_use(large), Ratio::ZERO);
    }

    #[test]
    fn only_what_is_beyond_the_bound_of_a_long_answer_costs_more() {
        let cost = ServingKind::Arm.cost(StudiedService::Memcached);
        let long = cost.long.unwrap();
        let at = |size: f64| cost.of(size).bytes - cost.base.of(size).bytes;
        assert_eq!((at(1024.0), at(long.from_bytes)), (0.0, 0.0));
        assert!((at(long.from_bytes + 1000.0) - 1000.0 * long.bytes_per_byte).abs() < 1e-6);
    }
}
