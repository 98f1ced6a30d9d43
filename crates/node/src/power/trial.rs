//! Whether a meter moves under load. Some virtual machines offer an energy event or a sensor that reads the same for
//! ever; it opens and reads like any other, and only its standing still while a processor works shows what it is.

use super::{Meter, MeterError};
use headroom_units::Watts;
use std::time::{Duration, Instant};

/// Work between two readings: some twenty updates of a RAPL counter.
pub(super) const STEP: Duration = Duration::from_millis(20);
/// A meter that has not moved after so long a work of one processor is dead.
pub(super) const MAX_TRIAL: Duration = Duration::from_millis(300);

/// Works on one processor until the meter moves, at most [`MAX_TRIAL`]; a live meter takes one step.
///
/// # Errors
/// [`MeterError::DoesNotMove`], and whatever reading it answers.
pub(crate) fn moves(meter: &mut dyn Meter) -> Result<(), MeterError> {
    let begin = Instant::now();
    loop {
        work(STEP);
        let sample = meter.sample()?;
        if sample.power.is_some_and(|power| power.value > Watts::ZERO) {
            return Ok(());
        }
        if begin.elapsed() >= MAX_TRIAL {
            let still = |zone: &&super::ZoneSample| {
                zone.counted && !zone.power.is_some_and(|power| power.value > Watts::ZERO)
            };
            let zones: Vec<&str> = sample
                .zones
                .iter()
                .filter(still)
                .map(|zone| zone.zone.as_str())
                .collect();
            return Err(MeterError::DoesNotMove {
                meter: meter.name(),
                zones: zones.join(", "),
                worked: begin.elapsed(),
            });
        }
    }
}

fn work(length: Duration) {
    let begin = Instant::now();
    while begin.elapsed() < length {
        std::hint::spin_loop();
    }
}

#[cfg(test)]
pub(crate) mod fake {
    use super::*;
    use crate::power::{MeterSample, Refusal, Refused, ZoneSample};
    use headroom_units::{Joules, Reading, Seconds, Source};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    /// A meter that says one joule more at each reading, after so many readings at which it stands still.
    #[derive(Clone, Debug, Default)]
    pub(crate) struct FakeMeter {
        pub(crate) still: Arc<AtomicU32>,
        pub(crate) frozen: Arc<AtomicBool>,
        pub(crate) joules: f64,
        pub(crate) name: &'static str,
    }

    impl Meter for FakeMeter {
        fn name(&self) -> &'static str {
            self.name
        }

        fn sample(&mut self) -> Result<MeterSample, MeterError> {
            if self.frozen.load(Ordering::Relaxed) {
                return Err(MeterError::Frozen {
                    zone: "psys".into(),
                    path: "events/energy-psys".into(),
                });
            }
            let left = self.still.load(Ordering::Relaxed);
            let moves = left == 0;
            self.still.store(left.saturating_sub(1), Ordering::Relaxed);
            self.joules += f64::from(u8::from(moves));
            let reading = |joules| Reading::new(Joules::new(joules), Source::Measured);
            let power = moves.then(|| Reading::new(Watts::new(1.0), Source::Measured));
            Ok(MeterSample {
                elapsed: Seconds::new(1.0),
                energy: reading(self.joules),
                power,
                zones: vec![ZoneSample {
                    zone: "psys".into(),
                    energy: reading(self.joules),
                    power,
                    counted: true,
                }],
                rebases: 0,
            })
        }

        fn refused(&self) -> Vec<Refused> {
            vec![Refused {
                zone: "psys".into(),
                reason: Refusal::Frozen,
                count: u64::from(self.frozen.load(Ordering::Relaxed)),
            }]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::fake::FakeMeter;
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn a_meter_that_moves_at_last_is_one_and_a_dead_one_is_named() {
        let mut late = FakeMeter {
            name: "perf",
            ..FakeMeter::default()
        };
        late.still.store(2, Ordering::Relaxed);
        moves(&mut late).unwrap();
        late.still.store(u32::MAX, Ordering::Relaxed);
        let error = moves(&mut late).unwrap_err();
        assert!(matches!(error, MeterError::DoesNotMove { .. }), "{error}");
        let error = error.to_string();
        for part in ["perf", "psys", "does not move", "model"] {
            assert!(error.contains(part), "{part}: {error}");
        }
    }
}
