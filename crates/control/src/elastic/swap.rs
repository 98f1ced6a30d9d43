//! A server that is off in the place of one that serves, where it would do the same for clearly fewer watts.
//!
//! It pays once it has been so for as long as the exchange takes to save what its boot and the other's shutdown cost: who waits that long
//! spends at most twice what he would who knew how long the load stays. The better one is started first, and the other goes when it serves.
//! The watts are the user's and each exchange makes them fewer, so none is ever undone.

use super::takes::Takes;
use super::tuning::ElasticTuning;
use crate::observation::NodeObservation;
use crate::resize::PowerState;

/// What saves less of a server's watts is not worth a boot that may fail.
const CLEARLY: f64 = 0.1;
/// An exchange whose boot does not begin within so many periods is given up.
const BEGINS_WITHIN: u32 = 3;

/// One for another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Exchange {
    /// The watts that it saves.
    pub saved_w: f64,
    /// After so long it has saved what it cost, seconds.
    pub pays_after_s: f64,
}

/// The exchange that would pay, or is under way.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Swap {
    /// For so long one would have saved, less the time in which none would: near a server's capacity noise breaks it off.
    saves_for_s: f64,
    /// Periods since one began, and whether its server boots.
    begun: Option<(u32, bool)>,
    not_before_s: f64,
}

impl Swap {
    /// Takes an exchange that would save in a period. Whether it begins.
    pub(super) fn observe(&mut self, now_s: f64, length_s: f64, exchange: Option<&Exchange>) -> bool {
        let Some(exchange) = exchange else {
            self.saves_for_s = (self.saves_for_s - length_s).max(0.0);
            return false;
        };
        self.saves_for_s += length_s;
        if self.saves_for_s < exchange.pays_after_s || now_s < self.not_before_s {
            return false;
        }
        *self = Self {
            saves_for_s: 0.0,
            begun: Some((0, false)),
            // One that comes to nothing is not tried again at once.
            not_before_s: now_s + 2.0 * exchange.pays_after_s,
        };
        true
    }

    /// Whether one is under way: its server boots, or is about to.
    pub(super) fn is_under_way(&mut self, booting: usize, overdue: usize) -> bool {
        let Some((periods, has_booted)) = self.begun else {
            return false;
        };
        let is_over = match booting {
            0 => has_booted || periods >= BEGINS_WITHIN,
            _ => overdue > 0,
        };
        self.begun = (!is_over).then_some((periods + 1, booting > 0));
        !is_over
    }
}

/// The exchange that saves most clearly: the worst that takes requests for the best that is off, where those that serve then still take
/// this rate. `order` has those that take requests first, among each the best first.
pub(super) fn exchange(
    (nodes, order, ranks): (&[NodeObservation], &[usize], &[u16]),
    taking: usize,
    (rate, boot_s): (f64, f64),
    takes: &Takes,
    tuning: &ElasticTuning,
) -> Option<Exchange> {
    let goes = *order.get(..taking)?.last()?;
    let comes = *order[taking..]
        .iter()
        .find(|at| nodes[**at].state == PowerState::Off)?;
    let (worse, better) = (tuning.traits(goes), tuning.traits(comes));
    if ranks[comes] >= ranks[goes]
        || tuning.survive_zone && worse.zone != better.zone
        || !takes.is_met(comes, tuning)
    {
        return None;
    }
    let mut then: Vec<usize> = order[..taking - 1].to_vec();
    then.push(comes);
    if takes.usable(&then, tuning) < rate {
        return None;
    }
    let (worse_w, better_w) = (worse.full?.get(), better.full?.get());
    let power = &tuning.power;
    let share = |watts: f64| watts / power.full_w.max(1e-3);
    // At the least that a server draws that is on.
    let saved_w = share(power.idle_w) * (worse_w - better_w);
    if saved_w <= CLEARLY * share(power.idle_w) * worse_w {
        return None;
    }
    let cost_j = share(power.booting_w) * better_w * boot_s
        + share(power.shutting_down_w) * worse_w * tuning.shutdown_s;
    Some(Exchange {
        saved_w,
        pays_after_s: cost_j / saved_w,
    })
}
