//! What bounds a cell: the first resource that is full while requests are sent.

use super::cell::{Cell, Mark};
use super::file::{Baseline, BaselineKind, Profile};
use crate::statistics::Estimate;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The interface of what stays on a machine.
const LOOPBACK: &str = "lo";

/// From this share of a resource on it counts as full.
pub const FULL: f64 = 0.9;

/// More than this share of the cores are not busy while requests are sent, but for what times are off by.
const MORE_THAN_ALL: f64 = 1.05;

/// Where others keep more than this share of the cores busy, what a service uses beside them is a guess.
const MOST_OTHERS: f64 = 0.25;

/// Less than this share of what an idle machine does is no chance.
const LESS_THAN_IDLE: f64 = 0.9;

/// The resource that is full while a cell's requests are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bound {
    /// The machine's cores.
    Cpu,
    /// The cores that the machine's service and the generator share, as on one machine: alone the service has more.
    SharedCpu,
    /// The machine's link: as much as its network baseline, or its nominal speed.
    Network,
    /// The generator.
    Client,
    /// None of these: waits within the service (workers, locks), or one core of several.
    Other,
}

impl Bound {
    /// In a word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::SharedCpu => "shared cpu",
            Self::Network => "network",
            Self::Client => "client",
            Self::Other => "other",
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl Profile {
    /// What bounds a cell; `None` where neither cores nor link were read.
    ///
    /// What a window used is divided by the share of it in which requests were sent, since in its pause nothing is full
    /// ([`Self::busy_while_sending`]). A link is full
    /// at [`FULL`] of what the network baseline reached, or of its nominal speed where there is no baseline. `None` too where others were
    /// at work ([`Self::is_disturbed`], [`Self::others_at_work`]).
    pub fn bound(&self, cell: &Cell) -> Option<Bound> {
        if cell.marks.contains(&Mark::ClientBound) {
            return Some(Bound::Client);
        }
        let sending = cell.sending_share().filter(|share| *share > 0.0)?;
        let mean = |estimate: Option<Estimate>| Some(estimate?.mean / sending);
        let cores = f64::from(self.machine.cores);
        let busy = self.busy_while_sending(cell).map(|busy| busy * cores);
        let client = mean(cell.client_cores()).unwrap_or(0.0);
        let link = self
            .link_while_sending(cell)
            .zip(self.link_limit_bytes_per_s())
            .map(|(used, limit)| used / limit);
        let shared = self.client_is_local && busy.is_some_and(|busy| busy + client >= FULL * cores);
        if (busy.is_none() && link.is_none()) || self.is_disturbed(cell) || self.others_at_work().is_some() {
            return None;
        }
        Some(match (busy, link) {
            (Some(busy), _) if busy >= FULL * cores => Bound::Cpu,
            (_, Some(link)) if link >= FULL => Bound::Network,
            _ if shared => Bound::SharedCpu,
            _ => Bound::Other,
        })
    }

    /// What a cell's windows had in the mean, while requests were sent: in the pauses a machine does what its idle baseline says, with
    /// whatever else runs there. `None` where it was not read.
    fn while_sending(
        &self,
        cell: &Cell,
        mean: Option<Estimate>,
        idle: impl Fn(&Baseline) -> Option<f64>,
    ) -> Option<f64> {
        let sending = cell.sending_share().filter(|share| *share > 0.0)?;
        let idle = self.baseline(BaselineKind::Idle).and_then(idle);
        let (mean, pauses) = (mean?.mean, idle.unwrap_or(0.0) * (1.0 - sending));
        // Less than what the idle machine does: the baseline is none, and what was used is not known.
        (mean >= LESS_THAN_IDLE * pauses).then(|| ((mean - pauses) / sending).max(0.0))
    }

    /// The share of its cores that a machine is busy with while a cell's requests are sent; `None` where that was not read.
    pub fn busy_while_sending(&self, cell: &Cell) -> Option<f64> {
        let busy = self.while_sending(cell, cell.busy_cores(), |idle| idle.busy_cores)?;
        Some(busy / f64::from(self.machine.cores.max(1)))
    }

    /// Whether more cores were busy than there are, were it the service that used them while requests were sent: something else did, in
    /// the pauses.
    pub fn is_disturbed(&self, cell: &Cell) -> bool {
        self.busy_while_sending(cell)
            .is_some_and(|busy| busy > MORE_THAN_ALL)
    }

    /// How many cores other programs kept busy while the machine was to be idle, where they are so many that what the service uses beside
    /// them is a guess.
    pub fn others_at_work(&self) -> Option<f64> {
        let busy = self.baseline(BaselineKind::Idle)?.busy_cores?;
        (busy > MOST_OTHERS * f64::from(self.machine.cores.max(1))).then_some(busy)
    }

    /// The cells whose power is below that of the idle machine, beyond their intervals.
    pub fn below_idle(&self) -> impl Iterator<Item = &Cell> {
        let idle = self.baseline(BaselineKind::Idle).and_then(|idle| idle.power_w);
        self.cells.iter().filter(move |cell| {
            let most = cell
                .power_w()
                .map(|power| power.mean + power.half_width.unwrap_or(0.0));
            most.zip(idle).is_some_and(|(most, idle)| most < idle)
        })
    }

    /// The share of its cores that is busy in software interrupts then.
    pub fn softirq_while_sending(&self, cell: &Cell) -> Option<f64> {
        let busy = self.while_sending(cell, cell.softirq_cores(), |idle| idle.softirq_cores)?;
        Some(busy / f64::from(self.machine.cores.max(1)))
    }

    /// What the link carries then in its busier direction, bytes a second.
    pub fn link_while_sending(&self, cell: &Cell) -> Option<f64> {
        self.while_sending(cell, cell.link_bytes_per_s(), |idle| idle.link_bytes_per_s)
    }

    /// The most that the machine's link carries in one direction: what its network baseline reached, else its nominal speed, and no less than
    /// what it was seen to carry; `None` where neither is known, and of the loopback, which is no link: what passes it is bound by the cores.
    pub fn link_limit_bytes_per_s(&self) -> Option<f64> {
        let link = self.machine.link.as_ref();
        if link.is_some_and(|link| link.name == LOOPBACK) {
            return None;
        }
        let of_baseline = self.baseline(BaselineKind::Network);
        let known = of_baseline
            .and_then(|baseline| baseline.link_bytes_per_s)
            .or_else(|| Some(link?.bits_per_s? / 8.0))
            .filter(|limit| *limit > 0.0)?;
        let seen = self.cells.iter().filter_map(|cell| self.link_while_sending(cell));
        Some(seen.fold(known, f64::max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Window;

    fn profile(link: Option<f64>) -> Profile {
        let mut profile = Profile::default();
        profile.machine.cores = 4;
        profile.baselines.extend(link.map(|link| Baseline {
            link_bytes_per_s: Some(link),
            ..Baseline::new(BaselineKind::Network)
        }));
        profile
    }

    fn cell(sending_share: f64, busy: f64, link: f64, client: f64) -> Cell {
        let window = Window {
            length_s: 5.0,
            sending_share,
            completed: 10,
            busy_cores: Some(busy),
            received_per_s: Some(1.0),
            sent_per_s: Some(link),
            client_cores: client,
            ..Window::default()
        };
        Cell {
            windows: vec![window; 3],
            ..Cell::new(1024, sending_share)
        }
    }

    #[test]
    fn beside_others_nothing_is_said_of_what_bounds_a_cell() {
        let full = cell(1.0, 3.9, 0.0, 0.0);
        let beside = |busy: f64| {
            let mut profile = Profile::default();
            profile.machine.cores = 4;
            profile.baselines = vec![Baseline {
                busy_cores: Some(busy),
                ..Baseline::new(BaselineKind::Idle)
            }];
            profile
        };
        assert_eq!(beside(0.9).bound(&full), Some(Bound::Cpu));
        assert_eq!(
            (beside(1.1).bound(&full), beside(1.1).others_at_work()),
            (None, Some(1.1))
        );
        // Less than the idle machine does is not 0.
        assert_eq!(beside(0.9).busy_while_sending(&cell(0.25, 0.1, 0.0, 0.0)), None);
        let busy = beside(0.4).busy_while_sending(&cell(0.5, 0.7, 0.0, 0.0)).unwrap();
        assert!((busy - 0.25).abs() < 1e-9, "{busy}");
    }

    #[test]
    fn the_first_full_resource_bounds_and_pauses_do_not_count() {
        let bound = |cell: &Cell| profile(Some(100e6)).bound(cell);
        assert_eq!(bound(&cell(1.0, 3.8, 20e6, 0.5)), Some(Bound::Cpu));
        // 1.9 cores in the mean are 7.6 of four in a quarter of the time: others were at work in the pauses.
        assert_eq!(bound(&cell(0.25, 1.9, 20e6, 0.2)), None);
        // Half of the time: 1.9 cores in the mean are 3.8 while requests are sent.
        assert_eq!(bound(&cell(0.5, 1.9, 20e6, 0.2)), Some(Bound::Cpu));
        assert_eq!(bound(&cell(1.0, 1.0, 95e6, 0.5)), Some(Bound::Network));
        assert_eq!(bound(&cell(1.0, 1.0, 20e6, 0.5)), Some(Bound::Other));
        let mut client = cell(1.0, 1.0, 20e6, 0.99);
        client.marks.push(Mark::ClientBound);
        assert_eq!(bound(&client), Some(Bound::Client));
        assert_eq!(bound(&Cell::new(1, 1.0)), None);
    }

    #[test]
    fn what_else_runs_in_the_pauses_is_not_the_services() {
        let mut busy = profile(None);
        // Half a core of others: 0.5 x 0.5 + 0.5 x 3 cores.
        let cell = cell(0.5, 1.75, 1.0, 0.1);
        assert_eq!(busy.busy_while_sending(&cell), Some(3.5 / 4.0));
        busy.baselines.push(Baseline {
            busy_cores: Some(0.5),
            ..Baseline::new(BaselineKind::Idle)
        });
        assert_eq!(busy.busy_while_sending(&cell), Some(0.75));
        busy.baselines[0].link_bytes_per_s = Some(0.4);
        assert!((busy.link_while_sending(&cell).unwrap() - 1.6).abs() < 1e-12);
    }

    #[test]
    fn on_one_machine_the_generator_has_a_share_of_its_cores() {
        let mut local = profile(None);
        local.client_is_local = true;
        assert_eq!(local.bound(&cell(1.0, 2.5, 1e9, 1.3)), Some(Bound::SharedCpu));
        local.client_is_local = false;
        assert_eq!(local.bound(&cell(1.0, 2.5, 1e9, 1.3)), Some(Bound::Other));
    }

    #[test]
    fn a_nominal_speed_counts_where_there_is_no_baseline() {
        let mut nominal = profile(None);
        assert_eq!(nominal.link_limit_bytes_per_s(), None);
        nominal.machine.link = Some(crate::profile::Link {
            name: "eth0".to_owned(),
            bits_per_s: Some(1e9),
        });
        assert_eq!(nominal.link_limit_bytes_per_s(), Some(125e6));
        assert_eq!(nominal.bound(&cell(1.0, 1.0, 118e6, 0.5)), Some(Bound::Network));
        // More was seen than its baseline reached: that is its limit then.
        let mut passed = profile(Some(50e6));
        passed.cells = vec![cell(1.0, 1.0, 80e6, 0.5)];
        assert_eq!(passed.link_limit_bytes_per_s(), Some(80e6));
        passed.machine.link = Some(crate::profile::Link {
            name: "lo".to_owned(),
            bits_per_s: None,
        });
        assert_eq!(passed.link_limit_bytes_per_s(), None, "the loopback is no link");
    }
}
