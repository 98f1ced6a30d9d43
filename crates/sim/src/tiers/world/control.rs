//! What is read at the end of a sample and of a period, and what is decided then.

use super::{TIERS, TiersStep, World};
use crate::tiers::totals::TiersSample;
use crate::world::Controller;
use headroom_control::{Observation, Traffic};
use headroom_units::{Lever, Ratio, Seconds, Setting, Simulated, Watts};

impl World<'_> {
    /// A sample ends.
    pub(super) fn end_sample(&mut self) {
        self.sample += 1;
        let now = self.read();
        let before = std::mem::replace(&mut self.sample_reading, now);
        let (counts, cores) = (now.counts - before.counts, self.scenario.cores());
        let share = |tier: usize| {
            let busy_core_s = now.busy_core_s[tier] - before.busy_core_s[tier];
            Ratio::new(busy_core_s / (f64::from(cores[tier]) * counts.length_s))
        };
        let energy = (now.energy - before.energy).total();
        self.samples.push(TiersSample {
            at: Seconds::new(self.now_s),
            users: self.present,
            counts,
            utilisation: [0, 1, 2].map(share),
            power: Watts::new(energy.get() / counts.length_s),
            energy,
        });
    }

    /// A period ends: what was observed goes to the law, and what it decides is in force.
    pub(super) fn end_period(&mut self, law: &mut dyn Controller, sink: &mut dyn FnMut(&TiersStep<'_>)) {
        let observation = self.observe();
        let decision = law.decide(&observation);
        self.carry_out(&decision.setting);
        self.period += 1;
        self.period_began_s = self.now_s;
        // While intervals run and each is a period, its end is the period's.
        self.period_ends_s = match self.scenario.decide_each_batch && self.batcher.holds() {
            true => f64::INFINITY,
            false => self.now_s + self.scenario.period_s,
        };
        sink(&TiersStep {
            observation: &observation,
            decision: &decision,
            users: self.present,
        });
    }

    fn observe(&mut self) -> Observation {
        let now = self.read();
        let before = std::mem::replace(&mut self.period_reading, now);
        let counts = now.counts - before.counts;
        let now_s = Seconds::new(self.now_s);
        let length = Seconds::new(self.now_s - self.period_began_s);
        let busy_core_s: f64 = (0..TIERS)
            .map(|tier| now.busy_core_s[tier] - before.busy_core_s[tier])
            .sum();
        let cores: u32 = self.scenario.cores().iter().sum();
        let mean = |sum: f64| (length > Seconds::ZERO).then(|| sum / length.get());
        let traffic = Traffic {
            arrivals: counts.arrivals,
            completions: counts.completions,
            in_flight: Some(u64::from(self.in_flight)),
            oldest_in_flight: self.oldest(),
            latency: self.latencies.latency(self.slo, 0),
            ..Traffic::default()
        };
        self.latencies.clear();
        Observation {
            period: self.period,
            at: now_s,
            clock: now_s,
            length,
            in_force: self.in_force(),
            traffic: Some(traffic),
            utilisation: mean(busy_core_s).map(|busy| Ratio::new((busy / f64::from(cores)).min(1.0))),
            power: mean((now.energy - before.energy).total().get())
                .map(|watts| Simulated(Watts::new(watts)).into()),
            frequency: mean(counts.hertz_s).map(|hertz| Simulated(headroom_units::Hertz::new(hertz)).into()),
            cpu_time: Some(Seconds::new(busy_core_s)),
            cache: self.cache.as_ref().map(|_| counts.cache()),
            batching: Some(counts.batching(self.batcher.held())),
            ..Observation::default()
        }
    }

    /// The setting in force, as it reads back.
    fn in_force(&self) -> Setting {
        self.plant
            .full()
            .with(Lever::BatchInterval, Some(self.batcher.interval_s))
            .with(
                Lever::Frequency,
                self.machine.limit().map(headroom_units::Hertz::get),
            )
    }

    /// An interval that no law sets stays; a frequency that none limits is the highest.
    fn carry_out(&mut self, setting: &Setting) {
        self.count();
        if let Some(interval) = setting.batch_interval() {
            let most_s = self.scenario.batch.max_interval_s;
            self.batcher.set(self.now_s, interval.get().clamp(0.0, most_s));
        }
        let before = self.machine.level().frequency;
        self.machine.set_limit(self.now_s, setting.frequency());
        let level = self.machine.level();
        if level.frequency != before {
            for (tier, cores) in self.scenario.cores().into_iter().enumerate() {
                self.due_s[tier] = self.tiers[tier].set(self.now_s, f64::from(cores), level.speed);
            }
        }
    }
}
