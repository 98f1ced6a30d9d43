//! The worker of one server's power switch: a thread that does what it is commanded, for switches are slow.

use headroom_node::switch::{PowerSwitch, SwitchError};
use serde::{Deserialize, Serialize};
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often a server that boots or stops is asked.
const EAGER_POLL: Duration = Duration::from_secs(1);

/// What a switch is commanded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerOrder {
    /// On.
    On,
    /// Off.
    Off {
        /// By force.
        force: bool,
    },
}

/// What came of orders: successes and failures, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcomes {
    /// Carried out.
    pub done: u64,
    /// Not carried out.
    pub failed: u64,
}

#[derive(Debug, Default)]
struct State {
    order: Option<PowerOrder>,
    busy: bool,
    eager: bool,
    over: bool,
    asked: bool,
    powered: Option<bool>,
    failure: Option<String>,
    trouble: Option<String>,
    outcomes: Outcomes,
}

/// The hand. Dropped, it does nothing more; what it is doing it ends, within its switch's time limit.
#[derive(Debug)]
pub struct SwitchWorker(Arc<(Mutex<State>, Condvar)>);

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SwitchWorker {
    /// A hand on a switch; it asks for the power's state at once, and then in this time.
    ///
    /// # Errors
    /// Where the thread cannot be started.
    pub fn start(name: &str, switch: Box<dyn PowerSwitch>, poll: Duration) -> io::Result<Self> {
        let shared = Arc::new((Mutex::new(State::default()), Condvar::new()));
        let theirs = Arc::clone(&shared);
        let server = name.to_owned();
        std::thread::Builder::new()
            .name(format!("power-{name}"))
            .spawn(move || work(&server, switch, poll, &theirs))?;
        Ok(Self(shared))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.0.0)
    }

    /// Tells it to do something. One order waits at most; a later one takes its place.
    pub fn order(&self, order: PowerOrder) {
        let mut state = self.lock();
        state.order = Some(order);
        // What was known is of the time before.
        state.powered = None;
        drop(state);
        self.0.1.notify_all();
    }

    /// Whether the server boots or stops, so that its power is asked for more often.
    pub fn set_eager(&self, eager: bool) {
        let mut state = self.lock();
        if state.eager != eager {
            state.eager = eager;
            drop(state);
            self.0.1.notify_all();
        }
    }

    /// Whether its power is on; `None` where that is not known.
    pub fn powered(&self) -> Option<bool> {
        self.lock().powered
    }

    /// Whether the power's state was asked for at least once.
    pub fn asked(&self) -> bool {
        self.lock().asked
    }

    /// Whether an order is under way or waits.
    pub fn busy(&self) -> bool {
        let state = self.lock();
        state.busy || state.order.is_some()
    }

    /// Why an order failed, once.
    pub fn take_failure(&self) -> Option<String> {
        self.lock().failure.take()
    }

    /// What is wrong with the switch now; `None` where nothing is.
    pub fn trouble(&self) -> Option<String> {
        self.lock().trouble.clone()
    }

    /// What came of orders.
    pub fn outcomes(&self) -> Outcomes {
        self.lock().outcomes
    }
}

impl Drop for SwitchWorker {
    fn drop(&mut self) {
        self.lock().over = true;
        self.0.1.notify_all();
    }
}

fn work(name: &str, mut switch: Box<dyn PowerSwitch>, poll: Duration, shared: &(Mutex<State>, Condvar)) {
    let (state, changed) = shared;
    let mut asked_at: Option<Instant> = None;
    loop {
        let order = {
            let mut state = lock(state);
            loop {
                if state.over {
                    return;
                }
                if let Some(order) = state.order.take() {
                    state.busy = true;
                    break Some(order);
                }
                let every = if state.eager { EAGER_POLL.min(poll) } else { poll };
                let left = asked_at.map_or(Duration::ZERO, |at| every.saturating_sub(at.elapsed()));
                if left.is_zero() {
                    break None;
                }
                state = changed
                    .wait_timeout(state, left)
                    .unwrap_or_else(PoisonError::into_inner)
                    .0;
            }
        };
        let Some(order) = order else {
            let powered = switch.state();
            asked_at = Some(Instant::now());
            let mut state = lock(state);
            let was_asked = std::mem::replace(&mut state.asked, true);
            // An order that came meanwhile has made it old.
            if state.order.is_none() {
                let trouble = powered.as_ref().err().map(ToString::to_string);
                // Told when it begins and when it ends, for an order may be hours away. (The first is told at the start.)
                match (&trouble, &state.trouble) {
                    (Some(why), None) if was_asked => {
                        tracing::warn!(server = name, "its power cannot be asked for: {why}");
                    }
                    (None, Some(_)) => tracing::info!(server = name, "its power can be asked for again"),
                    _ => {}
                }
                state.trouble = trouble;
                state.powered = powered.unwrap_or(None);
            }
            continue;
        };
        tracing::info!(server = name, ?order, "an order goes to the power switch");
        let outcome: Result<(), SwitchError> = match order {
            PowerOrder::On => switch.on(),
            PowerOrder::Off { force } => switch.off(force),
        };
        // What it is now is asked for at once.
        asked_at = None;
        let mut state = lock(state);
        state.busy = false;
        match outcome {
            Ok(()) => state.outcomes.done += 1,
            Err(error) => {
                tracing::warn!(server = name, ?order, "{error}");
                state.outcomes.failed += 1;
                state.trouble = Some(error.to_string());
                state.failure = Some(error.to_string());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};

    /// A switch that takes as long as the test lets it.
    struct Slow {
        reported: Sender<PowerOrder>,
        go: Receiver<Result<(), ()>>,
        on: bool,
    }

    impl Slow {
        fn act(&mut self, order: PowerOrder) -> Result<(), SwitchError> {
            self.reported.send(order).unwrap();
            let done = self.go.recv().unwrap();
            done.map_err(|()| SwitchError::Value {
                key: "test",
                value: "0".into(),
                expected: "1".into(),
            })
        }
    }

    impl PowerSwitch for Slow {
        fn on(&mut self) -> Result<(), SwitchError> {
            self.act(PowerOrder::On)?;
            self.on = true;
            Ok(())
        }

        fn off(&mut self, force: bool) -> Result<(), SwitchError> {
            self.act(PowerOrder::Off { force })?;
            self.on = false;
            Ok(())
        }

        fn state(&mut self) -> Result<Option<bool>, SwitchError> {
            Ok(Some(self.on))
        }
    }

    fn until(what: &str, ready: impl Fn() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while !ready() {
            assert!(Instant::now() < deadline, "waited in vain: {what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_slow_switch_keeps_nobody_waiting_and_the_newest_order_counts() {
        let ((reported, tells), (go, goes)) = (channel(), channel());
        let switch = Slow {
            reported,
            go: goes,
            on: false,
        };
        let switch_worker = SwitchWorker::start("s1", Box::new(switch), Duration::from_secs(600)).unwrap();
        until("the first look", || switch_worker.powered() == Some(false));
        switch_worker.order(PowerOrder::On);
        assert_eq!(
            (
                tells.recv().unwrap(),
                switch_worker.powered(),
                switch_worker.busy()
            ),
            (PowerOrder::On, None, true)
        );
        // Two orders while it is busy: the second is the one that is carried out.
        switch_worker.order(PowerOrder::Off { force: false });
        switch_worker.order(PowerOrder::Off { force: true });
        go.send(Ok(())).unwrap();
        assert_eq!(tells.recv().unwrap(), PowerOrder::Off { force: true });
        go.send(Err(())).unwrap();
        until("its failure", || !switch_worker.busy());
        // It failed, so the machine is still on, and that is asked for at once.
        until("the look after it", || switch_worker.powered() == Some(true));
        assert!(switch_worker.take_failure().is_some() && switch_worker.take_failure().is_none());
        assert_eq!(switch_worker.outcomes(), Outcomes { done: 1, failed: 1 });
    }
}
