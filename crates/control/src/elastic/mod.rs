//! Headroom's own law for servers that are switched on and off and whose capacity is estimated online: as many as what comes
//! needs now, and may need until another could serve, and no more for longer than a boot is worth.
//!
//! | question | answer | module |
//! |---|---|---|
//! | what comes, and may come | all of the next three | `load` |
//! | what comes, told from the noise of its counts | the highest of what windows of 1 to 30 periods show beyond it | `rates` |
//! | what it may grow to while a server boots | predictors, each judged by what came | [`growth`](crate::growth) |
//! | what comes at this time of every day | the highest of what came then, as long as what that foresaw came | `days` |
//! | what each server takes | its own limit as it was met last, else the least of its equals' | `takes` |
//! | how many are needed | the fewest that take it when as many are lost as the user asks to survive | `takes` |
//! | when one goes | when it was not needed for as long as it must be away to be worth its boot | [`needed`](crate::needed) |
//! | what if one that is off would do the same for less | it is started, and the other goes | `swap` |
//! | what if it is needed again at once | the next goes after twice that time | `patience` |
//! | what if an operator takes one out | it goes at once where the others met limits that are enough, else on trial, else it waits | `leave` |
//! | what if no limit is known, or the others' are only presumed | one is drained on trial, and stays powered until the others are known to do without it | `probe` |
//!
//! What the published controllers ([`Stepwise`](crate::resize::Stepwise)) do otherwise: they start one server and wait for it, go by
//! the count of one period, switch off what one period does not need, know one capacity for all, and wait for a boot that hangs.

mod answers;
mod dark;
mod days;
mod leave;
mod load;
mod patience;
mod probe;
mod rates;
mod sojourn;
mod states;
mod swap;
mod takes;
mod tuning;

pub use days::FEWEST_SLOTS;
pub use tuning::{ElasticTuning, ServerTraits};

use crate::decision::{Decision, Reason};
use crate::history::LoadHistory;
use crate::law::Law;
use crate::needed::Needed;
use crate::observation::{NodeObservation, Observation};
use crate::parameter::{OutOfRange, Parameters};
use crate::plant::Slo;
use crate::resize::{PowerState, Resize};
use headroom_units::{Lever, PerSecond};
use leave::Asked;
use load::{Foreseen, Load};
use patience::Patience;
use probe::Probe;
use sojourn::Sojourn;
use states::{Counts, Remembered};
use swap::{Swap, exchange};
use takes::{Takes, ranks};

/// Requests that take so many times as long as usual are in difficulty: in a trial, and else.
const SLOWER: (f64, f64) = (1.5, 2.5);
/// Periods in a row whose percentile is over the target: the servers are in difficulty whatever their accept queues show.
const LATE_PERIODS: u32 = 3;
/// Standard errors by which more must be answered than a limit for it to be none, and for how many seconds without difficulty.
const REFUTES: f64 = 3.0;
const EASY_S: f64 = 10.0;
/// Another late period within so many seconds is no noise of a percentile of few requests.
const LATE_AGAIN_S: f64 = 10.0;
/// For so many seconds after a period in which the percentile was met users are taken to have what they were promised: of few requests some
/// period has no answer.
const PROMISED_S: f64 = 5.0;
/// More of the requests failed: the servers are in difficulty.
const REFUSED: f64 = 0.01;
/// No trial before each server has served for so long, seconds: one that is nearly in difficulty has shown its limit by then.
const CALM_S: f64 = 60.0;

/// The law.
#[derive(Clone, Debug)]
pub struct Elastic {
    tuning: ElasticTuning,
    slo: Slo,
    load: Load,
    takes: Takes,
    sojourn: Sojourn,
    needed: Needed,
    has_begun: bool,
    probe: Probe,
    swap: Swap,
    servers: Vec<Remembered>,
    /// From power on to the first request, as observed, seconds.
    boot_s: f64,
    late: u32,
    /// When a period was late last, and when the servers were in difficulty last.
    late_s: f64,
    difficult_s: f64,
    /// When the percentile was met last.
    promised_s: f64,
    patience: Patience,
    blind_since_s: Option<f64>,
    target: usize,
}

impl Elastic {
    /// The law for an SLO, where latency is known.
    ///
    /// # Errors
    /// A parameter outside its range.
    pub fn new(slo: Slo, tuning: ElasticTuning) -> Result<Self, OutOfRange> {
        tuning.check()?;
        Ok(Self {
            boot_s: tuning.boot_s,
            target: tuning.min_servers,
            load: Load::new(tuning.day_s),
            tuning,
            slo,
            takes: Takes::default(),
            sojourn: Sojourn::default(),
            needed: Needed::default(),
            has_begun: false,
            probe: Probe::default(),
            swap: Swap::default(),
            servers: Vec::new(),
            late: 0,
            late_s: f64::NEG_INFINITY,
            difficult_s: f64::NEG_INFINITY,
            promised_s: f64::NEG_INFINITY,
            patience: Patience::default(),
            blind_since_s: None,
        })
    }

    /// How rarely the load may be beyond what is foreseen, and how many times what comes is always provided for.
    const fn rarely(&self) -> (f64, f64) {
        (self.tuning.exceeded, self.tuning.surge)
    }

    /// Those that take requests first, then those that come, then the others; among each the best first. What an operator takes out
    /// is not among them.
    fn order(&self, nodes: &[NodeObservation], ranks: &[u16]) -> Vec<usize> {
        let place = |state: PowerState| match state {
            PowerState::Warming | PowerState::Serving => 0,
            PowerState::Booting => 1,
            PowerState::Draining | PowerState::Off | PowerState::Stopping => 2,
            PowerState::Failed(_) | PowerState::Leaving | PowerState::Maintenance => 3,
        };
        let mut order: Vec<usize> = (0..nodes.len())
            .filter(|at| !nodes[*at].state.is_taken_out())
            .collect();
        order.sort_by_key(|at| (place(nodes[*at].state), ranks[*at], *at));
        order
    }

    fn answer(
        &mut self,
        servers: usize,
        counts: Counts,
        all: usize,
        rule: &'static str,
        text: String,
        numbers: &[(&'static str, f64)],
    ) -> Resize {
        let least = self.tuning.min_servers.max(self.tuning.reserve + 1).min(all);
        self.target = servers.max(least).min(all);
        // A boot that hangs is given up by its time limit, not here; meanwhile another takes its place.
        let starting = self
            .tuning
            .starts_at_once
            .max(counts.booting.saturating_sub(counts.overdue));
        let most = counts.taking + counts.overdue + starting;
        Resize {
            servers: (self.target + counts.overdue).min(most).min(all),
            reason: Reason::new(rule, text, numbers),
        }
    }

    /// Whether it is known of late that users have what they were promised: that requests take longer than usual, or that more are in flight, as
    /// where streams are open beside them, is then no difficulty of theirs.
    fn is_promised(&self, now_s: f64) -> bool {
        now_s - self.promised_s <= PROMISED_S
    }

    /// Whether the percentile was over the target in several periods in a row. One in which nothing is answered of what is in flight tells nothing:
    /// of few requests some period in three has an answer, and a stream may be in flight for hours.
    fn is_late(&mut self, observation: &Observation) -> bool {
        let traffic = observation.traffic.as_ref();
        match traffic.and_then(|traffic| traffic.latency) {
            Some(latency) if latency.at_slo > self.slo.target() => self.late += 1,
            None if traffic.and_then(|traffic| traffic.in_flight) > Some(0) => {}
            _ => self.late = 0,
        }
        let now_s = observation.at.get();
        let is_late = self.late > 0;
        let again = now_s - self.late_s <= LATE_AGAIN_S;
        if is_late {
            self.late_s = now_s;
        }
        let refused = observation.traffic.as_ref().is_some_and(|traffic| {
            let failed = traffic.failures.saturating_sub(traffic.failed_by_client);
            failed as f64 > REFUSED * (traffic.completions + failed) as f64
        });
        let is_promised = self.is_promised(now_s);
        let seen = |times: f64| !is_promised && (self.sojourn.is_growing() || self.sojourn.is_slower(times));
        if refused || is_late && again || seen(SLOWER.0) {
            self.difficult_s = now_s;
        }
        self.late >= LATE_PERIODS || seen(SLOWER.1)
    }

    fn resize(&mut self, observation: &Observation) -> (Resize, Vec<u16>) {
        let now_s = observation.at.get();
        let nodes = &observation.nodes;
        let all = nodes.len();
        self.load.recall_at(observation.clock.get());
        let counts = self.follow(now_s, nodes);
        let arriving = observation
            .demand()
            .map(PerSecond::get)
            .filter(|rate| *rate >= 0.0 && rate.is_finite());
        let Some(arriving) = arriving else {
            let resize = self.blind(now_s, counts, all, "the arrival rate is unavailable");
            return (resize, Vec::new());
        };
        let was_easy = !self.is_difficult(now_s);
        let is_known = self.takes.observe(observation, was_easy, &self.tuning);
        let is_calm = counts.booting == 0 && !self.probe.is_running();
        let latency = observation.traffic.as_ref().and_then(|traffic| traffic.latency);
        // One period in which a stream ended says nothing of the others, so it takes no promise back.
        if latency.is_some_and(|latency| latency.at_slo <= self.slo.target()) {
            self.promised_s = now_s;
        }
        let is_promised = self.is_promised(now_s);
        self.sojourn
            .observe(observation, is_calm && counts.takes_any(), is_promised);
        let late = self.is_late(observation);
        let answered = self.sojourn.answered();
        let is_easy = !self.is_difficult(now_s);
        if let Some((answered, error)) = answered.filter(|_| is_easy) {
            self.takes.refute(nodes, answered - REFUTES * error, &self.tuning);
        }
        // What is answered beside what fails is no limit either.
        let is_missed = latency.is_some_and(|latency| latency.missed);
        if late && !is_missed && counts.takes_any() {
            // What servers answer that have just changed is no limit of theirs.
            let limit = match self.sojourn.is_unknown() {
                true => Some(arriving),
                false => answered.map(|(answered, _)| answered),
            };
            if let Some(limit) = limit.filter(|limit| self.takes.may_meet(now_s, nodes, *limit)) {
                self.takes.meet(now_s, nodes, limit, &self.tuning);
            }
        }
        if counts.takes_any() {
            self.load.observe(observation, arriving, self.boot_s);
        }
        let ranks = ranks(&self.takes, all, &self.tuning);
        let order = self.order(nodes, &ranks);
        let resize = match counts.takes_any() {
            false => self.outage((now_s, observation.clock.get()), arriving, counts, &order),
            _ if !is_known && arriving > 0.0 => {
                self.blind(now_s, counts, all, "no server's capacity is estimated")
            }
            _ => {
                self.blind_since_s = None;
                self.follow_load((observation, arriving), counts, (&order, &ranks), late)
            }
        };
        (resize, ranks)
    }

    fn follow_load(
        &mut self,
        (observation, arriving): (&Observation, f64),
        counts: Counts,
        (order, ranks): (&[usize], &[u16]),
        late: bool,
    ) -> Resize {
        let Counts {
            taking,
            booting,
            overdue,
            leaving,
            out,
        } = counts;
        let (now_s, all, there) = (observation.at.get(), observation.nodes.len(), order.len());
        let length_s = observation.length.get().max(1e-3);
        let load = self
            .load
            .foreseen(observation.clock.get(), self.boot_s, self.rarely());
        let Foreseen {
            within,
            at_end,
            at_most,
            ..
        } = load;
        let (now, came, may_come) = (load.now(), load.came(), load.may_come());
        let usable = self.takes.usable(&order[..taking], &self.tuning);
        let committed = taking + booting - overdue;
        // Where those that are not taken out do not take it, all are asked for: so nobody who still serves goes.
        let takes_all = self.takes.usable(order, &self.tuning);
        let count = |rate: f64| match rate > takes_all {
            true => all,
            false => self.takes.needed(rate, order, &self.tuning),
        };
        let mut at_once = count(now);
        let mut foreseen = count(at_end.max(now));
        if late && foreseen <= taking {
            foreseen = taking + 1;
        }
        // No limit was met: more than those that take it without difficulty are not needed, but for a promise that some may be lost, of which
        // nobody knows whether it holds.
        if !self.takes.proven && !self.tuning.may_lose() {
            (at_once, foreseen) = (at_once.min(committed), foreseen.min(committed));
        }
        let away_s = self.patience.away_s(now_s, self.tuning.break_even_s(self.boot_s));
        if self.difficult_s >= now_s {
            self.patience.was_late(now_s, away_s);
        }
        let away = (away_s / length_s).min(1e15) as u64;
        self.load.remember(observation.period, away);
        // What helps against lateness is kept as long as what the load asks for.
        let against_late = if late { taking + 1 } else { 0 };
        let safe = count(within.max(now).max(at_most))
            .max(at_once)
            .max(against_late.min(all));
        if !std::mem::replace(&mut self.has_begun, true) {
            // Those that it finds serving may have been needed until now.
            self.needed.observe(observation.period, taking + booting, away);
        }
        let kept = self.needed.observe(observation.period, safe, away);
        // What was needed before is no reason to keep one that an operator wants, once the others take what may come.
        let kept = if safe <= there { kept.min(there) } else { kept };
        // Servers that are lost are replaced: what was wanted before they went is wanted on.
        let mut on = foreseen.max(at_once).max(kept.min(committed.max(self.target)));
        // Where no limit was ever met the others' are not known either: whether they take it is tried, where difficulty would show.
        if leaving > 0 && !self.takes.proven && self.would_show() {
            on = on.min(there);
        }
        let numbers = [
            ("arrival_rate_per_s", arriving),
            ("mean_per_s", load.mean),
            ("mean_over_s", load.mean_over_s),
            ("sure_per_s", load.sure),
            ("sure_over_s", load.sure_over_s),
            ("grown_per_s", within),
            ("foreseen_per_s", at_end),
            ("of_days_per_s", load.of_days),
            ("usable_per_s", usable),
            ("taking_requests", taking as f64),
            ("booting", booting as f64),
            ("overdue", overdue as f64),
            ("needed", safe as f64),
            ("kept", kept as f64),
            ("break_even_s", away_s),
        ];
        // A trial, in which nobody is to be lost, goes by a backlog that users do not feel yet.
        let grows = self.probe.is_running() && self.sojourn.is_growing();
        let in_difficulty = late
            || grows
            || !self.is_promised(now_s) && self.sojourn.is_slower(SLOWER.0)
            || self.sojourn.answers_nothing()
            || self.takes.proven && at_once > taking;
        let load = match self.takes.proven {
            true => {
                let presumed = match self.takes.presumed(&order[..taking]) {
                    0 => String::new(),
                    servers => format!(", presumed of {servers}"),
                };
                let kept_free = self.tuning.kept_free();
                format!("{came}, {taking} servers take {usable:.1}{kept_free}{presumed}")
            }
            false if leaving > 0 => format!(
                "{came}, {} servers take it, {leaving} of which are to be taken out, no limit is known",
                taking + leaving
            ),
            false if in_difficulty => {
                format!("{came}, {taking} servers take requests, their limit is not known")
            }
            false => {
                format!("{came}, {taking} servers take it without any difficulty, their limit is not known")
            }
        };
        let asked = Asked {
            observation,
            counts,
            stay: &order[..taking],
            there,
            on,
            may_come: &may_come,
            now,
            load: &load,
            numbers: &numbers,
        };
        let of_trials = self.go_on_trial(&asked, in_difficulty);
        if let Some(resize) = of_trials.or_else(|| self.let_go(&asked)) {
            return resize;
        }
        if self.swap.is_under_way(booting, overdue) && on <= taking {
            let text = format!("{load}: one is on its way that does it for fewer watts than one of them");
            return self.answer(taking + 1, counts, all, "swapping", text, &numbers);
        }
        if on > taking || booting > 0 {
            let (rule, servers) = match on {
                _ if on > committed => ("grow", format!("{} servers", on.min(all))),
                _ => ("on-its-way", format!("{booting} on their way")),
            };
            let late = match (late, overdue) {
                (true, _) => ", for requests take too long".to_owned(),
                (_, 0) => String::new(),
                _ => format!(", {overdue} of them longer than a boot takes"),
            };
            let rule = if taking == there { "all-on" } else { rule };
            let out = match rule == "all-on" && out > 0 {
                true => format!(", and {out} in maintenance could serve"),
                false => String::new(),
            };
            let text = format!("{load}{may_come}: {servers}{late}{out}");
            // What a boot costs is spent: one that is under way goes on, and is spared as any other when it serves.
            let on = on.max(committed.min(all));
            if rule == "grow" {
                self.patience.has_grown(now_s, away_s);
            }
            return self.answer(on, counts, all, rule, text, &numbers);
        }
        let rate = within.max(now).max(at_most);
        let shown = self
            .takes
            .needed_as_shown(rate, (&order[..taking], ranks), &self.tuning);
        // Nobody goes because of what others are only presumed to take.
        let is_presumed = on < taking && shown >= taking;
        if on < taking && !is_presumed {
            let on = on.max(shown);
            let text = format!(
                "{load}; for {away_s:.0} s, what a boot is worth, {kept} were enough for what may come ({rate:.1}/s)"
            );
            self.patience.has_shrunk(now_s);
            return self.answer(on, counts, all, "shrink", text, &numbers);
        }
        if (is_presumed || !self.takes.proven) && self.may_probe(observation, counts, away_s) {
            self.probe.begin(now_s, None);
            let text = format!("{load}: one is drained on trial");
            return self.answer(taking - 1, counts, all, "probe", text, &numbers);
        }
        let of_servers = (&observation.nodes[..], order, ranks);
        let found = exchange(of_servers, taking, (rate, self.boot_s), &self.takes, &self.tuning)
            .filter(|_| leaving == 0 && safe == taking && self.takes.proven);
        if self.swap.observe(now_s, length_s, found.as_ref())
            && let Some(found) = found
        {
            let text = format!(
                "{load}: for {:.0} s, what a boot and a shutdown are worth, one that is off would have saved {:.1} W in the place of one of them",
                found.pays_after_s, found.saved_w
            );
            return self.answer(taking + 1, counts, all, "swap", text, &numbers);
        }
        let text = match safe < taking {
            true if is_presumed => format!("{load}: {on} would do, if those take it that have not shown it"),
            true => format!("{load}: {safe} would do, for less than the {away_s:.0} s that a boot is worth"),
            false if self.takes.proven && now > usable && !self.is_difficult(now_s) => {
                format!(
                    "{load}: more than their limit was when they were in difficulty last, without any, and there are no others"
                )
            }
            false if self.takes.proven && now > usable => {
                format!("{load}: not enough, and there are no others")
            }
            false => format!("{load}: enough, and none to spare"),
        };
        let rule = match safe < taking {
            true if is_presumed => "presumed",
            true => "sparing",
            false if self.takes.proven && now > usable => "all-on",
            false => "fits",
        };
        self.answer(taking, counts, all, rule, text, &numbers)
    }

    /// Whether the servers are in difficulty, or were a moment ago.
    fn is_difficult(&self, now_s: f64) -> bool {
        self.difficult_s >= now_s - EASY_S
    }

    /// Whether difficulty would show.
    fn would_show(&self) -> bool {
        self.takes.was_met() || self.sojourn.is_known()
    }

    /// Whether one can be drained on trial: nothing has changed for as long as a boot is worth, and difficulty would show.
    fn may_probe(&self, observation: &Observation, counts: Counts, away_s: f64) -> bool {
        let now_s = observation.at.get();
        let least = self.tuning.min_servers.max(self.tuning.reserve + 1);
        // That others could be lost too is not tried.
        let promises = self.tuning.may_lose() || self.tuning.surge > 1.0;
        let is_calm = observation
            .nodes
            .iter()
            .zip(&self.servers)
            .all(|(node, of)| match node.state {
                // Of the one that went last too: what comes as rarely as a boot is worth is to be seen without it first.
                PowerState::Serving | PowerState::Off | PowerState::Maintenance => {
                    now_s - of.since_s >= away_s.max(CALM_S)
                }
                _ => false,
            });
        let may_lose_one = !promises && counts.taking > least;
        may_lose_one && self.would_show() && is_calm && self.load.is_usual() && self.probe.may_begin(now_s)
    }
}

impl Law for Elastic {
    fn name(&self) -> &'static str {
        "elastic"
    }

    fn levers(&self) -> &'static [Lever] {
        &[Lever::Servers]
    }

    fn is_informed(&self, observation: &Observation) -> bool {
        observation.demand().is_some()
    }

    fn decide(&mut self, observation: &Observation) -> Decision {
        let (resize, ranks) = self.resize(observation);
        let is_out = observation.nodes.iter().any(|node| node.state.is_taken_out());
        let leave = self.servers.iter().filter(|_| is_out).map(|server| server.leave);
        Decision {
            server_ranks: ranks,
            leave: leave.collect(),
            ..resize.into()
        }
    }

    fn recalls(&self) -> bool {
        true
    }

    fn recall(&mut self, history: &LoadHistory) {
        self.load.recall(history);
    }

    fn forget(&mut self) {
        self.load.forget();
        self.break_off();
        self.sojourn.forget_now();
        (self.late, self.blind_since_s) = (0, None);
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
