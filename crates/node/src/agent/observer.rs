//! One caller's samples: the differences between the counters at the ends of its periods. No clock, no machine.

use super::machine::{BusyCounters, Counters, CpuCounters, EnergyCounter, EnergyCounters};
use crate::work::{LinkWork, MachineWork};
use headroom_units::{Cores, Joules, Ratio, Seconds, Setting, Watts};
use headroom_wire::message::{self, CpuSample, EnergySample, LeaseState, Microjoules, Sample, ZoneSample};
use std::time::Duration;

/// What a sample says beside the counters.
#[derive(Clone, Debug)]
pub struct Standing {
    /// Which run of the agent.
    pub agent_run: u64,
    /// What is in force by its doing.
    pub in_force: Setting,
    /// Whose lease that is.
    pub lease: Option<LeaseState>,
    /// What went wrong since the sample before, a line each.
    pub troubles: Vec<String>,
}

/// The end of a caller's last period.
#[derive(Clone, Debug)]
pub struct Differences {
    number: u64,
    at: Duration,
    last: Counters,
    /// The fewest connections that waited at a server on call, by the readings since the last period ended.
    waiting_least: Option<u32>,
}

impl Differences {
    /// Begins with a reading.
    pub fn new(at: Duration, counters: Counters) -> Self {
        Self {
            number: 0,
            at,
            last: counters,
            waiting_least: None,
        }
    }

    /// Takes a reading in the midst of a period: whatever is of the time since the reading before it.
    pub fn see(&mut self, counters: &Counters) {
        let now = counters
            .oncall
            .as_ref()
            .and_then(|oncall| oncall.now.as_ref().ok());
        let least = [self.waiting_least, now.map(|now| now.waiting_least)];
        self.waiting_least = least.into_iter().flatten().min();
    }

    /// The sample of the period from the reading before to this one.
    pub fn advance(&mut self, at: Duration, counters: &Counters, standing: Standing) -> Sample {
        let before = std::mem::replace(&mut self.last, counters.clone());
        // What was not read this time is compared with the reading before it once it is read again; the machine's share
        // is read less often than short periods end.
        let machine_utilisation = match (&counters.machine, &before.machine) {
            (Some(now), Some(then)) => now.share_since(then),
            _ => None,
        };
        if machine_utilisation.is_none() {
            self.last.machine = before.machine.or(counters.machine);
        }
        self.last.cpu = counters.cpu.or(before.cpu);
        let energy_before = before.energy;
        if self.last.energy.is_none() {
            self.last.energy.clone_from(&energy_before);
        }
        self.number += 1;
        let period = at.saturating_sub(std::mem::replace(&mut self.at, at));
        let mut oncall = counters.oncall.clone();
        if let Some(Ok(now)) = oncall.as_mut().map(|oncall| oncall.now.as_mut()) {
            now.waiting_least = self.waiting_least.take().unwrap_or(now.waiting_least);
        }
        Sample {
            number: self.number,
            agent_run: standing.agent_run,
            uptime: at,
            period,
            cpu: counters.cpu.map(|now| cpu(&now, before.cpu.as_ref())),
            machine_utilisation,
            zones: counters
                .energy
                .iter()
                .flat_map(|now| zones(now, energy_before.as_ref()))
                .collect(),
            energy: counters.energy.as_ref().map(|now| {
                let then = energy_before.as_ref();
                energy(&now.total, then.map(|then| &then.total), elapsed(now, then))
            }),
            frequency: counters.frequency,
            in_force: standing.in_force,
            lease: standing.lease,
            troubles: standing.troubles,
            // A cap's loop moves the quota within the period: the mean of its ends stands for it.
            usable: counters
                .usable
                .map(|now| (now + before.usable.unwrap_or(now)) / 2.0),
            refused: counters.refused.clone(),
            oncall,
            work: counters
                .work
                .as_ref()
                .map(|(age, work)| work_at(at.saturating_sub(*age), work)),
        }
    }
}

fn cpu(now: &CpuCounters, before: Option<&CpuCounters>) -> CpuSample {
    let (mut busy, mut share) = (0.0, Ratio::ZERO);
    if let Some(before) = before {
        let elapsed = now.clock.saturating_sub(before.clock).as_secs_f64();
        let used = now.used.saturating_sub(before.used).as_secs_f64();
        busy = if elapsed > 0.0 { used / elapsed } else { 0.0 };
        share = now.throttled_since(before).unwrap_or(share);
    }
    CpuSample {
        usage: now.used,
        busy: Cores::new(busy),
        throttled: now.throttled,
        throttled_share: share,
    }
}

fn work_at(at: Duration, work: &MachineWork) -> message::MachineWork {
    let link = |link: &LinkWork| message::LinkWork {
        name: link.name.clone(),
        received: link.received,
        sent: link.sent,
        bits_per_s: link.bits_per_s,
    };
    message::MachineWork {
        at,
        busy: Duration::from_secs_f64(work.busy.get()),
        softirq: Duration::from_secs_f64(work.softirq.get()),
        links: work.links.iter().map(link).collect(),
    }
}

fn elapsed(now: &EnergyCounters, before: Option<&EnergyCounters>) -> Seconds {
    before.map_or(Seconds::ZERO, |before| {
        now.clock.saturating_sub(before.clock).into()
    })
}

fn zones(now: &EnergyCounters, before: Option<&EnergyCounters>) -> Vec<ZoneSample> {
    let elapsed = elapsed(now, before);
    let then = |name: &str| {
        before?
            .zones
            .iter()
            .find(|zone| zone.name == name)
            .map(|zone| &zone.energy)
    };
    now.zones
        .iter()
        .map(|zone| ZoneSample {
            name: zone.name.clone(),
            in_total: zone.counted,
            energy: energy(&zone.energy, then(&zone.name), elapsed),
        })
        .collect()
}

/// The power is known where the counter ran through without a gap, from one source.
fn energy(now: &EnergyCounter, before: Option<&EnergyCounter>, elapsed: Seconds) -> EnergySample {
    let power = before
        .filter(|before| before.gaps == now.gaps && before.source == now.source && elapsed > Seconds::ZERO)
        .and_then(|before| now.uj.checked_sub(before.uj))
        .map(|uj| -> Watts { Joules::from(Microjoules(uj)) / elapsed });
    EnergySample::new(now.source, Microjoules(now.uj), power)
}

impl BusyCounters {
    /// How long the whole machine was busy, of all its processors' time.
    pub(super) const fn of(work: &MachineWork) -> Self {
        Self {
            busy_ticks: work.ticks.busy_or_stolen(),
            all_ticks: work.ticks.all(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::machine::ZoneCounter;
    use super::*;
    use crate::work::CpuTicks;
    use headroom_units::{Reading, Source};
    use headroom_wire::message::{OnCallCounters, OnCallNow, OnCallSample};
    use proptest::prelude::*;

    fn standing() -> Standing {
        Standing {
            agent_run: 7,
            in_force: Setting::default(),
            lease: None,
            troubles: vec![],
        }
    }

    fn counter(uj: u64, gaps: u64) -> EnergyCounter {
        EnergyCounter {
            uj,
            gaps,
            source: Source::Measured,
        }
    }

    fn counters(second: u64, cpu_ms: u64, uj: u64) -> Counters {
        let clock = Duration::from_secs(second);
        let zone = ZoneCounter {
            name: "package-0".into(),
            counted: true,
            energy: counter(uj, 0),
        };
        Counters {
            cpu: Some(CpuCounters {
                clock,
                used: Duration::from_millis(cpu_ms),
                periods: second * 100,
                throttled_periods: second * 25,
                ..CpuCounters::default()
            }),
            energy: Some(EnergyCounters {
                clock,
                total: counter(uj, 0),
                zones: vec![zone],
            }),
            ..Counters::default()
        }
    }

    #[test]
    fn a_sample_is_the_difference_of_two_readings() {
        let mut differences = Differences::new(Duration::from_secs(10), counters(10, 4_000, 1_000_000));
        let sample = differences.advance(
            Duration::from_secs(12),
            &counters(12, 7_000, 93_000_000),
            standing(),
        );
        assert_eq!((sample.number, sample.period), (1, Duration::from_secs(2)));
        let cpu = sample.cpu.unwrap();
        assert_eq!(
            (cpu.busy, cpu.throttled_share),
            (Cores::new(1.5), Ratio::new(0.25))
        );
        assert_eq!(cpu.usage, Duration::from_secs(7));
        let energy = sample.energy.unwrap();
        assert_eq!(
            energy.power,
            Some(Reading::new(Watts::new(46.0), Source::Measured))
        );
        assert_eq!(energy.accumulated.value, Microjoules(93_000_000));
        assert_eq!(sample.zones[0].energy, energy);
    }

    #[test]
    fn over_a_gap_no_power_is_known_but_the_counter_goes_on() {
        let mut differences = Differences::new(Duration::ZERO, counters(0, 0, 0));
        let mut gap = counters(1, 0, 5_000_000);
        gap.energy.as_mut().unwrap().total.gaps = 1;
        let sample = differences.advance(Duration::from_secs(1), &gap, standing());
        assert_eq!(sample.energy.unwrap().power, None);
        assert_eq!(sample.energy.unwrap().accumulated.value, Microjoules(5_000_000));
        assert!(
            sample.zones[0].energy.power.is_some(),
            "the zone itself had no gap"
        );
    }

    #[test]
    fn a_reading_that_failed_is_made_up_for_by_the_next() {
        let mut differences = Differences::new(Duration::ZERO, counters(0, 0, 0));
        let sample = differences.advance(Duration::from_secs(1), &Counters::default(), standing());
        assert_eq!((sample.cpu, sample.energy), (None, None));
        let sample = differences.advance(
            Duration::from_secs(4),
            &counters(4, 2_000, 40_000_000),
            standing(),
        );
        assert_eq!(
            sample.cpu.unwrap().busy,
            Cores::new(0.5),
            "2 s over the 4 s since the last reading"
        );
        assert_eq!(sample.energy.unwrap().power.unwrap().value, Watts::new(10.0));
    }

    #[test]
    fn what_could_be_used_is_the_mean_of_the_periods_ends() {
        let with = |usable: Option<f64>| Counters {
            usable: usable.map(Cores::new),
            ..Counters::default()
        };
        let mut differences = Differences::new(Duration::ZERO, with(None));
        let mut usable = |second, now| {
            let sample = differences.advance(Duration::from_secs(second), &with(now), standing());
            sample.usable.map(Cores::get)
        };
        assert_eq!(usable(1, Some(2.0)), Some(2.0));
        assert_eq!(usable(2, Some(1.0)), Some(1.5));
        assert_eq!(usable(3, None), None);
    }

    #[test]
    fn the_fewest_that_waited_are_those_of_all_readings_of_the_period() {
        let with = |waiting_least| Counters {
            oncall: Some(OnCallSample {
                server: "db".into(),
                now: Ok(OnCallNow {
                    waiting_least,
                    cores: 2,
                    ..OnCallNow::default()
                }),
                counters: OnCallCounters::default(),
            }),
            ..Counters::default()
        };
        let mut differences = Differences::new(Duration::ZERO, with(0));
        let mut after = |seen: &[u32]| {
            let readings: Vec<Counters> = seen.iter().map(|least| with(*least)).collect();
            readings.iter().for_each(|reading| differences.see(reading));
            let last = readings.last().unwrap_or(&differences.last).clone();
            let sample = differences.advance(Duration::from_secs(1), &last, standing());
            sample.oncall.unwrap().now.unwrap().waiting_least
        };
        assert_eq!(after(&[7, 3, 5]), 3);
        assert_eq!(after(&[5, 9]), 5, "the least of the period before is forgotten");
        assert_eq!(after(&[]), 9, "a reading that serves two periods");
    }

    #[test]
    fn two_sources_make_no_power() {
        let mut differences = Differences::new(Duration::ZERO, counters(0, 0, 0));
        let mut other = counters(1, 0, 9_000_000);
        other.energy.as_mut().unwrap().total.source = Source::Estimated;
        let sample = differences.advance(Duration::from_secs(1), &other, standing());
        assert_eq!(sample.energy.unwrap().power, None);
    }

    #[test]
    fn the_machines_share_waits_for_its_next_reading() {
        let with = |busy_ticks, all_ticks| Counters {
            machine: Some(BusyCounters {
                busy_ticks,
                all_ticks,
            }),
            ..Counters::default()
        };
        let mut differences = Differences::new(Duration::ZERO, with(0, 0));
        let step = Duration::from_millis(10);
        assert_eq!(
            differences
                .advance(step, &with(0, 0), standing())
                .machine_utilisation,
            None
        );
        let sample = differences.advance(step * 2, &with(5, 20), standing());
        assert_eq!(sample.machine_utilisation, Some(Ratio::new(0.25)));
    }

    #[test]
    fn waiting_for_a_disk_is_not_busy() {
        let ticks = CpuTicks::of("cpu  10 5 15 60 10 0 0 0 3 0\ncpu0 1 1 1 1 1\n").unwrap();
        let work = MachineWork {
            ticks,
            ..MachineWork::default()
        };
        assert_eq!(
            BusyCounters::of(&work),
            BusyCounters {
                busy_ticks: 30,
                all_ticks: 100
            }
        );
    }

    #[test]
    fn what_the_machine_did_is_of_when_it_was_read() {
        let mut differences = Differences::new(Duration::ZERO, Counters::default());
        let work = MachineWork {
            busy: Seconds::new(3.5),
            softirq: Seconds::new(0.5),
            links: vec![LinkWork {
                name: "eth0".to_owned(),
                received: 7,
                sent: 9,
                bits_per_s: Some(1e9),
            }],
            ..MachineWork::default()
        };
        let counters = Counters {
            work: Some((Duration::from_millis(30), work)),
            ..Counters::default()
        };
        let sample = differences.advance(Duration::from_secs(2), &counters, standing());
        let work = sample.work.unwrap();
        assert_eq!(
            (work.at, work.busy, work.softirq),
            (
                Duration::from_millis(1970),
                Duration::from_millis(3500),
                Duration::from_millis(500)
            )
        );
        assert_eq!((work.links[0].sent, work.links[0].bits_per_s), (9, Some(1e9)));
    }

    proptest! {
        #[test]
        fn whatever_the_counters_do_no_sample_is_negative_or_infinite(
            readings in proptest::collection::vec(
                (0..1u64 << 40, any::<u64>(), 0..3u64, 0..1u64 << 40, any::<bool>(), 0..1u64 << 50), 2..30),
        ) {
            let reading = |(clock, uj, gaps, used, there, ticks): (u64, u64, u64, u64, bool, u64)| {
                let clock = Duration::from_micros(clock);
                let energy = EnergyCounters { clock, total: counter(uj, gaps), zones: vec![] };
                let used = Duration::from_micros(used);
                Counters {
                    cpu: there.then_some(CpuCounters { clock, used, ..CpuCounters::default() }),
                    energy: there.then_some(energy),
                    machine: Some(BusyCounters { busy_ticks: uj >> 20, all_ticks: ticks }),
                    ..Counters::default()
                }
            };
            let mut readings = readings.into_iter().map(reading);
            let mut differences = Differences::new(Duration::ZERO, readings.next().unwrap());
            for (at, counters) in readings.enumerate() {
                let sample = differences.advance(Duration::from_secs(at as u64), &counters, standing());
                prop_assert_eq!(sample.number, at as u64 + 1);
                if let Some(cpu) = sample.cpu {
                    prop_assert!(cpu.busy >= Cores::ZERO && cpu.busy.is_finite());
                }
                if let Some(power) = sample.energy.and_then(|energy| energy.power) {
                    prop_assert!(power.value >= Watts::ZERO && power.value.is_finite());
                }
                if let Some(share) = sample.machine_utilisation {
                    prop_assert!((0.0..=1.0).contains(&share.get()));
                }
                // What is sent is accepted.
                let message = headroom_wire::proto::Sample::from(sample.clone());
                prop_assert!(Sample::try_from(message).is_ok());
            }
        }
    }
}
