//! Whether each server answers, and what is wrong with it.

use super::Servers;
use super::failing::FAILING;
use super::own_checks::answers_by_accepts;
use super::reused::reused as words;
use super::unheard::{Heard, UNHEARD};
use crate::resize::balancer::{Admission, Look};
use crate::resize::check::NoAnswer;
use crate::resize::queues::{Counted, Shown};
use headroom_console::say;
use headroom_control::resize::{Cause, Health, Maintenance, PowerState};
use std::time::{Duration, Instant};

/// What was found of one server.
pub(super) struct Seen {
    /// What its accept queue counted, where that is known.
    pub counted: Option<Counted>,
    /// What is wrong with it, or with what is known of it.
    pub trouble: Vec<String>,
}

impl Servers {
    /// Asks whether each server answers, and what its switch and the balancer say of it.
    pub(super) fn check(
        &mut self,
        shown: &[Option<Shown>],
        look: &Result<Look, String>,
        out: &[Option<Maintenance>],
    ) -> Vec<Seen> {
        self.health.clear();
        let states = self.power_states();
        let lost_after = Duration::from_secs_f64(self.parts.tuning.lost_s);
        let mut all = Vec::new();
        let mut silent = Vec::new();
        let now = Instant::now();
        let is_patient = self.held.is_patient(now);
        for (at, server) in self.parts.servers.iter().enumerate() {
            let (counted, unknown) = match &shown[at] {
                Some(Shown::Counted(counted)) => (Some(*counted), None),
                Some(Shown::Unknown(why)) => (None, Some(why.clone())),
                Some(Shown::Nobody) | None => (None, None),
            };
            let begun = server.is_checked_there.then(|| self.parts.checks.begun(at));
            let (anybody, clients) = counted.map_or((false, false), |counted| {
                let clients = self.accepted_checks[at].leave_clients(&counted, begun);
                (counted.accepts > 0.0, clients)
            });
            // Clients whose connections stay open are not seen to be accepted, one whose workers all have such accepts nobody, and what it
            // answers the balancer tells, whether or not its accept queue can be read. One where nobody listens answers nobody.
            let reused = self.reused[at];
            let is_there = !matches!(shown[at], Some(Shown::Nobody));
            let answers_clients = reused.is_alive() && is_there && (counted.is_some() || reused.is_so());
            let clients = clients || answers_clients;
            let accepts = answers_by_accepts(states[at], out[at].is_some(), (anybody, clients));
            let answers = self.parts.checks.answers(at);
            let is_silent = matches!(answers, Err(NoAnswer::Silent(_)));
            if answers.is_ok() {
                self.reused[at].is_checked();
            }
            if !states[at].takes_requests() && states[at] != PowerState::Draining {
                self.reused[at].is_away();
            }
            let kept = counted.and_then(|counted| counted.kept);
            let is_behind = !accepts && is_silent && is_there && states[at].takes_requests();
            let in_doubt = is_behind && reused.may_be_held(kept, is_patient);
            silent.push(is_behind && reused.has_open(kept));
            if in_doubt && !reused.may_be_held(kept, false) && self.held.news() {
                say::note!(
                    "warning: {}: no answer, as another just before: connections that stay open may hold all its workers, so it is not switched \
                     off for a minute; set {}",
                    server.name,
                    self.parts.balancer.no_reuse()
                );
            }
            let heard = match &shown[at] {
                _ if !states[at].takes_requests() => Heard::Gone,
                Some(Shown::Nobody) if answers.is_ok() => Heard::Nobody,
                Some(Shown::Counted(_)) => Heard::Counted,
                _ => Heard::Unknown,
            };
            if let Some(news) = self.unheard[at].observe(heard, Instant::now(), lost_after) {
                match news {
                    true => say::note!("warning: {}: {UNHEARD}", server.name),
                    false => say::note!("{}: somebody listens at its accept_queue again", server.name),
                }
            }
            let member = look.as_ref().ok().map(|look| look.members[at]);
            let failure = server.switch_worker.take_failure();
            self.health.push(Health {
                answering: accepts || in_doubt || answers.is_ok(),
                in_doubt,
                failing: self.failing[at].is_so(),
                powered: server.switch_worker.powered(),
                // What it has is what it will have only once the balancer gives it nothing new.
                connections: member
                    .filter(|member| member.admission != Admission::Ready)
                    .and_then(|member| member.in_flight),
                command_failed: failure.is_some(),
            });
            let takes = states[at].takes_requests();
            let mut trouble: Vec<String> = Vec::new();
            if failure.is_some() {
                self.failed[at] = failure;
            } else if !matches!(states[at], PowerState::Failed(_)) {
                self.failed[at] = None;
            }
            trouble.extend(self.failed[at].clone().or_else(|| server.switch_worker.trouble()));
            let is_to_answer = matches!(states[at], PowerState::Failed(Cause::Boot | Cause::Lost));
            let why = answers.err().filter(|_| !accepts && takes || is_to_answer);
            trouble.extend(why.map(|why| why.to_string()));
            if takes && member.is_some_and(|member| member.well == Some(false)) {
                trouble.push("the balancer's own check finds it down".to_owned());
            }
            trouble.extend(unknown);
            trouble.extend(self.unheard[at].is_sure().then(|| UNHEARD.to_owned()));
            trouble.extend((takes && self.failing[at].is_so()).then(|| FAILING.to_owned()));
            trouble.extend((takes && reused.is_so()).then(|| words(self.parts.balancer.no_reuse())));
            all.push(Seen { counted, trouble });
        }
        let lost = states
            .iter()
            .map(|state| *state == PowerState::Failed(Cause::Lost));
        self.held.observe(now, silent, lost);
        all
    }
}

#[cfg(test)]
#[path = "seen_tests.rs"]
mod tests;
