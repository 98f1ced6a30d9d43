//! Servers that an operator takes out: at once where the others met limits that are enough, else one at a time and on trial.
//!
//! What the others take is not known where no limit was met. Then the server that is taken out is the trial: it is drained, stays as it
//! is, and comes back if the others come into difficulty. Only after that it is let go, and the next one waits for a time without any.

use super::probe::Trial;
use super::states::Counts;
use super::{CALM_S, Elastic};
use crate::observation::Observation;
use crate::resize::{Leave, PowerState, Resize};

/// A server is not let go before it was on trial for so long, seconds: difficulty is found by what came in some ten.
const LEAST_TRIAL_S: f64 = 20.0;

/// What is asked of the servers in a period.
pub(super) struct Asked<'a> {
    pub observation: &'a Observation,
    pub counts: Counts,
    /// Those that take requests and stay, and how many there are that are not taken out.
    pub stay: &'a [usize],
    pub there: usize,
    /// How many are to be on.
    pub on: usize,
    pub now: f64,
    /// What may come, in words; nothing where that is no more than what came.
    pub may_come: &'a str,
    /// What came and what takes it, in words; and what else the reason says.
    pub load: &'a str,
    pub numbers: &'a [(&'static str, f64)],
}

impl Elastic {
    /// Ends a trial of which nobody knows how it goes: its server comes back.
    pub(super) fn break_off(&mut self) {
        let of = self.probe.of();
        if self.probe.forget() {
            match of.and_then(|at| self.servers.get_mut(at)) {
                Some(server) => server.leave = Leave::Waits,
                None => self.target += 1,
            }
        }
    }

    fn reply(&mut self, asked: &Asked<'_>, servers: usize, rule: &'static str, text: String) -> Resize {
        let all = asked.observation.nodes.len();
        self.answer(servers, asked.counts, all, rule, text, asked.numbers)
    }

    /// What comes of the trial that runs; nothing where none does.
    pub(super) fn go_on_trial(&mut self, asked: &Asked<'_>, in_difficulty: bool) -> Option<Resize> {
        let now_s = asked.observation.at.get();
        let (load, taking, on) = (asked.load, asked.counts.taking, asked.on);
        let of = self.probe.of().and_then(|at| Some((at, *self.servers.get(at)?)));
        let mut difficulty = in_difficulty;
        let mut trial_s = self.tuning.trial_s;
        if let Some((at, server)) = of {
            trial_s = trial_s.max(LEAST_TRIAL_S);
            match (server.state, server.leave) {
                // It is not drained yet.
                (PowerState::Leaving, Leave::OnTrial) => self.probe.begin(now_s, Some(at)),
                // Somebody else gave it back, who had cause to.
                (PowerState::Leaving, _) => difficulty = true,
                (PowerState::Maintenance, _) => difficulty |= self.difficult_s >= now_s,
                // The operator did.
                _ => self.break_off(),
            }
        } else if self.probe.is_running() && asked.counts.leaving > 0 {
            self.probe.forget();
            let text =
                format!("{load}: the one that was drained on trial comes back before another is taken out");
            return Some(self.reply(asked, on.max(taking + 1), "maintenance-waits", text));
        }
        let which = match of {
            Some(_) => "the one to be taken out that was drained on trial",
            None => "the one that was drained on trial",
        };
        match self
            .probe
            .observe(now_s, (difficulty, self.load.is_usual()), trial_s)
        {
            Trial::None => None,
            Trial::Running(for_s) if on <= taking => {
                let which = if of.is_some() {
                    "one to be taken out"
                } else {
                    "one"
                };
                let text = format!(
                    "{load}: {which} is drained on trial for {for_s:.0} s, and the others do without it"
                );
                Some(self.reply(asked, taking, "probing", text))
            }
            Trial::Running(_) => {
                self.break_off();
                None
            }
            Trial::Failed => {
                let comes = self.end_trial(now_s, of.map(|(at, _)| at), Leave::Waits);
                let waits_s = self.probe.waits_s(now_s);
                let text = format!(
                    "{load}: in difficulty without {which}, which comes back; none is tried for {waits_s:.0} s"
                );
                Some(self.reply(asked, on.max(taking + comes), "probe-failed", text))
            }
            Trial::Passed => {
                self.end_trial(now_s, of.map(|(at, _)| at), Leave::Replaced);
                let text = format!("{load}: {which} is not missed");
                Some(self.reply(asked, taking, "probe-passed", text))
            }
        }
    }

    /// Says of the server that is taken out what came of its trial. How many come back of those that are in the number.
    fn end_trial(&mut self, now_s: f64, of: Option<usize>, leave: Leave) -> usize {
        let Some(server) = of.and_then(|at| self.servers.get_mut(at)) else {
            return 1;
        };
        server.leave = leave;
        if leave == Leave::Replaced {
            // Only now it is gone.
            server.since_s = now_s;
        }
        // The next one waits for a time without difficulty that begins now.
        self.difficult_s = now_s;
        0
    }

    /// What is to be done about those that are to be taken out; nothing where that asks for nothing.
    pub(super) fn let_go(&mut self, asked: &Asked<'_>) -> Option<Resize> {
        let Counts {
            taking,
            leaving,
            booting,
            ..
        } = asked.counts;
        let (now_s, load, on) = (asked.observation.at.get(), asked.load, asked.on);
        if leaving == 0 {
            return None;
        }
        let (would_show, has_shown) = (
            self.would_show(),
            self.takes.have_shown(asked.now, asked.stay, &self.tuning),
        );
        // A bound is no limit: what was seen in passing may have been another load.
        let is_known = has_shown && (self.takes.presumed(asked.stay) == 0 || !would_show);
        for server in self
            .servers
            .iter_mut()
            .filter(|one| one.state == PowerState::Leaving)
        {
            server.leave = if is_known { Leave::Replaced } else { Leave::Waits };
        }
        let waits = |why: &str| format!("{load}{why}, so {leaving} to be taken out serve on");
        if on > asked.there {
            let text = match self.takes.proven {
                true => waits(&format!(
                    "{}: too much for the {} that are not to be taken out",
                    asked.may_come, asked.there
                )),
                false => waits(
                    ": the others have not shown that they take it, and their difficulty would not show",
                ),
            };
            return Some(self.reply(asked, on, "maintenance-waits", text));
        }
        // Those that come in their place come first.
        if is_known || on > taking || booting > 0 {
            return None;
        }
        let served_s = asked.stay.iter().map(|at| now_s - self.servers[*at].since_s);
        let calm_s = served_s.fold(now_s - self.difficult_s, f64::min);
        if calm_s >= CALM_S && self.probe.may_begin(now_s) && self.load.is_usual() {
            let next = self
                .servers
                .iter()
                .position(|one| one.state == PowerState::Leaving)?;
            self.servers[next].leave = Leave::OnTrial;
            self.probe.begin(now_s, Some(next));
            let text = format!("{load}: one to be taken out is drained on trial");
            return Some(self.reply(asked, taking, "probe", text));
        }
        let text = match self.probe.waits_s(now_s) {
            0.0 => waits(&format!(
                ": whether the others take it is tried after {CALM_S:.0} s without difficulty, {:.0} s until now",
                calm_s.max(0.0)
            )),
            waits_s => waits(&format!(
                ": the others were in difficulty without one that was drained on trial, and are tried again in {waits_s:.0} s"
            )),
        };
        Some(self.reply(asked, taking, "maintenance-waits", text))
    }
}

#[cfg(test)]
#[path = "leave_tests.rs"]
mod tests;
