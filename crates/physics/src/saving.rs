//! What a lever can save on a machine, for the same work, and by which cause.

use crate::expected::{Load, idle_power, server_power};
use crate::frequency::Level;
use crate::machine::MachineFigures;
use headroom_units::{Cores, Hertz, PerSecond, Seconds, Watts};

/// Loads at which savings are sought, as shares of what the machine can do.
pub const LOADS: [f64; 3] = [0.1, 0.3, 0.5];
/// CPU time of a request at the highest frequency: of a web page, and of a key-value store's answer.
pub const REQUESTS: [Seconds; 2] = [Seconds::new(0.02), Seconds::new(0.000_05)];
/// Cores are busy for at most this share of the time, so that requests hardly wait.
const MAX_UTILISATION: f64 = 0.75;

/// What one lever saves of the same work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AtLoad {
    /// Share of what the machine can do.
    pub load: f64,
    /// CPU time of a request at the highest frequency.
    pub request: Seconds,
    /// With all cores at the highest frequency.
    pub full: Watts,
    /// With the lever at its best.
    pub best: Watts,
    /// That frequency.
    pub frequency: Hertz,
    /// Those cores.
    pub cores: usize,
}

impl AtLoad {
    /// What is saved.
    pub fn saved(&self) -> Watts {
        self.full - self.best
    }
}

/// What the levers of one machine can move.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Savings {
    /// By the frequency, at the load where it saves most.
    pub frequency: AtLoad,
    /// The same at the lightest load.
    pub frequency_at_light: AtLoad,
    /// By parking cores, with each kind of [`REQUESTS`] at the load where it saves most.
    pub parking: [AtLoad; REQUESTS.len()],
    /// What the packages draw less where all cores sleep.
    pub packages: Watts,
    /// What a machine draws that idles.
    pub idle: Watts,
    /// What it draws more than one that is off.
    pub off: Watts,
    /// For how long a server must be off to be worth its boot; `None` where it never is.
    pub off_pays_after: Option<Seconds>,
}

impl Savings {
    /// Of checked figures.
    pub fn of(machine: &MachineFigures) -> Self {
        let processor = &machine.processor;
        let at_rest = Load {
            busy: Cores::ZERO,
            wakeups: PerSecond::new(0.0),
            on: processor.cores,
        };
        let resting = idle_power(machine, at_rest);
        let idle = machine.platform + resting.cores + resting.uncore;
        let of_pages = LOADS.map(|load| slowed(machine, load, REQUESTS[0]));
        let most = |one: AtLoad, other: AtLoad| if other.saved() > one.saved() { other } else { one };
        Self {
            frequency: of_pages.into_iter().fold(of_pages[0], most),
            frequency_at_light: of_pages[0],
            parking: REQUESTS.map(|request| {
                let each = LOADS.map(|load| parked(machine, load, request));
                each.into_iter().fold(each[0], most)
            }),
            packages: (processor.uncore - processor.uncore_asleep) * processor.packages as f64,
            idle,
            off: (idle - machine.server.off).max(Watts::ZERO),
            off_pays_after: machine.server.break_even(idle),
        }
    }
}

/// What the machine draws that does a share of what it can do on so many cores at a level; `None` where these are too few or too
/// slow for it.
fn watts(
    machine: &MachineFigures,
    load: f64,
    request: Seconds,
    (on, level): (usize, Level),
) -> Option<Watts> {
    let pace = machine.frequencies(0.0).at(level);
    let work = load * machine.processor.cores as f64;
    let busy = work / pace.speed;
    let all = on == machine.processor.cores && level == machine.frequencies(0.0).top();
    if busy > MAX_UTILISATION * on as f64 && !all {
        return None;
    }
    let load = Load {
        busy: Cores::new(busy),
        wakeups: PerSecond::new(work / request.get()),
        on,
    };
    Some(server_power(machine, load, &pace))
}

/// The best of some settings, each of cores and a level; the first has everything on.
fn best(
    machine: &MachineFigures,
    (load, request): (f64, Seconds),
    settings: impl Iterator<Item = (usize, Level)>,
) -> AtLoad {
    let levels = machine.frequencies(0.0);
    let all = (machine.processor.cores, levels.top());
    let full = watts(machine, load, request, all).unwrap_or(Watts::ZERO);
    let tried = settings.filter_map(|setting| Some((setting, watts(machine, load, request, setting)?)));
    let ((cores, level), best) = tried.fold(
        (all, full),
        |least, one| if one.1 < least.1 { one } else { least },
    );
    AtLoad {
        load,
        request,
        full,
        best,
        frequency: levels.at(level).frequency,
        cores,
    }
}

fn slowed(machine: &MachineFigures, load: f64, request: Seconds) -> AtLoad {
    let levels = machine.frequencies(0.0);
    let each = (levels.lowest_unthrottled().0..=levels.top().0).map(Level);
    let cores = machine.processor.cores;
    best(machine, (load, request), each.map(|level| (cores, level)))
}

fn parked(machine: &MachineFigures, load: f64, request: Seconds) -> AtLoad {
    let top = machine.frequencies(0.0).top();
    best(
        machine,
        (load, request),
        (1..=machine.processor.cores).map(|on| (on, top)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_lever_saves_by_its_cause() {
        let machine = MachineFigures::skylake(8);
        let savings = Savings::of(&machine);
        // The same work at a lower voltage: a few watts of some sixty, and nothing where the packages then sleep less.
        let frequency = savings.frequency;
        assert!((2.0..8.0).contains(&frequency.saved().get()), "{frequency:?}");
        assert!(frequency.frequency < machine.processor.frequency.highest && frequency.cores == 8);
        assert!(
            savings.frequency_at_light.saved() < frequency.saved() * 0.5,
            "{savings:?}"
        );
        // Requests of a page's length let all cores sleep deep anyway.
        let [pages, short] = savings.parking;
        assert!(pages.saved().get() < 0.3, "{pages:?}");
        assert!(
            short.cores < 8 && (1.0..8.0).contains(&short.saved().get()),
            "{short:?}"
        );
        assert!((savings.packages.get() - 0.8 * 23.5).abs() < 1e-9);
        // 20 W, about 13 W of package and cores, 3 W off.
        assert!((28.0..36.0).contains(&savings.off.get()), "{savings:?}");
        assert!(savings.off_pays_after.unwrap() > machine.server.boot);
    }

    #[test]
    fn no_lever_saves_where_its_cause_is_missing() {
        let mut machine = MachineFigures::skylake(8);
        machine.processor.idle_states.truncate(1);
        assert!(Savings::of(&machine).parking[1].saved().get() < 1e-9);
        let mut one_voltage = MachineFigures::skylake(8);
        one_voltage.processor.frequency.lowest_voltage = 1.0;
        assert!(Savings::of(&one_voltage).frequency.saved().get() < 1.0);
    }
}
