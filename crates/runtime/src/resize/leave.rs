//! The end: every server is left serving, for nobody will start one any more.

use super::balancer::{Admission, Wanted};
use super::progress::{Is, progress};
use super::servers::{Parts, Servers};
use super::switch_worker::PowerOrder;
use headroom_console::say;
use headroom_control::resize::{Maintenance, PowerState};
use std::time::{Duration, Instant};

/// A check or a switch that has not answered once in this time is not waited for before the servers are started.
const MAX_FIRST_ANSWER: Duration = Duration::from_secs(10);
/// How often what is still missing is reported by who goes on without a limit.
const SAY_AGAIN: Duration = Duration::from_secs(300);
/// How often it is said how far it is, where somebody waits.
const PROGRESS: Duration = Duration::from_secs(10);
/// How seldom at most, while it stays the same.
const PROGRESS_MOST: Duration = Duration::from_secs(120);
/// How often the servers are looked at.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// A server that was commanded to start, and of whose power nothing is heard, is commanded again after this long. No sooner: a service
/// processor takes some seconds to switch what it was commanded to, says meanwhile that the power is off, and may begin anew with
/// each order.
const START_AGAIN: Duration = Duration::from_secs(15);
/// One that could not be commanded is commanded again after this long.
const TELL_AGAIN: Duration = Duration::from_secs(5);
/// The balancer has this long for the last word.
const LAST_WORD: Duration = Duration::from_secs(3);

/// Starts every server that does not answer and gives requests to each that does; at the end of `wait` to all, for the
/// balancer's own checks keep requests from one that is down. What could not be done, in words.
pub fn leave(cluster: &mut Servers, wait: Duration) -> Vec<String> {
    // One that was ordered to stop answers for a while yet: it does not count until it fell silent, or was not stopped after
    // all.
    let states = cluster.states();
    let going = states
        .iter()
        .map(|(_, state)| *state == PowerState::Stopping)
        .collect();
    let silent = cluster.silent_for();
    bring_up(&mut cluster.parts, going, &silent, wait, None)
}

/// The same for a controller that cannot do it any more. It needs the power switches alone to begin with, and goes on until
/// every server answers and gets requests, or until `over` says that somebody else has them or that it takes too long. Whether every
/// server is back.
pub fn restore(parts: &mut Parts, wait: Duration, over: &mut dyn FnMut() -> bool) -> bool {
    let mut is_over = false;
    let mut over = || {
        is_over = is_over || over();
        is_over
    };
    let begun = Instant::now();
    let unknown = |parts: &Parts| {
        !(parts.checks.all_checked() && parts.servers.iter().all(|server| server.switch_worker.asked()))
    };
    // Who runs is not started again.
    while unknown(parts) && begun.elapsed() < MAX_FIRST_ANSWER {
        if over() {
            return false;
        }
        std::thread::sleep(LOOK_AGAIN);
    }
    let going = vec![false; parts.servers.len()];
    let silent = vec![Duration::ZERO; parts.servers.len()];
    bring_up(parts, going, &silent, wait, Some(&mut over));
    !is_over
}

fn bring_up(
    parts: &mut Parts,
    mut going: Vec<bool>,
    silent: &[Duration],
    wait: Duration,
    mut over: Option<&mut dyn FnMut() -> bool>,
) -> Vec<String> {
    // One that was ordered to stop by a controller that is no more answers until it is down, and is started then.
    let settled = Instant::now() + Duration::from_secs_f64(parts.tuning.stop_timeout_s);
    let count = parts.servers.len();
    // What an operator has is his: it is not started, and gets what it has.
    let names = parts.servers.iter().map(|server| &server.name);
    let out: Vec<Option<Maintenance>> = names.map(|name| parts.taken_out.of(name)).collect();
    let (mut is_drained, mut is_back) = (vec![false; count], vec![false; count]);
    let theirs = parts.taken_out.handed_over().unwrap_or_default();
    let names = parts.servers.iter().map(|server| &server.name);
    let mut is_handed_over: Vec<bool> = names
        .zip(&out)
        .map(|(name, out)| out.is_some() && theirs.get(name).is_some_and(Option::is_some))
        .collect();
    let mut ordered = vec![false; count];
    let mut starts = vec![Start::at(Instant::now()); count];
    let boots_within = Duration::from_secs_f64(parts.tuning.boot_timeout_s);
    let mut hangs: Vec<Hang> = silent
        .iter()
        .map(|silent| Hang::after(Instant::now(), *silent))
        .collect();
    let wanted = |ready: &[bool], is_back: &[bool], is_handed_over: &[bool]| -> Vec<Wanted> {
        let one = |at: usize| Wanted {
            most_in_flight: None,
            admission: match ready[at] {
                _ if is_back[at] => Some(Admission::Ready),
                // Also at a gateway that starts anew meanwhile.
                _ if is_handed_over[at] => Some(Admission::Out),
                _ if out[at].is_some() => None,
                true => Some(Admission::Ready),
                false => Some(Admission::Out),
            },
            warming: false,
        };
        (0..ready.len()).map(one).collect()
    };
    let mut until = Instant::now() + wait;
    let mut last_word = false;
    let mut well: Vec<bool> = Vec::new();
    let (mut say_at, mut say_after, mut said) = (Instant::now() + PROGRESS, PROGRESS, String::new());
    loop {
        if over.as_mut().is_some_and(|over| over()) {
            return Vec::new();
        }
        let mut answering: Vec<bool> = (0..count).map(|at| parts.checks.answers(at).is_ok()).collect();
        // Where nobody answers it is perhaps this machine that is cut off, and they serve.
        let others = answering.contains(&true);
        let serves = answering.clone();
        for (at, server) in parts.servers.iter().enumerate() {
            if out[at].is_some() {
                answering[at] = true;
                continue;
            }
            let has_failed = server.switch_worker.take_failure().is_some();
            going[at] = going[at] && answering[at] && !has_failed;
            if going[at] {
                answering[at] = false;
                continue;
            }
            let now = Instant::now();
            // What the balancer finds well serves, though it cannot be asked from here.
            let is_well = answering[at] || well.get(at).copied().unwrap_or(false);
            let powered = server.switch_worker.powered();
            if hangs[at].is_found(now, powered, is_well, (others, boots_within))
                && !server.switch_worker.busy()
            {
                say::note!(
                    "{} is on and does not answer for longer than a boot takes ({:.0} s, power.boot_timeout_s): it is switched \
                     off and on again",
                    server.name,
                    boots_within.as_secs_f64()
                );
                server.switch_worker.set_eager(true);
                server.switch_worker.order(PowerOrder::Off { force: true });
                starts[at] = Start::at(now + START_AGAIN);
                starts[at].was_on = true;
                continue;
            }
            if has_failed && ordered[at] {
                starts[at].has_failed(now);
            }
            if starts[at].is_due(now, server.switch_worker.powered())
                && !answering[at]
                && !server.switch_worker.busy()
            {
                if !ordered[at] {
                    say::note!("starting {} before the end", server.name);
                }
                server.switch_worker.set_eager(true);
                server.switch_worker.order(PowerOrder::On);
                ordered[at] = true;
                starts[at].ordered(now);
            }
        }
        let ready: Vec<bool> = if last_word {
            vec![true; count]
        } else {
            answering.clone()
        };
        let look = parts.balancer.look(parts.period);
        if let Ok(look) = &look {
            well = look
                .members
                .iter()
                .map(|member| member.well == Some(true))
                .collect();
            for (at, (member, out)) in look.members.iter().zip(&out).enumerate() {
                is_drained[at] |= out.is_some_and(|out| !out.at_once)
                    && member.admission == Admission::Drain
                    && !is_handed_over[at];
                is_handed_over[at] |= out.is_some() && member.admission == Admission::Out;
            }
        }
        // One that was still being drained, perhaps on trial, was not handed over: nobody sees any more whether the others do without it.
        for (at, server) in parts.servers.iter().enumerate() {
            if is_drained[at] && serves[at] && !std::mem::replace(&mut is_back[at], true) {
                say::note!(
                    "{} was to be taken out and was still being drained: it gets requests again until a controller drains it anew",
                    server.name
                );
            }
        }
        let wanted = wanted(&ready, &is_back, &is_handed_over);
        let reported = parts.balancer.want(&wanted, parts.period);
        let admitted = look.as_ref().is_ok_and(|look| {
            let mut members = look.members.iter().zip(&wanted);
            members.all(|(member, wanted)| {
                wanted.admission != Some(Admission::Ready) || member.admission == Admission::Ready
            })
        });
        let served = answering.iter().all(|answers| *answers);
        let enough = match over {
            Some(_) => served && Instant::now() >= settled,
            None => served || last_word,
        };
        if admitted && reported.is_ok() && enough {
            return left(parts, &answering);
        }
        if over.is_some() && Instant::now() >= say_at {
            let names = parts.servers.iter().map(|server| server.name.as_str());
            let are = (0..count).map(|at| match (answering[at], out[at].is_some() && !is_back[at]) {
                (_, true) => Is::TheOperators,
                (true, false) => Is::Answering,
                (false, false) => Is::Silent,
            });
            let servers: Vec<_> = names.zip(are).collect();
            let left = settled.saturating_duration_since(Instant::now());
            let text = progress(&servers, left);
            // What stays so for long, as where the balancer is away, is said ever more seldom.
            say_after = match text == said {
                true => (2 * say_after).min(PROGRESS_MOST),
                false => PROGRESS,
            };
            say::note!("{text}");
            say_at = Instant::now() + say_after;
            said = text;
        }
        if Instant::now() >= until {
            if last_word {
                let mut left = left(parts, &answering);
                if !admitted || reported.is_err() {
                    let why = look
                        .err()
                        .or(reported.err())
                        .unwrap_or_else(|| "it has not taken every change".to_owned());
                    left.push(format!(
                        "the balancer did not take the command that every server gets requests: {why}"
                    ));
                }
                if over.is_none() {
                    return left;
                }
                for left in &left {
                    say::note!("warning: {left}; it is tried on");
                }
                until = Instant::now() + SAY_AGAIN;
                continue;
            }
            last_word = true;
            until = Instant::now() + LAST_WORD;
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// Since when a server is on and silent.
#[derive(Clone, Copy, Debug)]
struct Hang {
    since: Instant,
    /// How long the controller has waited for it, which had started it.
    waited: Duration,
}

impl Hang {
    fn after(now: Instant, silent: Duration) -> Self {
        Self {
            since: now.checked_sub(silent).unwrap_or(now),
            waited: silent,
        }
    }

    /// Whether it hangs: its switch says that it is on, and it was silent for longer than a boot takes, while another answers or the
    /// controller itself had started it in vain. From then on it has that time again.
    fn is_found(
        &mut self,
        now: Instant,
        powered: Option<bool>,
        is_well: bool,
        (others_answer, boots_within): (bool, Duration),
    ) -> bool {
        if is_well || powered == Some(false) {
            self.since = now;
        }
        let is_told_apart = others_answer || self.waited >= boots_within;
        let hangs = is_told_apart && powered == Some(true) && now.duration_since(self.since) > boots_within;
        if hangs {
            self.since = now;
        }
        hangs
    }
}

/// When one server is to be commanded to start.
#[derive(Clone, Copy, Debug)]
struct Start {
    /// Not before.
    due: Instant,
    /// It was on since it was commanded.
    was_on: bool,
}

impl Start {
    fn at(due: Instant) -> Self {
        Self { due, was_on: false }
    }

    /// Whether it is to be commanded now, by what its switch says of its power. One that was on and is off was shutting down, and
    /// can be started at once; one of which nothing is heard may be booting on.
    fn is_due(&mut self, now: Instant, powered: Option<bool>) -> bool {
        if powered == Some(true) {
            self.was_on = true;
            self.due = now + START_AGAIN;
        }
        now >= self.due || self.was_on && powered == Some(false)
    }

    fn ordered(&mut self, now: Instant) {
        *self = Self::at(now + START_AGAIN);
    }

    fn has_failed(&mut self, now: Instant) {
        self.due = now + TELL_AGAIN;
    }
}

fn left(parts: &Parts, answering: &[bool]) -> Vec<String> {
    let servers = parts.servers.iter().enumerate();
    servers
        .filter(|(at, _)| !answering[*at])
        .map(|(_, server)| {
            let why = server
                .switch_worker
                .trouble()
                .map_or(String::new(), |why| format!(": {why}"));
            format!("{} does not answer yet{why}", server.name)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::balancer::{Balancer, Look};
    use super::super::servers::TakenOut;
    use super::super::testing::{Obedient, parts, told};
    use super::*;
    use std::net::TcpListener;
    use std::sync::{Arc, Mutex};

    /// A balancer that is not reached at first, and takes then what it was told meanwhile.
    struct Late(Obedient, u32);

    impl Balancer for Late {
        fn no_reuse(&self) -> &'static str {
            self.0.no_reuse()
        }

        fn name(&self) -> String {
            self.0.name()
        }

        fn look(&mut self, patience: Duration) -> Result<Look, String> {
            self.1 = self.1.saturating_sub(1);
            match self.1 {
                0 => self.0.look(patience),
                _ => Err("it is not reached".to_owned()),
            }
        }

        fn want(&mut self, wanted: &[Wanted], patience: Duration) -> Result<(), String> {
            self.0.want(wanted, patience)
        }

        fn notes(&self) -> Vec<String> {
            Vec::new()
        }
    }

    /// What a server that is to be taken out gets after the end of a run, by what it got before, and whether its operator had it.
    fn after_the_end(at_once: bool, gets: Admission, his: bool) -> Option<Admission> {
        let listeners = [0, 1].map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
        let wanted = Arc::new(Mutex::new(vec![told(Admission::Out), told(gets)]));
        let taken_out = TakenOut::default();
        let how = Maintenance {
            at_once,
            ..Maintenance::default()
        };
        taken_out.replace([("web2".to_owned(), how)].into());
        let theirs = [("web2".to_owned(), his.then_some(how))];
        taken_out.hand_over(theirs.into()).unwrap();
        let mut parts = parts(&listeners, &wanted, &taken_out);
        parts.tuning.stop_timeout_s = 0.5;
        parts.balancer = Box::new(Late(Obedient(Arc::clone(&wanted)), 3));
        assert!(restore(&mut parts, Duration::from_secs(20), &mut || false));
        let wanted = wanted.lock().unwrap();
        assert_eq!(wanted[0].admission, Some(Admission::Ready));
        wanted[1].admission
    }

    #[test]
    fn one_that_is_handed_over_or_forced_stays_as_it_is_and_one_that_was_being_drained_serves_again() {
        for (at_once, gets, his, wanted) in [
            (false, Admission::Drain, false, Admission::Ready),
            (true, Admission::Drain, false, Admission::Drain),
            (false, Admission::Out, false, Admission::Out),
            (false, Admission::Ready, false, Admission::Ready),
            // At a gateway that was started since.
            (false, Admission::Ready, true, Admission::Out),
            (false, Admission::Drain, true, Admission::Out),
            (true, Admission::Ready, true, Admission::Out),
        ] {
            let gets_then = after_the_end(at_once, gets, his);
            assert_eq!(gets_then, Some(wanted), "{at_once} {gets:?} {his}");
        }
    }

    /// Looks at a server each second, and tells it where that is due; the seconds at which it was commanded.
    fn reported(start: &mut Start, from: Instant, powered: &[Option<bool>]) -> Vec<u64> {
        let mut reported = Vec::new();
        for (second, powered) in (0..).zip(powered) {
            let now = from + Duration::from_secs(second);
            if start.is_due(now, *powered) {
                start.ordered(now);
                reported.push(second);
            }
        }
        reported
    }

    #[test]
    fn one_whose_switch_fails_while_it_boots_is_not_told_again() {
        let now = Instant::now();
        let (on, off) = (Some(true), Some(false));
        let mut start = Start::at(now);
        // Its service processor says for a while that it is off, then its boot begins, and one look fails.
        let boots = [off, None, off, off, on, on, None, on, on];
        assert_eq!(reported(&mut start, now, &boots), [0]);
        // A switch that fails on and on: it is commanded again, for nothing is known of it, but late.
        let lost = [None; 20];
        let later = now + Duration::from_secs(boots.len() as u64);
        assert_eq!(reported(&mut start, later, &lost), [START_AGAIN.as_secs() - 1]);
    }

    #[test]
    fn one_that_is_on_and_silent_is_found_to_hang_once_a_boot_time() {
        let now = Instant::now();
        let second = |at: u64| now + Duration::from_secs(at);
        let found_beside = |others: bool, silent_s: u64, powered: Option<bool>, well: bool| -> Vec<u64> {
            let mut hang = Hang::after(now + Duration::from_secs(1_000), Duration::from_secs(silent_s));
            (1_000..1_700)
                .filter(|at| hang.is_found(second(*at), powered, well, (others, Duration::from_secs(300))))
                .collect()
        };
        let found = |silent_s, powered, well| found_beside(true, silent_s, powered, well);
        // Where no other answers it may be this machine that is cut off: only what was started in vain is known to hang.
        assert!(found_beside(false, 0, Some(true), false).is_empty());
        assert_eq!(found_beside(false, 310, Some(true), false), [1_000, 1_301, 1_602]);
        assert_eq!(found(0, Some(true), false), [1_301, 1_602]);
        // The controller has waited for it before.
        assert_eq!(found(290, Some(true), false), [1_011, 1_312, 1_613]);
        // Of one whose switch does not say that it is on nothing is known, and one that the balancer finds well serves.
        assert!(found(1_000, None, false).is_empty());
        assert!(found(1_000, Some(false), false).is_empty());
        assert!(found(1_000, Some(true), true).is_empty());
    }

    #[test]
    fn one_that_shuts_down_is_told_as_soon_as_it_is_off_and_then_left_in_peace() {
        let now = Instant::now();
        let (on, off) = (Some(true), Some(false));
        let mut start = Start::at(now);
        assert_eq!(
            reported(&mut start, now, &[on, on, None, off, off, off, off]),
            [3]
        );
        // It could not be commanded.
        let later = now + Duration::from_secs(7);
        start.has_failed(later);
        assert_eq!(reported(&mut start, later, &[off; 7]), [TELL_AGAIN.as_secs()]);
    }

    #[test]
    fn one_that_does_not_say_whether_it_is_on_is_told_again_and_again() {
        let now = Instant::now();
        let again = START_AGAIN.as_secs();
        let reported = reported(&mut Start::at(now), now, &[None; 40]);
        assert_eq!(reported, [0, again, 2 * again]);
    }
}
