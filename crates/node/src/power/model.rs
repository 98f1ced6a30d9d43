//! What a machine draws by its figures ([`headroom_physics`]), and what fits under a power cap.
//!
//! With n cores of which u are busy at frequency f, V the voltage over that at the highest, and P1 an idle core in its
//! shallowest state:
//!
//! P(u, f) = platform + uncore + (n - u) P1 V² + u B(f)
//!
//! That is the most that the machine can draw so: a cap must hold also where nothing sleeps deeply. A CPU quota bounds u and
//! switches no core off. What is drawn in truth, with its idle states, is the meter's to say ([`super::modelled`]).

use headroom_physics::{FigureError, MachineFigures};
use headroom_units::{Cores, Ratio, Watts};
use std::sync::Arc;

/// A machine's figures as a meter and a power cap go by them. A clone is cheap.
#[derive(Clone, Debug, PartialEq)]
pub struct PowerModel(Arc<MachineFigures>);

impl PowerModel {
    /// The model of a machine.
    ///
    /// # Errors
    /// [`FigureError`] naming the first figure that cannot be.
    pub fn new(machine: MachineFigures) -> Result<Self, FigureError> {
        machine.check()?;
        Ok(Self(Arc::new(machine)))
    }

    /// Where nobody gives figures: a Skylake server of so many cores.
    ///
    /// # Errors
    /// [`FigureError`] where that is no number of cores.
    pub fn default_for(cores: Cores) -> Result<Self, FigureError> {
        Self::new(MachineFigures::skylake(cores.get().ceil() as usize))
    }

    /// The figures.
    pub fn machine(&self) -> &MachineFigures {
        &self.0
    }

    /// All cores of the machine.
    pub fn cores(&self) -> Cores {
        Cores::new(self.0.processor.cores as f64)
    }

    /// The voltage at a frequency relative to the highest, over that at the highest.
    pub fn voltage(&self, frequency: Ratio) -> f64 {
        let figures = self.0.processor.frequency;
        figures.voltage(figures.highest * share(frequency))
    }

    /// A busy core at a frequency relative to the highest.
    pub fn busy_core(&self, frequency: Ratio) -> Watts {
        let figures = self.0.processor.frequency;
        figures.busy(figures.highest * share(frequency))
    }

    fn idle_core(&self, frequency: Ratio) -> Watts {
        let voltage = self.voltage(frequency);
        self.0.processor.idle_states[0].power * (voltage * voltage)
    }

    /// What a core that becomes busy adds at a frequency relative to the highest.
    pub fn per_busy_core(&self, frequency: Ratio) -> Watts {
        (self.busy_core(frequency) - self.idle_core(frequency)).max(Watts::ZERO)
    }

    /// The most that the machine draws with so many cores busy on average, at a frequency relative to the highest (bounded to
    /// 0..1).
    pub fn power(&self, busy: Cores, frequency: Ratio) -> Watts {
        self.idle(frequency) + self.per_busy_core(frequency) * busy.get().max(0.0)
    }

    /// The most with no core busy: all in their shallowest state.
    pub fn idle(&self, frequency: Ratio) -> Watts {
        let processor = &self.0.processor;
        self.0.platform
            + processor.uncore * processor.packages as f64
            + self.idle_core(frequency) * processor.cores as f64
    }

    /// The power with so many cores busy at the highest frequency: while no more can be, no cap above this one binds.
    pub fn limit(&self, cores: Cores) -> Watts {
        self.power(cores, Ratio::new(1.0))
    }

    /// How many cores may be busy within a cap: the inverse of [`PowerModel::power`], bounded to 0 and what is allocated.
    pub fn busy_cores_within(&self, cap: Watts, allocated: Cores, frequency: Ratio) -> Cores {
        let room = cap - self.idle(frequency);
        let each = self.per_busy_core(frequency).get();
        let busy = match each > 0.0 {
            true => room.get() / each,
            // Busy cores cost nothing: either the idle power fits, and all may be busy, or nothing helps.
            false if room.get() >= 0.0 => allocated.get(),
            false => 0.0,
        };
        Cores::new(busy).clamp(Cores::ZERO, allocated.max(Cores::ZERO))
    }

    /// The highest frequency relative to the highest of the machine at which so many busy cores fit within a cap; 0 where none
    /// does.
    pub fn frequency_within(&self, cap: Watts, busy: Cores) -> Ratio {
        let fits = |ratio: f64| self.power(busy, Ratio::new(ratio)) <= cap;
        if fits(1.0) {
            return Ratio::new(1.0);
        }
        // Power rises with the frequency: by halving, to less than a billionth.
        let (mut below, mut above) = (0.0, 1.0);
        for _ in 0..32 {
            let middle = (below + above) / 2.0;
            match fits(middle) {
                true => below = middle,
                false => above = middle,
            }
        }
        Ratio::new(below)
    }

    /// The lowest cap that can be held by quota where so many cores must be left to the service.
    pub fn minimum_cap(&self, floor: Cores) -> Watts {
        self.limit(floor)
    }

    /// The highest cap that can bind: every core of the machine busy.
    pub fn maximum_cap(&self) -> Watts {
        self.limit(self.cores())
    }
}

fn share(frequency: Ratio) -> f64 {
    frequency.get().clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_units::Hertz;
    use proptest::prelude::*;

    const FULL: Ratio = Ratio::new(1.0);

    fn model(cores: f64) -> PowerModel {
        PowerModel::default_for(Cores::new(cores)).unwrap()
    }

    #[test]
    fn the_frequency_within_a_cap_is_the_inverse_of_the_power() {
        let (model, busy) = (model(16.0), Cores::new(5.0));
        for ratio in [0.4, 0.5, 0.9, 1.0] {
            let cap = model.power(busy, Ratio::new(ratio));
            let back = model.frequency_within(cap, busy).get();
            assert!((back - ratio).abs() < 1e-9, "{back} for {ratio}");
        }
        assert_eq!(model.frequency_within(Watts::ZERO, busy), Ratio::new(0.0));
        assert_eq!(model.frequency_within(Watts::new(1e6), busy), FULL);
    }

    #[test]
    fn a_skylake_server_draws_what_its_figures_say_however_few_cores_are_allocated() {
        let model = model(10.0);
        // 20 W of platform, 35 W of package and memory, ten cores at 1.44 W.
        assert!((model.idle(FULL).get() - 69.4).abs() < 1e-9);
        // A busy core draws 4 W instead.
        assert!((model.limit(Cores::new(3.0)).get() - (69.4 + 3.0 * 2.56)).abs() < 1e-9);
        assert!((model.maximum_cap().get() - 95.0).abs() < 1e-9);
        assert!((model.busy_core(Ratio::new(0.8 / 2.1)).get() - 1.0).abs() < 0.02);
        assert_eq!(model.busy_core(Ratio::new(7.0)), model.busy_core(FULL));
    }

    #[test]
    fn figures_that_are_none_are_refused_by_their_key() {
        let mut machine = MachineFigures::skylake(2);
        machine.platform = Watts::new(-1.0);
        assert_eq!(PowerModel::new(machine).unwrap_err().key, "platform");
        let mut machine = MachineFigures::skylake(2);
        machine.processor.frequency.lowest = Hertz::new(f64::NAN);
        let error = PowerModel::new(machine).unwrap_err();
        assert_eq!(error.key, "processor.frequency.lowest");
        for none in [0.0, -4.0, f64::NAN] {
            assert_eq!(
                PowerModel::default_for(Cores::new(none)).unwrap_err().key,
                "processor.cores"
            );
        }
    }

    #[test]
    fn cores_that_cost_nothing_when_busy_are_all_or_none() {
        let mut machine = MachineFigures::skylake(4);
        machine.processor.idle_states.truncate(1);
        machine.processor.frequency.lowest = machine.processor.frequency.highest;
        machine.processor.idle_states[0].power = machine.processor.frequency.busy_at_top();
        let free = PowerModel::new(machine).unwrap();
        let two = Cores::new(2.0);
        assert_eq!(free.busy_cores_within(free.idle(FULL), two, FULL), two);
        let under = free.idle(FULL) - Watts::new(0.1);
        assert_eq!(free.busy_cores_within(under, two, FULL), Cores::ZERO);
    }

    proptest! {
        #[test]
        fn the_inverse_inverts(
            platform in 0.0..200.0f64, dynamic in 3.0..10.0f64, leakage in 0.5..4.0f64, voltage in 0.5..1.0f64,
            allocated in 0.1..64.0f64, share in 0.0..1.0f64, frequency in 0.4..1.0f64,
        ) {
            let mut machine = MachineFigures::skylake(64);
            machine.platform = Watts::new(platform);
            let figures = &mut machine.processor.frequency;
            (figures.dynamic, figures.leakage) = (Watts::new(dynamic), Watts::new(leakage));
            figures.lowest_voltage = voltage;
            let Ok(model) = PowerModel::new(machine) else { return Ok(()) };
            let (allocated, frequency) = (Cores::new(allocated), Ratio::new(frequency));
            prop_assume!(model.per_busy_core(frequency).get() > 0.05);
            let busy = allocated * share;
            let cap = model.power(busy, frequency);
            let back = model.busy_cores_within(cap, allocated, frequency);
            prop_assert!((back.get() - busy.get()).abs() <= 1e-7, "{back} of {busy}");
        }

        #[test]
        fn power_rises_with_everything(u in 0.0..32.0f64, f in 0.0..1.0f64, more in 0.0..1.0f64) {
            let model = model(32.0);
            let (busy, frequency) = (Cores::new(u), Ratio::new(f));
            let power = model.power(busy, frequency);
            prop_assert!(model.power(busy + Cores::new(more), frequency) >= power);
            prop_assert!(model.power(busy, Ratio::new(f + more)) >= power);
            prop_assert!(model.limit(busy) >= power);
        }
    }
}
