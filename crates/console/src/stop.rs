//! When to stop: a flag that a signal, a key or the end of a run raises, and that everything that waits can wait on.

use signal_hook::consts::signal::{SIGHUP, SIGINT, SIGTERM};
use std::ffi::c_int;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Instant;

/// What is done before a second signal ends the program.
static FORCED_END: Mutex<Vec<fn()>> = Mutex::new(Vec::new());

/// Has this done, in the order given, before a second signal ends the program at once. It must not wait.
pub fn at_forced_end(act: fn()) {
    let mut acts = FORCED_END.lock().unwrap_or_else(PoisonError::into_inner);
    acts.push(act);
}

/// A flag that is raised once and wakes whoever waits on it.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    raised: Mutex<bool>,
    changed: Condvar,
}

impl Stop {
    /// Raises the flag.
    pub fn raise(&self) {
        *self.0.raised.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.changed.notify_all();
    }

    /// Whether it is raised.
    pub fn is_raised(&self) -> bool {
        *self.0.raised.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes whoever waits, to ask again what else it waits for.
    pub fn wake(&self) {
        let raised = self.0.raised.lock().unwrap_or_else(PoisonError::into_inner);
        self.0.changed.notify_all();
        drop(raised);
    }

    /// Waits until `deadline` or until the flag is raised; whether it was.
    pub fn wait_until(&self, deadline: Instant) -> bool {
        self.wait_until_or(deadline, || false)
    }

    /// Waits until `deadline`, until the flag is raised, or until `else_woken` holds, which is asked at the start and after each
    /// [`Stop::wake`]; whether the flag is raised.
    pub fn wait_until_or(&self, deadline: Instant, else_woken: impl Fn() -> bool) -> bool {
        let mut raised = self.0.raised.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if *raised || left.is_zero() || else_woken() {
                return *raised;
            }
            raised = self
                .0
                .changed
                .wait_timeout(raised, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    /// Waits until the flag is raised.
    pub fn wait(&self) {
        let mut raised = self.0.raised.lock().unwrap_or_else(PoisonError::into_inner);
        while !*raised {
            raised = self
                .0
                .changed
                .wait(raised)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Raises the flag at SIGINT, SIGTERM and SIGHUP; a second one of them does what [`at_forced_end`] was given, gives the
    /// terminal back and leaves at once, for then something hangs that should have stopped.
    ///
    /// # Errors
    /// Where the handler cannot be installed.
    pub fn at_signals() -> std::io::Result<Self> {
        Self::at(&[SIGINT, SIGTERM, SIGHUP], None)
    }

    /// The same at SIGINT and SIGTERM; at each SIGHUP it calls `hang_up`, for a service that then reads something again.
    ///
    /// # Errors
    /// As [`Stop::at_signals`].
    pub fn at_end_or_hang_up(hang_up: impl Fn() + Send + 'static) -> std::io::Result<Self> {
        Self::at(&[SIGINT, SIGTERM, SIGHUP], Some(Box::new(hang_up)))
    }

    /// The same at SIGINT and SIGTERM alone, for a program that looks for SIGHUP itself.
    ///
    /// # Errors
    /// As [`Stop::at_signals`].
    pub fn at_signals_but_hangup() -> std::io::Result<Self> {
        Self::at(&[SIGINT, SIGTERM], None)
    }

    fn at(signals: &[c_int], hang_up: Option<Box<dyn Fn() + Send>>) -> std::io::Result<Self> {
        let stop = Self::default();
        let flag = stop.clone();
        let mut signals = signal_hook::iterator::Signals::new(signals)?;
        std::thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || {
                let mut has_ended = false;
                for signal in signals.forever() {
                    if let (SIGHUP, Some(hang_up)) = (signal, &hang_up) {
                        hang_up();
                        continue;
                    }
                    if std::mem::replace(&mut has_ended, true) {
                        tracing::warn!(signal, "a second signal: everything is put back, and out");
                        let acts = FORCED_END.lock().unwrap_or_else(PoisonError::into_inner).clone();
                        acts.iter().for_each(|act| act());
                        crate::terminal::give_back_now();
                        std::process::exit(128 + signal);
                    }
                    tracing::info!(signal, "stopping");
                    flag.raise();
                }
            })?;
        Ok(stop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn whoever_waits_is_woken_long_before_its_deadline() {
        let stop = Stop::default();
        let waiter = stop.clone();
        let started = Instant::now();
        let thread = std::thread::spawn(move || waiter.wait_until(Instant::now() + Duration::from_secs(60)));
        stop.raise();
        assert!(thread.join().unwrap());
        assert!(started.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn another_condition_ends_a_wait_and_raises_nothing() {
        let stop = Stop::default();
        let woken = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let (waiter, seen) = (stop.clone(), woken.clone());
        let started = Instant::now();
        let thread = std::thread::spawn(move || {
            let deadline = Instant::now() + Duration::from_secs(60);
            waiter.wait_until_or(deadline, || seen.load(std::sync::atomic::Ordering::SeqCst))
        });
        stop.wake();
        woken.store(true, std::sync::atomic::Ordering::SeqCst);
        stop.wake();
        assert!(!thread.join().unwrap());
        assert!(started.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn a_deadline_passes_where_nobody_raises() {
        assert!(!Stop::default().wait_until(Instant::now() + Duration::from_millis(5)));
    }
}
