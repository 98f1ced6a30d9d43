//! What each server takes, and how many of them what comes needs.

use super::answers::Answers;
use super::tuning::ElasticTuning;
use crate::capacity::Capacity;
use crate::observation::{NodeObservation, Observation};
use headroom_units::PerSecond;

/// What one server is known to take.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// What its limit was found to be last, requests a second.
    met: Option<f64>,
    /// The limit that was met before it was observed to take clearly more: it takes that at least, and nobody knows whether it takes more.
    doubted: Option<f64>,
    /// Until when that holds, where it was not met at the server's own queue.
    until_s: Option<f64>,
    /// The most that it was observed to take without its limit, since the last limit.
    bound: Option<f64>,
}

/// A bound that exceeds a limit by more contradicts it: less is the error of both.
const CONTRADICTS: f64 = 1.1;
/// Weight of an estimate that is sure and fresh, and of one that is neither, in what is known: one that wavers moves no server.
const WEIGHTS: (f64, f64) = (0.3, 0.05);
/// What difficulty showed that was not at a server's own queue, and may have had another cause, holds for so many seconds.
const BY_SIGN_S: f64 = 900.0;

/// It is met again after so many seconds at the earliest, and where it is more than that part of what it was.
const MEETS_AGAIN_S: f64 = 10.0;
const OF_OWN: f64 = 0.5;

/// What is known of each, also of those that are off.
#[derive(Clone, Debug, Default)]
pub(super) struct Takes {
    known: Vec<Known>,
    /// What each answered of late, as far as the balancer tells.
    answers: Vec<Answers>,
    /// Requests a second that each takes, as far as it is known or presumed.
    each: Vec<f64>,
    /// What each was seen to take itself.
    shown: Vec<f64>,
    /// Whether the limit of one that takes requests is known.
    pub(super) proven: bool,
}

impl Takes {
    /// Takes what was estimated in a period, which `is_easy` where the servers are in no difficulty. Whether anything is known of one.
    pub(super) fn observe(
        &mut self,
        observation: &Observation,
        is_easy: bool,
        tuning: &ElasticTuning,
    ) -> bool {
        let (now_s, length_s, nodes) = (observation.at.get(), observation.length.get(), &observation.nodes);
        self.known.resize(nodes.len(), Known::default());
        self.answers.resize(nodes.len(), Answers::default());
        for (answers, node) in self.answers.iter_mut().zip(nodes) {
            match node.answered.filter(|_| node.state.takes_requests()) {
                Some(rate) => answers.observe(rate.get() * length_s, length_s),
                None => answers.forget(),
            }
        }
        for (known, node) in self.known.iter_mut().zip(nodes) {
            if known.until_s.is_some_and(|until_s| now_s >= until_s) {
                (known.met, known.doubted, known.until_s) = (None, None, None);
            }
            if !node.state.takes_requests() {
                continue;
            }
            let weight = match node.capacity {
                Capacity::Exact(_) => WEIGHTS.0,
                _ => WEIGHTS.1,
            };
            match node.capacity {
                // What was not sure contradicts what was met, and confirms no bound that does.
                Capacity::About(value)
                    if known.doubted.is_some_and(|met| value.get() > CONTRADICTS * met) => {}
                Capacity::Exact(value) | Capacity::About(value) => {
                    let before = known.met.filter(|_| known.until_s.is_none());
                    let met = before.map_or(value.get(), |before| before + weight * (value.get() - before));
                    *known = Known {
                        met: Some(met),
                        doubted: None,
                        until_s: None,
                        bound: None,
                    };
                }
                // What it accepts in difficulty, and may be checks, is no more than what difficulty showed.
                Capacity::LowerBound(value)
                    if !is_easy
                        && known.until_s.is_some()
                        && known.met.is_some_and(|met| value.get() > CONTRADICTS * met) => {}
                Capacity::LowerBound(value) => {
                    let bound = known.bound.unwrap_or(0.0).max(value.get());
                    known.bound = Some(bound);
                    // It takes more than its limit was, which was another server's or another time's; or what was taken for service was
                    // none, as of clients that reset at once.
                    if let Some(met) = known.met.filter(|met| bound > CONTRADICTS * met) {
                        (known.met, known.doubted) = (None, Some(met));
                    }
                }
                Capacity::Presumed(_) | Capacity::Unknown => {}
            }
        }
        self.fill(nodes, tuning)
    }

    /// Other servers take requests from now on.
    pub(super) fn regroup(&mut self) {
        self.answers.iter_mut().for_each(Answers::forget);
    }

    /// What each kind of these servers answered of late, as a share of all; `None` where that is not known of each, or where one kind answered
    /// nothing, whose limit nobody knows.
    fn shares(&self, taking: &[usize], tuning: &ElasticTuning) -> Option<Vec<f64>> {
        let each = taking.iter().map(|at| self.answers[*at].rate());
        let each: Vec<f64> = each
            .map(|rate| rate.map(|(rate, _)| rate))
            .collect::<Option<_>>()?;
        let all: f64 = each.iter().sum();
        // Equal machines have equal parts: one that answers less than another is given less, or hangs.
        let share = |at: &usize| {
            let equals = taking.iter().zip(&each);
            let equals = equals.filter(|(other, _)| tuning.traits(**other).kind == tuning.traits(*at).kind);
            let (count, sum) = equals.fold((0.0, 0.0), |(count, sum), (_, rate)| (count + 1.0, sum + rate));
            (sum > 0.0).then(|| sum / count / all)
        };
        taking.iter().map(share).collect()
    }

    /// Whether difficulty at so much together shows a limit: where none is known of those that take requests, or where difficulty alone showed
    /// those, a while ago, and it is back below them. What is far below has another cause.
    pub(super) fn may_meet(&self, now_s: f64, nodes: &[NodeObservation], rate: f64) -> bool {
        let of = self.known.iter().zip(nodes);
        let taking = of.filter(|(_, node)| node.state.takes_requests());
        let limits: Vec<(f64, Option<f64>)> = taking
            .filter_map(|(known, _)| Some((known.met?, known.until_s)))
            .collect();
        let together: f64 = limits.iter().map(|(met, _)| met).sum();
        let were_met_so = |(_, until_s): &(f64, Option<f64>)| {
            until_s.is_some_and(|until_s| now_s >= until_s - BY_SIGN_S + MEETS_AGAIN_S)
        };
        !self.proven || limits.iter().all(were_met_so) && rate < together && rate > OF_OWN * together
    }

    /// The servers that take requests were in difficulty while they answered so much together: for a while that is their limit.
    pub(super) fn meet(&mut self, now_s: f64, nodes: &[NodeObservation], rate: f64, tuning: &ElasticTuning) {
        let taking: Vec<usize> = (0..nodes.len())
            .filter(|at| nodes[*at].state.takes_requests())
            .collect();
        let equal = || vec![1.0 / taking.len().max(1) as f64; taking.len()];
        let shares = self.shares(&taking, tuning).unwrap_or_else(equal);
        for (at, share) in taking.into_iter().zip(shares) {
            self.known[at] = Known {
                met: Some(rate * share),
                doubted: None,
                until_s: Some(now_s + BY_SIGN_S),
                bound: None,
            };
        }
        self.fill(nodes, tuning);
    }

    /// The servers that take requests answered so much together without difficulty: where that is more than limits that difficulty alone showed,
    /// these were none.
    pub(super) fn refute(&mut self, nodes: &[NodeObservation], answered: f64, tuning: &ElasticTuning) {
        let taking: Vec<usize> = (0..nodes.len())
            .filter(|at| nodes[*at].state.takes_requests())
            .collect();
        let kind = |at: usize| tuning.traits(at).kind;
        let limit = |at: &usize| {
            let known = self.known[*at];
            let is_alike = |other: &usize| kind(*other) == kind(*at) && self.known[*other].met.is_some();
            match known.met {
                Some(met) => known.until_s.map(|_| met),
                // One that came since takes what its equals do.
                None => taking.iter().any(is_alike).then_some(self.each[*at]),
            }
        };
        // Of those that met theirs at their own queue, or of which nothing is known, another may have answered more.
        let Some(limits) = taking.iter().map(limit).collect::<Option<Vec<f64>>>() else {
            return;
        };
        let together: f64 = limits.iter().sum();
        if limits.is_empty() || answered <= together {
            return;
        }
        let times = answered / together.max(1e-9);
        for at in taking {
            let known = &mut self.known[at];
            if known.met.is_none() {
                continue;
            }
            // None goes by the bound alone until what was met would be forgotten.
            known.doubted = known.met.take();
            let bound = known.doubted.map(|met| met * times);
            known.bound = known.bound.into_iter().chain(bound).reduce(f64::max);
        }
        self.fill(nodes, tuning);
    }

    /// Of a server whose limit was not met that of its least equal counts, else the least of all.
    fn fill(&mut self, nodes: &[NodeObservation], tuning: &ElasticTuning) -> bool {
        let kind = |at: usize| tuning.traits(at).kind;
        let least = |of_kind: Option<usize>| {
            let all = self.known.iter().enumerate();
            all.filter(|(at, _)| of_kind.is_none_or(|of_kind| kind(*at) == of_kind))
                .filter_map(|(_, known)| known.met)
                .reduce(f64::min)
        };
        let met = least(None);
        let bounds: Vec<f64> = self.known.iter().filter_map(|known| known.bound).collect();
        let bound = (!bounds.is_empty()).then(|| bounds.iter().sum::<f64>() / bounds.len() as f64);
        let each: Vec<Option<f64>> = (0..self.known.len())
            .map(|at| {
                let known = self.known[at];
                let usual = || least(Some(kind(at))).or(met);
                known
                    .met
                    .or_else(|| Some(usual()?.max(known.bound.unwrap_or(0.0))))
                    .or(known.bound)
                    .or(bound)
            })
            .collect();
        self.proven = self
            .known
            .iter()
            .zip(nodes)
            .any(|(known, node)| node.state.takes_requests() && known.met.is_some());
        let is_known = each.iter().any(Option::is_some);
        self.each = each.into_iter().map(|each| each.unwrap_or(0.0)).collect();
        // By a bound that contradicts a limit others are tried to do without a server, and none goes by it alone.
        let shown = |known: &Known| known.met.or(known.doubted).or(known.bound).unwrap_or(0.0);
        self.shown = self.known.iter().map(shown).collect();
        is_known
    }

    /// Whether the limit of any was ever found.
    pub(super) fn was_met(&self) -> bool {
        self.known
            .iter()
            .any(|known| known.met.or(known.doubted).is_some())
    }

    /// Whether the limit of a server was ever found, or that of an equal one.
    pub(super) fn is_met(&self, server: usize, tuning: &ElasticTuning) -> bool {
        let kind = tuning.traits(server).kind;
        let mut known = self.known.iter().enumerate();
        known.any(|(at, known)| known.met.is_some() && (at == server || tuning.traits(at).kind == kind))
    }

    pub(super) fn of(&self, server: usize) -> PerSecond {
        PerSecond::new(self.each[server])
    }

    /// How many of these never met their limit: what they take is presumed.
    pub(super) fn presumed(&self, servers: &[usize]) -> usize {
        let is_presumed = |at: &&usize| self.known[**at].met.is_none();
        servers.iter().filter(is_presumed).count()
    }

    /// What these take together when as many are lost as the tuning asks to survive, less the margin.
    pub(super) fn usable(&self, servers: &[usize], tuning: &ElasticTuning) -> f64 {
        fits(&self.each, servers, tuning).last().copied().unwrap_or(0.0)
    }

    /// The fewest of these that were seen to take this rate themselves, whichever of the same rank stay; all where they were not.
    pub(super) fn needed_as_shown(
        &self,
        rate: f64,
        (servers, ranks): (&[usize], &[u16]),
        tuning: &ElasticTuning,
    ) -> usize {
        let mut servers = servers.to_vec();
        servers.sort_by(|one, other| {
            let by_rank = ranks[*one].cmp(&ranks[*other]);
            by_rank.then(self.shown[*one].total_cmp(&self.shown[*other]))
        });
        enough(&fits(&self.shown, &servers, tuning), rate)
    }

    /// Whether these were seen to take this rate themselves.
    pub(super) fn have_shown(&self, rate: f64, servers: &[usize], tuning: &ElasticTuning) -> bool {
        let shown = fits(&self.shown, servers, tuning);
        shown.last().is_some_and(|usable| *usable >= rate)
    }

    /// The fewest of these, from the first on, that take this rate when as many are lost as the tuning asks to survive; all where
    /// they do not.
    pub(super) fn needed(&self, rate: f64, servers: &[usize], tuning: &ElasticTuning) -> usize {
        enough(&fits(&self.each, servers, tuning), rate)
    }
}

/// How many of the first are enough for this rate; all where they are not.
fn enough(fits: &[f64], rate: f64) -> usize {
    let enough = fits.iter().position(|usable| *usable >= rate);
    enough.map_or(fits.len(), |at| at + 1)
}

/// What the first, the first two, ... of these take when as many are lost as the tuning asks to survive, less the margin, where each
/// takes so much.
fn fits(each: &[f64], servers: &[usize], tuning: &ElasticTuning) -> Vec<f64> {
    let zones = 1 + servers
        .iter()
        .map(|at| tuning.traits(*at).zone)
        .max()
        .unwrap_or(0);
    let mut of_zones = vec![0.0; if tuning.survive_zone { zones } else { 0 }];
    let mut sum = 0.0;
    // The largest, which are those that may be lost.
    let mut largest: Vec<f64> = Vec::new();
    servers
        .iter()
        .map(|at| {
            let takes = each[*at];
            sum += takes;
            let place = largest.partition_point(|other| *other > takes);
            if place < tuning.reserve {
                largest.insert(place, takes);
                largest.truncate(tuning.reserve);
            }
            let mut lost = largest.iter().sum::<f64>();
            if let Some(zone) = of_zones.get_mut(tuning.traits(*at).zone) {
                *zone += takes;
                lost = of_zones.iter().copied().fold(lost, f64::max);
            }
            (sum - lost) * (1.0 - tuning.margin)
        })
        .collect()
}

/// In what order servers are kept on, the first to be kept: each one's rank, by zones in turn, those that take most for their power
/// first, and of those that are alike the ones whose limit was met. Those of the same rank are as good as each other.
pub(super) fn ranks(takes: &Takes, servers: usize, tuning: &ElasticTuning) -> Vec<u16> {
    // What differs by less is noise of the estimates.
    const STEP: f64 = 1.1;
    let worth = |at: usize| {
        let watts = tuning.traits(at).full.map_or(1.0, |full| full.get().max(1e-3));
        let per_watt = takes.of(at).get() / watts;
        let steps = (per_watt.max(1e-9).ln() / STEP.ln()).round() as i64;
        (steps, takes.presumed(&[at]) == 0)
    };
    let worths: Vec<(i64, bool)> = (0..servers).map(worth).collect();
    let mut order: Vec<usize> = (0..servers).collect();
    order.sort_by_key(|at| std::cmp::Reverse(worths[*at]));
    if !tuning.survive_zone {
        let mut ranks = vec![0; servers];
        let mut rank = 0;
        for pair in 1..order.len() {
            rank += u16::from(worths[order[pair]] != worths[order[pair - 1]]);
            ranks[order[pair]] = rank;
        }
        return ranks;
    }
    // With zones each server's rank is its place in its zone.
    let mut before: Vec<u16> = Vec::new();
    let mut ranks = vec![0; servers];
    for at in order {
        let zone = tuning.traits(at).zone;
        before.resize(before.len().max(zone + 1), 0);
        ranks[at] = before[zone];
        before[zone] += 1;
    }
    ranks
}

#[cfg(test)]
#[path = "takes_tests.rs"]
mod tests;
