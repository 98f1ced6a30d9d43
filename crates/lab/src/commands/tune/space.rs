//! Which parameters of a law are searched, and where.

use crate::law::LawConfig;
use crate::law::LawName;
use crate::simulate::Setting;
use anyhow::anyhow;
use headroom_console::Failure;
use headroom_control::PowerManager;
use headroom_sim::search::Axis;

/// A parameter that is searched.
pub(super) struct Parameter {
    /// Its table under `[law]`.
    pub table: &'static str,
    /// Its key there.
    pub key: &'static str,
    /// Where it is searched.
    pub axis: Axis,
    get: Box<dyn Fn(&LawConfig) -> f64 + Sync>,
    set: fn(&mut LawConfig, f64),
}

impl Parameter {
    /// Its value in this configuration.
    pub fn get(&self, law: &LawConfig) -> f64 {
        (self.get)(law)
    }

    /// Gives it a value.
    pub fn set(&self, law: &mut LawConfig, value: f64) {
        (self.set)(law, value);
    }
}

macro_rules! parameter {
    ($table:literal, $key:literal, $low:expr, $high:expr, $($field:ident).+) => {
        Parameter {
            table: $table,
            key: $key,
            axis: Axis { low: $low, high: $high, whole: false },
            get: Box::new(|law| law.$($field).+),
            set: |law, value| law.$($field).+ = value,
        }
    };
    ($table:literal, $key:literal, $low:expr, $high:expr, $($field:ident).+ as $whole:ty) => {
        Parameter {
            table: $table,
            key: $key,
            axis: Axis { low: $low, high: $high, whole: true },
            get: Box::new(|law| law.$($field).+ as f64),
            set: |law, value| law.$($field).+ = value as $whole,
        }
    };
    ($table:literal, $key:literal, $low:expr, $high:expr, $($field:ident).+ or $default:expr) => {
        Parameter {
            table: $table,
            key: $key,
            axis: Axis { low: $low, high: $high, whole: false },
            get: Box::new(|law| law.$($field).+.unwrap_or($default)),
            set: |law, value| law.$($field).+ = Some(value),
        }
    };
}

/// The parameters that matter to a law, over ranges that its checks accept in this world; none of a law that has none.
///
/// # Errors
/// A law that cannot be built for this world.
pub(super) fn space(law: LawName, file: &Setting) -> Result<Vec<Parameter>, Failure> {
    let target_ms = file.scenario.service.target_ms;
    let guard = || parameter!("slo-power", "guard", 0.5, 1.0, slo_power.guard);
    let threshold = || {
        parameter!(
            "slo-power",
            "utilisation_threshold",
            0.4,
            0.98,
            slo_power.utilisation_threshold
        )
    };
    let sustained = || {
        parameter!(
            "slo-power",
            "sustained_periods",
            1.0,
            20.0,
            slo_power.sustained_periods as u32
        )
    };
    let requests = || {
        parameter!(
            "slo-power",
            "request_window_periods",
            2.0,
            30.0,
            slo_power.request_window_periods as usize
        )
    };
    let used = || {
        parameter!(
            "slo-power",
            "utilisation_window_periods",
            2.0,
            15.0,
            slo_power.utilisation_window_periods as usize
        )
    };
    let band = || {
        parameter!(
            "slo-power",
            "hold_band_ms",
            0.0,
            target_ms,
            slo_power.hold_band_ms
        )
    };
    let floor = || {
        parameter!(
            "slo-power",
            "cap_floor_over_consumed",
            0.0,
            1.5,
            slo_power.cap_floor_over_consumed
        )
    };
    Ok(match law {
        // Neither how long it looks before the first decision nor how far its cap lies above what can be drawn saves
        // energy: both are there for safety.
        LawName::Headroom => vec![
            parameter!("headroom", "guard", 0.7, 1.0, headroom.guard),
            parameter!("headroom", "confidence", 0.95, 0.9999, headroom.confidence),
            parameter!("headroom", "least_gain", 0.0, 0.1, headroom.least_gain),
        ],
        LawName::PowerManager => vec![cap(file)?],
        LawName::SloPower => vec![
            guard(),
            threshold(),
            sustained(),
            requests(),
            used(),
            band(),
            floor(),
        ],
        LawName::PowerOnly => vec![guard(), threshold(), sustained(), used(), band(), floor()],
        LawName::ElasticOnly => vec![guard(), threshold(), sustained(), requests(), used(), band()],
        LawName::Pegasus | LawName::PegasusAsRun => {
            let published = law == LawName::Pegasus;
            let mut all = vec![
                parameter!("pegasus", "far_over", 1.0, 2.0, pegasus.far_over),
                // Their ranges meet and do not overlap: far_under above under is refused.
                parameter!("pegasus", "under", 0.6, 0.95, pegasus.under),
                parameter!("pegasus", "far_under", 0.0, 0.6, pegasus.far_under),
                parameter!("pegasus", "raise", 0.01, 0.3, pegasus.raise),
                parameter!("pegasus", "lower", 0.001, 0.05, pegasus.lower),
                parameter!("pegasus", "lower_far", 0.001, 0.1, pegasus.lower_far),
            ];
            all.push(match published {
                true => parameter!("pegasus", "hold_s", 0.0, 300.0, pegasus.hold_s or 300.0),
                false => parameter!("pegasus", "hold_s", 0.0, 300.0, pegasus.hold_s or 30.0),
            });
            all
        }
        LawName::Hpa => vec![
            parameter!("hpa", "target_utilisation", 0.3, 0.98, hpa.target_utilisation),
            parameter!("hpa", "sync_s", 1.0, 60.0, hpa.sync_s),
            parameter!("hpa", "tolerance", 0.0, 0.3, hpa.tolerance),
            parameter!("hpa.down", "stabilisation_window_s", 0.0, 600.0, hpa.down.stabilisation_window_s or 300.0),
        ],
        LawName::K8sAsRun => vec![
            parameter!(
                "k8s-as-run",
                "target_utilisation",
                0.3,
                0.98,
                k8s_as_run.target_utilisation
            ),
            parameter!("k8s-as-run", "interval_s", 1.0, 30.0, k8s_as_run.interval_s),
        ],
        LawName::Fixed | LawName::Powersave => Vec::new(),
    })
}

/// The one cap of the power manager, from the lowest that the nodes take to what all their cores can need.
fn cap(file: &Setting) -> Result<Parameter, Failure> {
    let wrong = |key: &str, why: &dyn std::fmt::Display| Failure::usage(anyhow!("{key}: {why}"));
    let plant = file.scenario.plant().map_err(|error| wrong("nodes", &error))?;
    let slo = file.scenario.slo().map_err(|error| wrong("service", &error))?;
    let start = PowerManager::new(slo, plant, &file.law.power_manager)
        .map_err(|error| wrong("law.power-manager", &error))?
        .cap();
    Ok(Parameter {
        table: "power-manager",
        key: "cap_w",
        axis: Axis {
            low: plant.power().lowest_cap.get(),
            high: plant.full().cap.get(),
            whole: false,
        },
        // The level's cap where the file names no other.
        get: Box::new(move |law| law.power_manager.cap_w.unwrap_or(start.get())),
        set: |law, value| law.power_manager.cap_w = Some(value),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    #[test]
    fn every_law_with_a_table_is_searched_from_where_it_stands_and_accepts_both_ends() {
        let file = Setting::read(None).unwrap();
        for law in LawName::value_variants() {
            let parameters = space(*law, &file).unwrap();
            let none = matches!(law, LawName::Fixed | LawName::Powersave);
            assert_eq!(parameters.is_empty(), none, "{law}");
            for parameter in &parameters {
                let (key, axis) = (parameter.key, parameter.axis);
                let start = parameter.get(&file.law);
                assert!(axis.low < axis.high, "{law} {key}");
                assert!(
                    (axis.low..=axis.high).contains(&start),
                    "{law} {key} starts at {start}"
                );
                for value in [axis.low, axis.high] {
                    let mut with = file.clone();
                    parameter.set(&mut with.law, value);
                    assert_eq!(parameter.get(&with.law), value, "{law} {key}");
                    let told = with.guarded(*law).err().map(|error| error.to_string());
                    assert_eq!(told, None, "{law} {key} = {value}");
                }
            }
        }
    }

    #[test]
    fn the_power_managers_cap_starts_at_its_level() {
        let file = Setting::read(None).unwrap();
        let [cap] = &space(LawName::PowerManager, &file).unwrap()[..] else {
            panic!("more than the cap")
        };
        // 0.68 of 3 (46.52 + 16 x 2.86) W, the level of 250 ms.
        let limit = 3.0 * (46.52 + 16.0 * 2.86);
        assert!((cap.get(&file.law) - 0.68 * limit).abs() < 1e-9);
        assert_eq!(
            (cap.table, cap.key, cap.axis.whole),
            ("power-manager", "cap_w", false)
        );
        let mut law = file.law.clone();
        law.power_manager.cap_w = Some(201.0);
        assert_eq!(cap.get(&law), 201.0);
    }
}
