//! Whether somebody watches over this process, and the signs of life that it gives.
//!
//! Limits may be in force only while a guard, a process of its own, would lift them if this one were killed or hung. The
//! threads that hold limits each give a sign of life (a *beat*) that says within what time the next one comes; whoever
//! is connected to the guard passes them on. Where no guard stands, or it has lifted the limits because a thread was
//! silent, there is a *hindrance*, and [`crate::cap::Limiter`] gives everything back instead of limiting.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The most threads that give signs of life at once; a further one gives none and is not watched.
pub const MAX_PULSES: usize = 64;

/// A beat that only repeats the one before is passed on after this share of its time.
const REPEATED_AFTER: u32 = 8;

/// A sign of life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beat {
    /// Whose, a number of this process.
    pub pulse: u32,
    /// Whose, in words.
    pub name: &'static str,
    /// The next one comes within this time, else the thread hangs. Nothing where the thread holds no limit any more, and
    /// none is to come.
    pub within: Option<Duration>,
}

type Sink = Box<dyn FnMut(Beat) + Send>;

#[derive(Default)]
struct Beats {
    next: u32,
    sink: Option<Sink>,
    /// The last beat of each thread that is to give another one.
    last: Vec<(Beat, Instant)>,
}

#[derive(Default)]
struct Inner {
    hindrance: Mutex<Option<String>>,
    beats: Mutex<Beats>,
    turned_at: Mutex<Option<Instant>>,
}

/// What a process knows of its guard. A clone is the same; a fresh one has no guard and needs none.
#[derive(Clone, Default)]
pub struct Watch(Arc<Inner>);

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Watch({:?})", self.hindrance())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watch {
    /// Why nothing may be limited; nothing where it may be.
    pub fn hindrance(&self) -> Option<String> {
        lock(&self.0.hindrance).clone()
    }

    /// From now on nothing may be limited, or, with nothing given, it may be again.
    pub fn hinder(&self, why: Option<String>) {
        *lock(&self.0.hindrance) = why;
    }

    /// Passes signs of life on to a guard from now on, beginning with those that it must know of already. The function is
    /// called with a lock held: it must not wait.
    pub fn attach(&self, mut sink: impl FnMut(Beat) + Send + 'static) {
        let mut beats = lock(&self.0.beats);
        for (beat, at) in &beats.last {
            let left = |within: Duration| within.saturating_sub(at.elapsed()).max(Duration::from_millis(1));
            sink(Beat {
                within: beat.within.map(left),
                ..*beat
            });
        }
        beats.sink = Some(Box::new(sink));
    }

    /// Passes nothing on any more.
    pub fn detach(&self) {
        lock(&self.0.beats).sink = None;
    }

    /// A thread's signs of life, none of which was given yet.
    pub fn pulse(&self, name: &'static str) -> Pulse {
        let mut beats = lock(&self.0.beats);
        beats.next = beats.next.wrapping_add(1);
        Pulse {
            watch: self.clone(),
            number: beats.next,
            name,
            given: None,
        }
    }

    /// Notes that the thread that decides has come round once more, for a service manager's watchdog.
    pub fn turn(&self) {
        *lock(&self.0.turned_at) = Some(Instant::now());
    }

    /// Notes that it comes round no more.
    pub fn end_turns(&self) {
        *lock(&self.0.turned_at) = None;
    }

    /// How long ago that was; nothing before the first time and after the last.
    pub fn since_turn(&self) -> Option<Duration> {
        lock(&self.0.turned_at).map(|at| at.elapsed())
    }

    fn pass_on(&self, beat: Beat) {
        let mut beats = lock(&self.0.beats);
        let known = beats.last.iter().position(|(last, _)| last.pulse == beat.pulse);
        match (known, beat.within) {
            (Some(at), Some(_)) => beats.last[at] = (beat, Instant::now()),
            (Some(at), None) => drop(beats.last.swap_remove(at)),
            (None, Some(_)) if beats.last.len() < MAX_PULSES => beats.last.push((beat, Instant::now())),
            (None, _) => return,
        }
        if let Some(sink) = &mut beats.sink {
            sink(beat);
        }
    }
}

/// The signs of life of one thread. Dropping it says that none is to come.
#[derive(Debug)]
pub struct Pulse {
    watch: Watch,
    number: u32,
    name: &'static str,
    given: Option<(Instant, Duration)>,
}

impl Pulse {
    /// Gives a sign of life, and says that the next one comes within a time.
    pub fn beat(&mut self, within: Duration) {
        let repeats =
            |(at, before): (Instant, Duration)| before == within && at.elapsed() < within / REPEATED_AFTER;
        if self.given.is_some_and(repeats) {
            return;
        }
        self.given = Some((Instant::now(), within));
        self.give(Some(within));
    }

    /// Says that this thread holds no limit: none is to come.
    pub fn rest(&mut self) {
        if self.given.take().is_some() {
            self.give(None);
        }
    }

    fn give(&self, within: Option<Duration>) {
        self.watch.pass_on(Beat {
            pulse: self.number,
            name: self.name,
            within,
        });
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        self.rest();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    const LONG: Duration = Duration::from_secs(1000);

    fn attached(watch: &Watch) -> mpsc::Receiver<Beat> {
        let (sender, receiver) = mpsc::channel();
        watch.attach(move |beat| {
            // A test that has heard enough listens no more.
            let _ = sender.send(beat);
        });
        receiver
    }

    #[test]
    fn a_beat_is_passed_on_and_its_repetition_is_not() {
        let watch = Watch::default();
        let beats = attached(&watch);
        let mut pulse = watch.pulse("loop");
        pulse.beat(LONG);
        pulse.beat(LONG);
        pulse.beat(LONG * 2);
        drop(pulse);
        let within: Vec<Option<Duration>> = beats.try_iter().map(|beat| beat.within).collect();
        assert_eq!(within, [Some(LONG), Some(LONG * 2), None]);
    }

    #[test]
    fn a_new_guard_hears_of_who_is_to_give_a_sign_of_life() {
        let watch = Watch::default();
        let (mut stays, mut rests) = (watch.pulse("stays"), watch.pulse("rests"));
        stays.beat(LONG);
        rests.beat(LONG);
        rests.rest();
        let heard: Vec<Beat> = attached(&watch).try_iter().collect();
        assert_eq!(heard.len(), 1, "{heard:?}");
        assert_eq!(heard[0].name, "stays");
        assert!(
            heard[0]
                .within
                .is_some_and(|left| left <= LONG && left > LONG / 2)
        );
    }

    #[test]
    fn beyond_the_limit_a_thread_is_not_watched_and_the_others_are() {
        let watch = Watch::default();
        let mut pulses: Vec<Pulse> = (0..=MAX_PULSES).map(|_| watch.pulse("many")).collect();
        pulses.iter_mut().for_each(|pulse| pulse.beat(LONG));
        assert_eq!(attached(&watch).try_iter().count(), MAX_PULSES);
    }

    #[test]
    fn a_hindrance_is_of_all_clones() {
        let watch = Watch::default();
        assert_eq!(watch.hindrance(), None);
        watch.clone().hinder(Some("no guard".into()));
        assert_eq!(watch.hindrance().as_deref(), Some("no guard"));
        watch.hinder(None);
        assert_eq!(watch.hindrance(), None);
    }
}
