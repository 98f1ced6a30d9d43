//! What nodes counted since they were asked last, and sums of it.

use headroom_node::power::identity;
use headroom_units::{Joules, Reading, Seconds};
use headroom_wire::message::{Microjoules, RefusedReadings, Sample};
use std::time::Duration;

/// What a node had counted when it was last asked.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) run: u64,
    pub(crate) energy: Option<Reading<Microjoules>>,
    pub(crate) cpu: Option<Duration>,
    pub(crate) refused: Option<RefusedReadings>,
    /// The meter of the energy, with the zones that count; `None` where it does not answer.
    pub(crate) meter: Option<String>,
}

/// The meter that a node began a run with.
#[derive(Debug, Default)]
pub(super) struct MeterAtStart {
    identity: Option<String>,
    warned: bool,
}

impl MeterAtStart {
    /// A run begins with this one.
    pub(super) fn begin(&mut self, identity: Option<String>) {
        *self = Self {
            identity,
            warned: false,
        };
    }

    /// Whether what a node counted now is of that meter; of a node that had none at the start, the first that it has is it.
    pub(super) fn is_that_of(&mut self, node: &str, now: &Counts) -> bool {
        let Some(now) = &now.meter else { return false };
        let start = self.identity.get_or_insert_with(|| now.clone());
        if start != now && !std::mem::replace(&mut self.warned, true) {
            tracing::warn!(
                "node {node}: power comes from {now}, and at the start of the run it came from {start}: energy is \
                 unknown from now on"
            );
        }
        start == now
    }
}

/// The energy of a run on one machine, by the meter that it began with.
#[derive(Debug, Default)]
pub(crate) struct RunEnergy {
    /// As it was when the power was last known: what was consumed while the meter stood still counts when it moves again.
    before: Counts,
    meter: MeterAtStart,
}

impl RunEnergy {
    /// A run begins with this meter.
    pub(crate) fn begin(&mut self, identity: String) {
        self.meter.begin(Some(identity));
    }

    /// What was consumed since the power was last known; nothing where it is not known now, where the source is another, and
    /// where the run began with another meter or other zones.
    pub(crate) fn consumed(
        &mut self,
        node: &str,
        now: &Counts,
        power_is_known: bool,
    ) -> Option<Reading<Joules>> {
        if !power_is_known && self.before.energy.is_some() {
            return None;
        }
        let (energy, _) = now.since(&self.before);
        self.before = now.clone();
        energy.filter(|_| self.meter.is_that_of(node, now))
    }
}

impl Counts {
    /// What a sample says.
    pub(crate) fn of(sample: &Sample) -> Self {
        Self {
            run: sample.agent_run,
            energy: sample.energy.map(|energy| energy.accumulated),
            cpu: sample.cpu.map(|cpu| cpu.usage),
            refused: sample.refused.clone(),
            meter: meter(sample),
        }
    }

    /// Readings that the meter refused between, all of them where the agent's count is a new one.
    pub(crate) fn refused_since(&self, before: &Self) -> Option<RefusedReadings> {
        let now = self.refused.clone()?;
        let same = before.refused.as_ref().filter(|_| before.run == self.run);
        let earlier = same.map_or(0, |before| before.count);
        Some(RefusedReadings {
            count: now.count.saturating_sub(earlier),
            ..now
        })
    }

    /// What was counted between; `None` where it cannot be known.
    pub(crate) fn since(&self, before: &Self) -> (Option<Reading<Joules>>, Option<Seconds>) {
        if self.run != before.run {
            return (None, None);
        }
        let energy = self
            .energy
            .zip(before.energy)
            .filter(|(now, before)| now.source == before.source)
            .map(|(now, before)| {
                let counts = now.value.0.saturating_sub(before.value.0);
                Reading::new(Joules::from(Microjoules(counts)), now.source)
            });
        let cpu = self
            .cpu
            .zip(before.cpu)
            .map(|(now, before)| Seconds::from(now.saturating_sub(before)));
        (energy, cpu)
    }
}

/// The identity of the meter of a sample that has an energy.
pub(super) fn meter(sample: &Sample) -> Option<String> {
    sample.energy?;
    let counts = sample.zones.iter().filter(|zone| zone.in_total);
    let name = &sample.refused.as_ref()?.meter;
    Some(identity(name, counts.map(|zone| zone.name.as_str())))
}

/// The sum of readings of one source. Of several there is none, and that is said when it is found first.
pub(super) fn sum<T: Copy + std::ops::Add<Output = T>>(
    readings: &[(&str, Reading<T>)],
    mixed: &mut bool,
) -> Option<Reading<T>> {
    let ((_, first), rest) = readings.split_first()?;
    let mut sum = *first;
    for (_, reading) in rest {
        match sum.plus(*reading) {
            Ok(more) => sum = more,
            Err(error) => {
                if !std::mem::replace(mixed, true) {
                    let of: Vec<String> = readings
                        .iter()
                        .map(|(name, reading)| format!("{name} {}", reading.source))
                        .collect();
                    tracing::warn!("the cluster's power is unknown: {error}: {}", of.join(", "));
                }
                return None;
            }
        }
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_units::{Source, Watts};

    fn counts(run: u64, microjoules: u64, source: Source, cpu_ms: u64) -> Counts {
        Counts {
            run,
            energy: Some(Reading::new(Microjoules(microjoules), source)),
            cpu: Some(Duration::from_millis(cpu_ms)),
            refused: None,
            meter: None,
        }
    }

    #[test]
    fn a_node_counts_by_the_meter_that_it_began_the_run_with() {
        let by = |meter: &str| Counts {
            meter: Some(meter.to_owned()),
            ..Counts::default()
        };
        let mut start = MeterAtStart::default();
        start.begin(Some("psys: psys".to_owned()));
        assert!(start.is_that_of("n1", &by("psys: psys")));
        assert!(!start.is_that_of("n1", &by("rapl: package-0")));
        assert!(!start.is_that_of("n1", &Counts::default()));
        start.begin(None);
        assert!(start.is_that_of("n1", &by("rapl: dram-0, package-0")));
        assert!(!start.is_that_of("n1", &by("rapl: package-0")), "a zone less");
    }

    #[test]
    fn what_is_consumed_while_a_counter_stands_still_counts_once_it_moves() {
        let mut energy = RunEnergy::default();
        let mut at = |joules: u64, known: bool, source| {
            let now = Counts {
                meter: Some("rapl: package-0".to_owned()),
                ..counts(1, joules * 1_000_000, source, 0)
            };
            let consumed = energy.consumed("n1", &now, known);
            consumed.map(|reading| (reading.value.get(), reading.source))
        };
        assert_eq!(at(5, false, Source::Measured), None);
        assert_eq!(at(6, false, Source::Measured), None);
        assert_eq!(at(8, true, Source::Measured), Some((3.0, Source::Measured)));
        assert_eq!(at(9, true, Source::Estimated), None);
        assert_eq!(at(20, true, Source::Measured), None);
        assert_eq!(at(22, true, Source::Measured), Some((2.0, Source::Measured)));
    }

    #[test]
    fn energy_is_unknown_while_another_meter_counts_than_at_the_start_of_the_run() {
        let mut energy = RunEnergy::default();
        let mut at = |meter: &str, joules: u64| {
            let now = Counts {
                meter: Some(meter.to_owned()),
                ..counts(1, joules * 1_000_000, Source::Measured, 0)
            };
            let consumed = energy.consumed("n1", &now, true);
            consumed.map(|reading| reading.value.get())
        };
        assert_eq!(at("rapl: dram-0, package-0", 1), None);
        assert_eq!(at("rapl: dram-0, package-0", 3), Some(2.0));
        assert_eq!((at("perf", 4), at("rapl: package-0", 5)), (None, None));
        // What the others counted is in no period.
        assert_eq!(at("rapl: dram-0, package-0", 7), Some(2.0));
        energy.begin("perf".to_owned());
        let now = Counts {
            meter: Some("perf".to_owned()),
            ..counts(1, 8_000_000, Source::Measured, 0)
        };
        let consumed = energy.consumed("n1", &now, true);
        assert_eq!(
            consumed.map(|reading| reading.value.get()),
            Some(1.0),
            "the next run"
        );
    }

    #[test]
    fn refused_readings_are_counted_once_and_those_of_a_new_run_from_nothing() {
        let refused = |run: u64, count: u64| Counts {
            run,
            refused: Some(RefusedReadings {
                meter: "rapl".to_owned(),
                count,
            }),
            ..Counts::default()
        };
        let since = |now: &Counts, before: &Counts| now.refused_since(before).map(|refused| refused.count);
        assert_eq!(since(&refused(1, 5), &Counts::default()), Some(5));
        assert_eq!(since(&refused(1, 7), &refused(1, 5)), Some(2));
        assert_eq!(since(&refused(2, 3), &refused(1, 5)), Some(3));
        assert_eq!(since(&Counts::default(), &refused(1, 5)), None);
    }

    #[test]
    fn energy_is_what_the_same_run_of_an_agent_counted_since() {
        let before = counts(1, 1_000_000, Source::Measured, 100);
        let (energy, cpu) = counts(1, 3_500_000, Source::Measured, 350).since(&before);
        assert_eq!(energy, Some(Reading::new(Joules::new(2.5), Source::Measured)));
        assert_eq!(cpu, Some(Seconds::new(0.25)));
        assert_eq!(
            counts(2, 3_500_000, Source::Measured, 350).since(&before),
            (None, None),
            "another run"
        );
        let (energy, _) = counts(1, 3_500_000, Source::Estimated, 350).since(&before);
        assert_eq!(energy, None, "another meter");
        assert_eq!(
            counts(1, 5, Source::Measured, 1).since(&Counts::default()),
            (None, None),
            "seen first"
        );
    }

    #[test]
    fn watts_of_different_sources_are_not_added() {
        let (measured, estimated) = (
            Reading::new(Watts::new(40.0), Source::Measured),
            Reading::new(Watts::new(2.0), Source::Estimated),
        );
        let mut mixed = false;
        let sum_of = sum(&[("a", measured), ("b", measured)], &mut mixed);
        assert_eq!(
            (sum_of, mixed),
            (Some(Reading::new(Watts::new(80.0), Source::Measured)), false)
        );
        assert_eq!(sum(&[("a", measured), ("b", estimated)], &mut mixed), None);
        assert!(mixed);
    }
}
