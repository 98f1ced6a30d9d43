//! What Sections 4 to 6 conclude, each with the margin by which it holds.

use super::cells::{Cell, percent_more};
use super::paper::{At, DENSITIES};
use headroom_physics::{ServingKind, StudiedService};

use ServingKind::{Arm, Atom, Xeon};
use StudiedService::{Apache, Memcached};
use Test::{Each, One};

/// From where on a resource counts as full, and how far apart throughputs are that count as nearly the same, percent.
const FULL: f64 = 95.0;
const NEAR: f64 = 5.0;
/// The share of the Xeon's throughput from where on another is near it.
const CLOSE: f64 = 0.75;
/// The processor use at which the driver's one core of four counts as busy.
const DRIVER: f64 = 24.0;
/// What uses that are the same spread by from run to run, points.
pub const SPREAD: f64 = 0.1;

/// What conclusions are tested on: the paper's tables, ours, or a null model's.
pub struct Tables<'a> {
    /// Throughput per power of all 72 cells, in the order of [`At::all`].
    pub efficiency: Vec<f64>,
    /// Their throughput.
    pub kb_per_s: Vec<f64>,
    /// The cells, for what resources are in use at 100 %.
    pub cells: &'a [Cell],
}

/// How a conclusion is tested: the least of the differences that it says are there.
#[derive(Clone, Copy)]
pub enum Test {
    /// In one.
    One(fn(&Tables) -> f64),
    /// Of each machine; the least margin is that of the conclusion.
    Each(fn(&Tables, ServingKind) -> f64),
}

/// A conclusion.
#[derive(Clone, Copy)]
pub struct Claim {
    /// Where the paper has it.
    pub section: &'static str,
    /// What it says.
    pub says: &'static str,
    /// Whether Tables 1 and 2 can say it; of throughput and resources the paper has plots alone.
    pub in_tables: bool,
    /// Whether it is of density 100 % alone, on which the models are calibrated.
    pub of_full: bool,
    /// The unit of its margin.
    pub unit: &'static str,
    /// Its test.
    pub test: Test,
    /// By how much its margin may be below 0 and it holds: what figures that are the same spread by.
    pub spread: f64,
    /// What is to be known of it; of one that is tested on each machine only where it fails.
    pub remark: &'static str,
}

impl Tables<'_> {
    fn at(&self, kind: ServingKind, service: StudiedService, size: usize, density: usize) -> f64 {
        self.efficiency[index(kind, service, size, density)]
    }

    /// By how much a machine is ahead of the best of the others.
    fn ahead(&self, kind: ServingKind, service: StudiedService, size: usize, density: usize) -> f64 {
        let others = ServingKind::ALL.into_iter().filter(|other| *other != kind);
        least(others.map(|other| {
            let own = self.at(kind, service, size, density);
            percent_more(own, self.at(other, service, size, density))
        }))
    }

    /// By how much the best of Atom and Arm is ahead of the Xeon.
    fn small_ahead(&self, service: StudiedService, size: usize, density: usize) -> f64 {
        let best = self
            .at(Atom, service, size, density)
            .max(self.at(Arm, service, size, density));
        percent_more(best, self.at(Xeon, service, size, density))
    }

    fn always_ahead(&self, kind: ServingKind, service: StudiedService, size: usize) -> f64 {
        every_density(|density| self.ahead(kind, service, size, density))
    }

    fn always_more(&self, kind: ServingKind, than: ServingKind, service: StudiedService, size: usize) -> f64 {
        every_density(|density| {
            percent_more(
                self.at(kind, service, size, density),
                self.at(than, service, size, density),
            )
        })
    }

    fn throughput(&self, kind: ServingKind, service: StudiedService, size: usize, density: usize) -> f64 {
        self.kb_per_s[index(kind, service, size, density)]
    }

    /// A machine's throughput over the Xeon's.
    fn share_of_xeon(&self, kind: ServingKind, service: StudiedService, size: usize, density: usize) -> f64 {
        self.throughput(kind, service, size, density) / self.throughput(Xeon, service, size, density)
    }

    /// How much nearer than [`NEAR`] the throughputs of two machines are.
    fn near(&self, kinds: [ServingKind; 2], service: StudiedService, size: usize, density: usize) -> f64 {
        let [one, other] = kinds.map(|kind| self.throughput(kind, service, size, density));
        NEAR - percent_more(one, other).abs()
    }

    /// By how much the Xeon's throughput is ahead of the best of the others, with Apache at every density.
    fn xeon_is_fastest(&self, size: usize) -> f64 {
        every_density(|at| {
            let xeon = self.throughput(Xeon, Apache, size, at);
            let others = [Atom, Arm].into_iter();
            least(others.map(|kind| percent_more(xeon, self.throughput(kind, Apache, size, at))))
        })
    }

    /// A cell at 100 %.
    fn full(&self, kind: ServingKind, service: StudiedService, size: usize) -> &Cell {
        &self.cells[index(kind, service, size, 0)]
    }

    fn cpu_falls(&self, kind: ServingKind, service: StudiedService) -> f64 {
        let cpu = |size| self.full(kind, service, size).cpu_percent;
        least((1..3).map(|size| cpu(size - 1) - cpu(size)))
    }

    fn network_grows(&self, kind: ServingKind, service: StudiedService) -> f64 {
        let network = |size| self.full(kind, service, size).network_percent;
        least((1..3).map(|size| network(size) - network(size - 1)))
    }
}

fn index(kind: ServingKind, service: StudiedService, size: usize, density: usize) -> usize {
    let at = At {
        kind,
        service,
        size,
        density,
    };
    at.index()
}

/// The least of some margins.
pub fn least(margins: impl Iterator<Item = f64>) -> f64 {
    margins.fold(f64::INFINITY, f64::min)
}

fn every_density(margin: impl Fn(usize) -> f64) -> f64 {
    least((0..DENSITIES.len()).map(margin))
}

/// Of throughput per power, which the tables have.
const fn of_tables(section: &'static str, says: &'static str, test: fn(&Tables) -> f64) -> Claim {
    Claim {
        section,
        says,
        in_tables: true,
        of_full: false,
        unit: "%",
        test: One(test),
        spread: 0.0,
        remark: "",
    }
}

/// Of throughput and resources.
const fn of_plots(section: &'static str, says: &'static str, test: Test) -> Claim {
    Claim {
        section,
        says,
        in_tables: false,
        of_full: false,
        unit: "%",
        test,
        spread: 0.0,
        remark: "",
    }
}

impl Claim {
    const fn at_full(self) -> Self {
        Self {
            of_full: true,
            ..self
        }
    }

    const fn in_points(self) -> Self {
        let spread = match self.test {
            Each(_) => SPREAD,
            One(_) => 0.0,
        };
        Self {
            unit: "points",
            spread,
            ..self
        }
    }

    const fn remark(self, remark: &'static str) -> Self {
        Self { remark, ..self }
    }
}

/// All of them, in the paper's order.
pub const CLAIMS: [Claim; 31] = [
    of_tables(
        "4.1",
        "Apache, 1 KB: the Xeon has the most throughput per watt, at every density",
        |tables| tables.always_ahead(Xeon, Apache, 0),
    ),
    of_tables(
        "4.1",
        "Apache, 1 KB: with falling density the Xeon's throughput per watt falls below the Arm's at that density",
        |tables| -tables.always_more(Xeon, Arm, Apache, 0),
    )
    .remark("the text and Table 1 disagree: the table has 263.07 of the Xeon and 188.30 of the Arm at 25 %"),
    of_tables(
        "4.1",
        "Apache, 1 KB: with falling density the Xeon's throughput per watt falls below the Arm's at 100 %",
        |tables| percent_more(tables.at(Arm, Apache, 0, 0), tables.at(Xeon, Apache, 0, 3)),
    )
    .remark("another reading of the same sentence"),
    of_tables(
        "4.1",
        "Apache, 1 KB: the Atom has less throughput per watt than the Arm",
        |tables| tables.always_more(Arm, Atom, Apache, 0),
    ),
    of_tables(
        "4.1",
        "Apache, 10 and 100 KB: the Arm has the most throughput per watt, at every density",
        |tables| least((1..3).map(|size| tables.always_ahead(Arm, Apache, size))),
    ),
    of_tables(
        "4.1",
        "Apache, 100 KB: the Atom has more throughput per watt than the Xeon",
        |tables| tables.always_more(Atom, Xeon, Apache, 2),
    ),
    of_tables(
        "4.1",
        "throughput per watt falls with density: every machine, service and size",
        |tables| {
            let lower = At::all().filter(|at| at.density > 0);
            least(lower.map(|at| {
                let above = tables.at(at.kind, at.service, at.size, at.density - 1);
                percent_more(above, tables.efficiency[at.index()])
            }))
        },
    ),
    of_plots(
        "4.1",
        "Apache, 1 KB: the Xeon's throughput is the highest, at every density",
        One(|tables| tables.xeon_is_fastest(0)),
    ),
    of_plots(
        "4.1",
        "Apache, 1 KB: the Atom's throughput is no other than the Arm's, at 100 %",
        One(|tables| tables.near([Atom, Arm], Apache, 0, 0)),
    )
    .at_full()
    .in_points()
    .remark("Table 1 fixes both per watt, and the Arm's watts at 1 KB are not in the text"),
    of_plots(
        "4.1",
        "Apache, 10 KB: the Xeon's throughput is the highest, at every density",
        One(|tables| tables.xeon_is_fastest(1)),
    ),
    of_plots(
        "4.1",
        "Apache, 10 KB: the throughputs of Atom and Arm are nearer to the Xeon's than at 1 KB, at 100 %",
        One(|tables| {
            least([Atom, Arm].into_iter().map(|kind| {
                let share = |size| tables.share_of_xeon(kind, Apache, size, 0);
                percent_more(share(1), share(0))
            }))
        }),
    )
    .at_full(),
    of_plots(
        "4.1",
        "Apache, 100 KB: Xeon and Atom have nearly the same throughput, at every density",
        One(|tables| every_density(|at| tables.near([Atom, Xeon], Apache, 2, at))),
    )
    .in_points(),
    of_plots(
        "4.2",
        "Apache, 100 %: the smaller the answer, the higher the CPU use",
        Each(|tables, kind| tables.cpu_falls(kind, Apache)),
    )
    .at_full()
    .in_points(),
    of_plots(
        "4.2",
        "Apache, 100 %: the larger the answer, the higher the network use",
        Each(|tables, kind| tables.network_grows(kind, Apache)),
    )
    .at_full()
    .in_points(),
    of_plots(
        "4.2",
        "Apache, 1 KB: the Xeon is bound by its processor",
        One(|tables| tables.full(Xeon, Apache, 0).cpu_percent - FULL),
    )
    .at_full()
    .in_points()
    .remark("the text names no machine; the Arm is bound by its driver, a core of its own"),
    of_tables(
        "5.1",
        "Memcached, 1 KB: the Atom has the most throughput per watt, at 100 %",
        |tables| tables.ahead(Atom, Memcached, 0, 0),
    )
    .at_full(),
    of_tables(
        "5.1",
        "Memcached, 1 KB: the Xeon has less throughput per watt than the Arm, at every density",
        |tables| tables.always_more(Arm, Xeon, Memcached, 0),
    ),
    of_tables(
        "5.1",
        "Memcached, 10 and 999 KB: the Arm has the most throughput per watt, at every density",
        |tables| least((1..3).map(|size| tables.always_ahead(Arm, Memcached, size))),
    ),
    of_tables(
        "5.1",
        "Memcached: the throughput per watt of Xeon and Atom grows with the size, at 100 %",
        |tables| {
            let pairs = [Xeon, Atom].into_iter().flat_map(|kind| (1..3).map(move |size| (kind, size)));
            least(pairs.map(|(kind, size)| {
                percent_more(
                    tables.at(kind, Memcached, size, 0),
                    tables.at(kind, Memcached, size - 1, 0),
                )
            }))
        },
    )
    .at_full(),
    of_tables(
        "5.1",
        "Memcached: the Arm's is less at 999 KB than at 10 KB, at 100 %",
        |tables| percent_more(tables.at(Arm, Memcached, 1, 0), tables.at(Arm, Memcached, 2, 0)),
    )
    .at_full()
    .remark("in the tables not at 75, 50 and 25 %, where answers that are outstanding keep the machine busy"),
    of_plots(
        "5.1",
        "Memcached: the Atom's throughput is near the Xeon's, at every size and density",
        One(|tables| {
            least((0..3).map(|size| {
                every_density(|at| percent_more(tables.share_of_xeon(Atom, Memcached, size, at), CLOSE))
            }))
        }),
    )
    .remark("near: at least three quarters, for so the text calls 88.3 beside 115.2 MB/s"),
    of_plots(
        "5.1",
        "Memcached, 1 KB: the Atom's throughput is much nearer to the Xeon's than with Apache",
        One(|tables| {
            let share = |service| tables.share_of_xeon(Atom, service, 0, 0);
            percent_more(share(Memcached), 2.0 * share(Apache))
        }),
    )
    .at_full()
    .remark("much nearer: at least twice the share"),
    of_plots(
        "5.1",
        "Memcached: the Arm's throughput is lower at 999 KB than at 10 KB",
        One(|tables| {
            let of = |size| tables.throughput(Arm, Memcached, size, 0);
            percent_more(of(1), of(2))
        }),
    )
    .at_full()
    .remark("a cause in the model: long answers cost the driver more"),
    of_plots(
        "5.2",
        "Memcached, 10 KB: Xeon and Atom have nearly the same throughput, for the network is full",
        One(|tables| {
            let full = tables.full(Atom, Memcached, 1).network_percent - FULL;
            tables.near([Atom, Xeon], Memcached, 1, 0).min(full)
        }),
    )
    .at_full()
    .in_points(),
    of_plots(
        "5.2",
        "Memcached, 100 %: the smaller the answer, the higher the CPU use",
        Each(|tables, kind| tables.cpu_falls(kind, Memcached)),
    )
    .at_full()
    .in_points(),
    of_plots(
        "5.2",
        "Memcached, 100 %: the larger the answer, the higher the network use",
        Each(|tables, kind| tables.network_grows(kind, Memcached)),
    )
    .at_full()
    .in_points()
    .remark("by the text its driver serves less at 999 KB than at 10"),
    of_plots(
        "5.2",
        "Memcached: CPU use is not as high as with Apache, at 1 and 10 KB",
        Each(|tables, kind| {
            least((0..2).map(|size| {
                let cpu = |service| tables.full(kind, service, size).cpu_percent;
                cpu(Apache) - cpu(Memcached)
            }))
        }),
    )
    .at_full()
    .in_points()
    .remark("by the text's 24.0 MB/s and Table 2 the Arm draws 9.2 W at 1 KB, and at most 7.4 W with Apache"),
    of_plots(
        "5.2",
        "Memcached: every case is bound by the network (the Arm by its driver)",
        Each(|tables, kind| {
            least((0..3).map(|size| {
                let one = tables.full(kind, Memcached, size);
                let network = one.network_percent - one.cpu_percent;
                network.max(one.driver_percent - DRIVER)
            }))
        }),
    )
    .at_full()
    .in_points()
    .remark("by the text the Atom serves 88.3 MB/s at 1 KB where its network carries 110.4"),
    of_tables(
        "6",
        "Apache: small answers for the Xeon, large ones for Arm or Atom, at 100 %",
        |tables| {
            let large = least((1..3).map(|size| tables.small_ahead(Apache, size, 0)));
            tables.ahead(Xeon, Apache, 0, 0).min(large)
        },
    )
    .at_full(),
    of_tables(
        "6",
        "Memcached: Arm or Atom for every size and density",
        |tables| {
            least((0..3).map(|size| every_density(|at| tables.small_ahead(Memcached, size, at))))
        },
    ),
    of_tables(
        "6",
        "the Arm has more throughput per watt than the Xeon with either service, but for Apache at 1 KB",
        |tables| {
            let memcached = least((0..3).map(|size| tables.always_more(Arm, Xeon, Memcached, size)));
            least((1..3).map(|size| tables.always_more(Arm, Xeon, Apache, size))).min(memcached)
        },
    ),
];
