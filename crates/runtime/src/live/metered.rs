//! The energy of a run: of one meter and one set of its zones from the run's start to its end.

use headroom_node::power::MeterSample;
use headroom_units::{Joules, Reading};

/// What was consumed since the last sample, where the meter is the one that the run began with.
#[derive(Debug, Default)]
pub(super) struct Metered {
    /// As it was last read: what was consumed while the meter could not be read counts when it can be again.
    before: Option<Reading<Joules>>,
    /// The identity of the meter in use.
    now: String,
    /// That at the start of the run; nothing before the first.
    at_start: Option<String>,
    warned: bool,
}

impl Metered {
    /// After the first sample of a meter of this identity.
    pub(super) fn by(identity: String) -> Self {
        Self {
            now: identity,
            ..Self::default()
        }
    }

    /// A run begins: the identity of its meter.
    pub(super) fn begin(&mut self) -> &str {
        self.warned = false;
        self.at_start.insert(self.now.clone())
    }

    /// The same run goes on with a machine that was opened anew.
    pub(super) fn go_on(&mut self, before: &Self) {
        self.at_start.clone_from(&before.at_start);
        self.warned = before.warned;
    }

    /// The identity of the meter in use.
    pub(super) fn identity(&self) -> &str {
        &self.now
    }

    /// What was consumed since the energy was last read; nothing at first, where the source is another, where the sample
    /// has no power, and where the run began with another meter or other zones.
    pub(super) fn consumed(&mut self, meter: &str, sample: &MeterSample) -> Option<Reading<Joules>> {
        self.now = sample.identity(meter);
        let another = self.at_start.as_ref().filter(|start| **start != self.now);
        if let Some(start) = another
            && !std::mem::replace(&mut self.warned, true)
        {
            tracing::warn!(
                "power comes from {}, and at the start of the run it came from {start}: energy is unknown from now on",
                self.now
            );
        }
        // A counter that stood still, or was not believed, consumed an unknown energy, not none.
        if sample.power.is_none() && self.before.is_some() && another.is_none() {
            return None;
        }
        let now = sample.energy;
        let before = self
            .before
            .replace(now)
            .filter(|before| before.source == now.source && another.is_none())?;
        Some(now.map(|joules| (joules - before.value).max(Joules::ZERO)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_node::power::ZoneSample;
    use headroom_units::{Seconds, Source, Watts};

    fn sample(source: Source, joules: f64, zones: &[&str]) -> MeterSample {
        let energy = Reading::new(Joules::new(joules), source);
        let power = Some(Reading::new(Watts::new(1.0), source));
        MeterSample {
            elapsed: Seconds::new(1.0),
            energy,
            power,
            zones: zones
                .iter()
                .map(|zone| ZoneSample {
                    zone: (*zone).to_owned(),
                    energy,
                    power,
                    counted: true,
                })
                .collect(),
            rebases: 0,
        }
    }

    #[test]
    fn what_is_consumed_is_counted_from_the_last_reading_of_the_same_source() {
        let mut metered = Metered::default();
        let mut consumed = |source, joules| {
            let consumed = metered.consumed("rapl", &sample(source, joules, &["package-0"]));
            consumed.map(|reading| (reading.value.get(), reading.source))
        };
        assert_eq!(consumed(Source::Measured, 5.0), None);
        assert_eq!(consumed(Source::Measured, 7.0), Some((2.0, Source::Measured)));
        assert_eq!(consumed(Source::Estimated, 9.0), None);
        assert_eq!(consumed(Source::Measured, 20.0), None);
        assert_eq!(consumed(Source::Measured, 21.5), Some((1.5, Source::Measured)));
    }

    #[test]
    fn what_is_consumed_while_a_counter_stands_still_counts_once_it_moves() {
        let mut metered = Metered::default();
        let mut at = |joules, power: Option<f64>| {
            let mut sample = sample(Source::Measured, joules, &["package-0"]);
            sample.power = power.map(|watts| Reading::new(Watts::new(watts), Source::Measured));
            metered
                .consumed("rapl", &sample)
                .map(|reading| reading.value.get())
        };
        assert_eq!(at(5.0, None), None);
        assert_eq!(at(6.0, None), None);
        assert_eq!(at(8.0, Some(1.0)), Some(3.0));
    }

    #[test]
    fn energy_is_unknown_while_another_meter_or_other_zones_count_than_at_the_start_of_the_run() {
        let both = ["package-0", "dram-0"];
        for (what, meter, zones) in [
            ("a meter that took another's place", "perf", &both[..]),
            ("memory that counts no more", "rapl", &both[..1]),
        ] {
            let mut metered = Metered::by("rapl: dram-0, package-0".to_owned());
            let consumed = |metered: &mut Metered, meter, joules, zones| {
                let consumed = metered.consumed(meter, &sample(Source::Measured, joules, zones));
                consumed.map(|reading| reading.value.get())
            };
            assert_eq!(metered.begin(), "rapl: dram-0, package-0");
            assert_eq!(consumed(&mut metered, "rapl", 1.0, &both), None);
            assert_eq!(consumed(&mut metered, "rapl", 3.0, &both), Some(2.0));
            assert_eq!(consumed(&mut metered, meter, 4.0, zones), None, "{what}");
            assert_eq!(consumed(&mut metered, meter, 5.0, zones), None, "{what}");
            // Opened anew with the other meter within the run.
            let mut anew = Metered::by(metered.identity().to_owned());
            anew.go_on(&metered);
            assert_eq!(consumed(&mut anew, meter, 5.0, zones), None, "{what}");
            assert_eq!(consumed(&mut anew, meter, 6.0, zones), None, "{what}");
            // What the other counted is in no period.
            assert_eq!(consumed(&mut metered, "rapl", 7.5, &both), Some(2.5));
            // The next run begins with what is there then.
            assert_eq!(consumed(&mut metered, meter, 8.0, zones), None, "{what}");
            assert_ne!(metered.begin(), "rapl: dram-0, package-0");
            assert_eq!(consumed(&mut metered, meter, 9.0, zones), Some(1.0), "{what}");
        }
    }
}
