//! The conclusions of Sections 4 to 6, each checked: on our cells, and where Tables 1 and 2 can say it, on the paper's own.

use super::cells::Cell;
use super::paper::{At, DENSITIES};
use headroom_physics::{ServingKind, StudiedService};
use serde::Serialize;

use ServingKind::{Arm, Atom, Xeon};
use StudiedService::{Apache, Memcached};

/// A conclusion, and whether it holds.
#[derive(Clone, Debug, Serialize)]
pub struct Conclusion {
    /// Where the paper has it.
    pub section: &'static str,
    /// What it says.
    pub says: &'static str,
    /// Whether the paper's tables say so; absent where they have no figures of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_the_tables: Option<bool>,
    /// Whether our cells do.
    pub holds: bool,
    /// What is to be known where text, tables and ours are not of one mind; empty elsewhere.
    pub remark: String,
}

/// Throughput per power of each cell, the paper's or ours.
struct Efficiency(Vec<f64>);

impl Efficiency {
    fn at(&self, kind: ServingKind, service: StudiedService, size: usize, density: usize) -> f64 {
        let cell = At {
            kind,
            service,
            size,
            density,
        };
        self.0[cell.index()]
    }

    fn best(&self, service: StudiedService, size: usize, density: usize) -> ServingKind {
        let of = |kind: &ServingKind| self.at(*kind, service, size, density);
        let best = ServingKind::ALL
            .into_iter()
            .max_by(|one, other| of(one).total_cmp(&of(other)));
        best.unwrap_or(Xeon)
    }

    /// At every density.
    fn always_best(&self, kind: ServingKind, service: StudiedService, size: usize) -> bool {
        every_density(|density| self.best(service, size, density) == kind)
    }

    fn more(&self, kind: ServingKind, than: ServingKind, service: StudiedService, size: usize) -> bool {
        every_density(|density| self.at(kind, service, size, density) > self.at(than, service, size, density))
    }
}

fn every_density(holds: impl Fn(usize) -> bool) -> bool {
    (0..DENSITIES.len()).all(holds)
}

fn every_size(holds: impl Fn(usize) -> bool) -> bool {
    (0..3).all(holds)
}

fn every_kind(holds: impl Fn(ServingKind) -> bool) -> bool {
    ServingKind::ALL.into_iter().all(holds)
}

/// The machines of which something does not hold, for a remark.
fn but(holds: impl Fn(ServingKind) -> bool) -> String {
    let failing: Vec<&str> = ServingKind::ALL
        .into_iter()
        .filter(|kind| !holds(*kind))
        .map(ServingKind::name)
        .collect();
    match failing.is_empty() {
        true => String::new(),
        false => format!("ours: not of {}", failing.join(" and ")),
    }
}

/// A remark with its reason; none where there is nothing to remark.
fn because(remark: String, reason: &str) -> String {
    match remark.is_empty() {
        true => remark,
        false => format!("{remark}: {reason}"),
    }
}

/// All of them, in the paper's order. The cells are all 72, in the order of [`At::all`].
pub fn conclusions(cells: &[Cell]) -> Vec<Conclusion> {
    let mut all = of_the_tables(cells);
    all.extend(of_ours(cells));
    all.sort_by_key(|one| one.section);
    all
}

type Claim = (&'static str, &'static str, fn(&Efficiency) -> bool, &'static str);

/// Those of throughput per power.
const CLAIMS: [Claim; 15] = [
    (
        "4.1",
        "Apache, 1 KB: the Xeon has the most throughput per watt, at every density",
        |tables| tables.always_best(Xeon, Apache, 0),
        "",
    ),
    (
        "4.1",
        "Apache, 1 KB: with falling density the Xeon's throughput per watt falls below the Arm's at that density",
        |tables| !every_density(|at| tables.at(Xeon, Apache, 0, at) > tables.at(Arm, Apache, 0, at)),
        "the text and Table 1 disagree: the table has 263.07 of the Xeon and 188.30 of the Arm at 25 %",
    ),
    (
        "4.1",
        "Apache, 1 KB: with falling density the Xeon's throughput per watt falls below the Arm's at 100 %",
        |tables| tables.at(Xeon, Apache, 0, 3) < tables.at(Arm, Apache, 0, 0),
        "another reading of the same sentence",
    ),
    (
        "4.1",
        "Apache, 1 KB: the Atom has less throughput per watt than the Arm",
        |tables| tables.more(Arm, Atom, Apache, 0),
        "",
    ),
    (
        "4.1",
        "Apache, 10 and 100 KB: the Arm has the most throughput per watt, at every density",
        |tables| tables.always_best(Arm, Apache, 1) && tables.always_best(Arm, Apache, 2),
        "",
    ),
    (
        "4.1",
        "Apache, 100 KB: the Atom has more throughput per watt than the Xeon",
        |tables| tables.more(Atom, Xeon, Apache, 2),
        "",
    ),
    (
        "4.1",
        "throughput per watt falls with density: every machine, service and size",
        |tables| {
            At::all()
                .filter(|at| at.density > 0)
                .all(|at| tables.at(at.kind, at.service, at.size, at.density - 1) > tables.0[at.index()])
        },
        "",
    ),
    (
        "5.1",
        "Memcached, 1 KB: the Atom has the most throughput per watt, at 100 %",
        |tables| tables.best(Memcached, 0, 0) == Atom,
        "",
    ),
    (
        "5.1",
        "Memcached, 1 KB: the Xeon has less throughput per watt than the Arm, at every density",
        |tables| tables.more(Arm, Xeon, Memcached, 0),
        "",
    ),
    (
        "5.1",
        "Memcached, 10 and 999 KB: the Arm has the most throughput per watt, at every density",
        |tables| tables.always_best(Arm, Memcached, 1) && tables.always_best(Arm, Memcached, 2),
        "",
    ),
    (
        "5.1",
        "Memcached: the throughput per watt of Xeon and Atom grows with the size, at 100 %",
        |tables| {
            [Xeon, Atom].into_iter().all(|kind| {
                (1..3)
                    .all(|size| tables.at(kind, Memcached, size, 0) > tables.at(kind, Memcached, size - 1, 0))
            })
        },
        "",
    ),
    (
        "5.1",
        "Memcached: the Arm's is less at 999 KB than at 10 KB, at 100 %",
        |tables| tables.at(Arm, Memcached, 2, 0) < tables.at(Arm, Memcached, 1, 0),
        "in the tables not at 75, 50 and 25 %, where answers that are outstanding keep the machine busy",
    ),
    (
        "6",
        "Apache: small answers for the Xeon, large ones for Arm or Atom, at 100 %",
        |tables| tables.best(Apache, 0, 0) == Xeon && (1..3).all(|size| tables.best(Apache, size, 0) != Xeon),
        "",
    ),
    (
        "6",
        "Memcached: Arm or Atom for every size and density",
        |tables| every_size(|size| every_density(|at| tables.best(Memcached, size, at) != Xeon)),
        "",
    ),
    (
        "6",
        "the Arm has more throughput per watt than the Xeon with either service, but for Apache at 1 KB",
        |tables| {
            every_size(|size| tables.more(Arm, Xeon, Memcached, size))
                && (1..3).all(|size| tables.more(Arm, Xeon, Apache, size))
        },
        "",
    ),
];

fn of_the_tables(cells: &[Cell]) -> Vec<Conclusion> {
    let paper = Efficiency(At::all().map(At::paper).collect());
    let ours = Efficiency(cells.iter().map(|cell| cell.kb_per_s_per_w).collect());
    CLAIMS
        .into_iter()
        .map(|(section, says, holds, remark)| Conclusion {
            section,
            says,
            in_the_tables: Some(holds(&paper)),
            holds: holds(&ours),
            remark: remark.to_owned(),
        })
        .collect()
}

/// Those of throughput and resources, of which the paper prints plots alone.
fn of_ours(cells: &[Cell]) -> Vec<Conclusion> {
    let cell = |kind, service, size, density| {
        let at = At {
            kind,
            service,
            size,
            density,
        };
        &cells[at.index()]
    };
    let throughput = |kind, service, size, density| cell(kind, service, size, density).kb_per_s;
    let near = |one: f64, other: f64| (one / other - 1.0).abs() < 0.05;
    // A tenth of a percent: what a run spreads.
    let falls = |service| {
        move |kind| {
            (1..3).all(|size| {
                cell(kind, service, size, 0).cpu_percent < cell(kind, service, size - 1, 0).cpu_percent + 0.1
            })
        }
    };
    let network_grows = |service| {
        move |kind| {
            (1..3).all(|size| {
                cell(kind, service, size, 0).network_percent
                    > cell(kind, service, size - 1, 0).network_percent - 0.1
            })
        }
    };
    let by_network = |kind| {
        every_size(|size| {
            let one = cell(kind, Memcached, size, 0);
            one.network_percent > one.cpu_percent || one.driver_percent > 24.0
        })
    };
    let below_apache = |kind| {
        (0..2).all(|size| {
            cell(kind, Memcached, size, 0).cpu_percent < cell(kind, Apache, size, 0).cpu_percent + 0.1
        })
    };
    let conclusion = |section, says, holds: bool, remark: String| Conclusion {
        section,
        says,
        in_the_tables: None,
        holds,
        remark,
    };
    vec![
        conclusion(
            "4.1",
            "Apache, 1 KB: the Xeon's throughput is the highest, at every density",
            every_density(|at| {
                [Atom, Arm]
                    .into_iter()
                    .all(|kind| throughput(Xeon, Apache, 0, at) > throughput(kind, Apache, 0, at))
            }),
            String::new(),
        ),
        conclusion(
            "4.1",
            "Apache, 100 KB: Xeon and Atom have nearly the same throughput, at every density",
            every_density(|at| near(throughput(Atom, Apache, 2, at), throughput(Xeon, Apache, 2, at))),
            String::new(),
        ),
        conclusion(
            "4.2",
            "Apache, 100 %: the smaller the answer, the higher the CPU use",
            every_kind(falls(Apache)),
            but(falls(Apache)),
        ),
        conclusion(
            "4.2",
            "Apache, 100 %: the larger the answer, the higher the network use",
            every_kind(network_grows(Apache)),
            but(network_grows(Apache)),
        ),
        conclusion(
            "4.2",
            "Apache, 1 KB: the Xeon is bound by its processor",
            cell(Xeon, Apache, 0, 0).cpu_percent > 95.0,
            String::new(),
        ),
        conclusion(
            "5.1",
            "Memcached, 1 KB: the Atom's throughput is much nearer to the Xeon's than with Apache",
            throughput(Atom, Memcached, 0, 0) / throughput(Xeon, Memcached, 0, 0)
                > 2.0 * throughput(Atom, Apache, 0, 0) / throughput(Xeon, Apache, 0, 0),
            String::new(),
        ),
        conclusion(
            "5.1",
            "Memcached: the Arm's throughput is lower at 999 KB than at 10 KB",
            throughput(Arm, Memcached, 2, 0) < throughput(Arm, Memcached, 1, 0),
            "a cause in the model: long answers cost the driver more".to_owned(),
        ),
        conclusion(
            "5.2",
            "Memcached, 10 KB: Xeon and Atom have nearly the same throughput, for the network is full",
            near(
                throughput(Atom, Memcached, 1, 0),
                throughput(Xeon, Memcached, 1, 0),
            ) && cell(Atom, Memcached, 1, 0).network_percent > 95.0,
            String::new(),
        ),
        conclusion(
            "5.2",
            "Memcached, 100 %: the smaller the answer, the higher the CPU use",
            every_kind(falls(Memcached)),
            but(falls(Memcached)),
        ),
        conclusion(
            "5.2",
            "Memcached: CPU use is not as high as with Apache, at 1 and 10 KB",
            every_kind(below_apache),
            because(
                but(below_apache),
                "by the text's 24.0 MB/s and Table 2 the Arm draws 9.2 W at 1 KB, and at most 7.4 W with Apache",
            ),
        ),
        conclusion(
            "5.2",
            "Memcached: every case is bound by the network (the Arm by its driver)",
            every_kind(by_network),
            because(
                but(by_network),
                "by the text the Atom serves 88.3 MB/s at 1 KB where its network carries 110.4",
            ),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the tables say of themselves: the text's one sentence that they contradict, and no other.
    #[test]
    fn the_tables_contradict_the_text_in_one_sentence() {
        let paper = Efficiency(At::all().map(At::paper).collect());
        let broken: Vec<&str> = CLAIMS
            .into_iter()
            .filter(|(_, _, holds, _)| !holds(&paper))
            .map(|(_, says, ..)| says)
            .collect();
        assert_eq!(
            broken,
            [
                "Apache, 1 KB: with falling density the Xeon's throughput per watt falls below the Arm's at that density"
            ]
        );
    }

    #[test]
    fn machines_that_are_the_other_way_round_are_told() {
        let mut turned: Vec<f64> = At::all().map(At::paper).collect();
        turned.reverse();
        let turned = Efficiency(turned);
        let holding = CLAIMS
            .into_iter()
            .filter(|(_, _, holds, _)| holds(&turned))
            .count();
        assert!(holding < 6, "{holding}");
        assert_eq!(but(|kind| kind == Xeon), "ours: not of atom and arm");
    }
}
