//! Plants and SLOs of literals, for the tests of one law and of all.
#![allow(dead_code)]

use headroom_control::{CoreRange, FrequencyRange, Plant, PowerEnvelope, Slo};
use headroom_units::{Cores, Hertz, Ratio, Seconds, Watts};

/// Fewest cores, most and the step; watts of none, of each and of the lowest cap.
pub fn plant(cores: [f64; 3], watts: [f64; 3]) -> Plant {
    let [min, max, step] = cores.map(Cores::new);
    let [base, per_core, lowest_cap] = watts.map(Watts::new);
    let power = PowerEnvelope {
        base,
        per_core,
        lowest_cap,
    };
    Plant::new(CoreRange::new(min, max, step).unwrap(), power).unwrap()
}

/// Frequencies from this to that many GHz in tenths.
pub fn frequencies(low_ghz: f64, high_ghz: f64) -> FrequencyRange {
    let [low, high, step] = [low_ghz, high_ghz, 0.1].map(|ghz| Hertz::new(ghz * 1e9));
    FrequencyRange::new(low, high, step).unwrap()
}

/// The P95 under so many milliseconds.
pub fn slo(target_ms: f64) -> Slo {
    Slo::new(Ratio::new(0.95), Seconds::from_millis(target_ms)).unwrap()
}
