//! What of each law can be searched, and where.

use super::{Found, LawConfig, LawContext, LawError};
use crate::power_manager::PowerManager;

/// A parameter of a law that can be searched.
pub struct Parameter {
    /// Its table under `[law]`.
    pub table: &'static str,
    /// Its key there.
    pub key: &'static str,
    /// The least of the range that is searched.
    pub low: f64,
    /// The most of it.
    pub high: f64,
    /// Whether it is a whole number.
    pub whole: bool,
    get: Box<dyn Fn(&LawConfig) -> f64 + Send + Sync>,
    set: fn(&mut LawConfig, f64),
}

impl Parameter {
    /// Its value in this configuration.
    pub fn get(&self, config: &LawConfig) -> f64 {
        (self.get)(config)
    }

    /// Gives it a value.
    pub fn set(&self, config: &mut LawConfig, value: f64) {
        (self.set)(config, value);
    }
}

/// `parameter!(TABLE, LOW, HIGH, (FIELD OF THE TABLE) KEY)`, then `as` the type of a whole number, or the default in the
/// place of an absent value.
macro_rules! parameter {
    ($table:literal, $low:expr, $high:expr, ($($of:ident).+) $key:ident $(as $whole:ty)?) => {
        Parameter {
            table: $table,
            key: stringify!($key),
            low: $low,
            high: $high,
            whole: is_whole!($($whole)?),
            get: Box::new(|law| law.$($of).+.$key as f64),
            set: |law, value| law.$($of).+.$key = value $(as $whole)?,
        }
    };
    ($table:literal, $low:expr, $high:expr, ($($of:ident).+) $key:ident or $default:expr) => {
        Parameter {
            table: $table,
            key: stringify!($key),
            low: $low,
            high: $high,
            whole: false,
            get: Box::new(|law| law.$($of).+.$key.unwrap_or($default)),
            set: |law, value| law.$($of).+.$key = Some(value),
        }
    };
}

macro_rules! is_whole {
    () => {
        false
    };
    ($whole:ty) => {
        true
    };
}

/// Neither how long it observes before the first decision nor how far its cap lies above what can be drawn saves energy: both
/// are there for safety.
pub(super) fn headroom(_: &LawConfig, _: &LawContext) -> Found {
    Ok(vec![
        parameter!("headroom", 0.7, 1.0, (headroom) guard),
        parameter!("headroom", 0.95, 0.9999, (headroom) confidence),
        parameter!("headroom", 0.0, 0.1, (headroom) least_gain),
    ])
}

pub(super) fn on_call(_: &LawConfig, _: &LawContext) -> Found {
    Ok(vec![parameter!("on-call", 1.0, 64.0, (on_call) max_batch as u32)])
}

pub(super) fn reef(_: &LawConfig, _: &LawContext) -> Found {
    Ok(vec![parameter!("reef", 1.0, 64.0, (reef) max_batch as u32)])
}

pub(super) fn placement(_: &LawConfig, _: &LawContext) -> Found {
    Ok(vec![parameter!("placement", 0.5, 1.0, (placement) guard)])
}

pub(super) fn joint(_: &LawConfig, _: &LawContext) -> Found {
    Ok(vec![parameter!("joint", 0.7, 1.0, (joint) guard)])
}

/// SLO-Power's, of which each of its modes uses those that `uses` names.
fn slo_power_using(context: &LawContext, uses: &[&str]) -> Found {
    let target_ms = context.slo.target().as_millis();
    let all = [
        parameter!("slo-power", 0.5, 1.0, (slo_power) guard),
        parameter!("slo-power", 0.4, 0.98, (slo_power) utilisation_threshold),
        parameter!("slo-power", 1.0, 20.0, (slo_power) sustained_periods as u32),
        parameter!("slo-power", 2.0, 30.0, (slo_power) request_window_periods as usize),
        parameter!("slo-power", 2.0, 15.0, (slo_power) utilisation_window_periods as usize),
        parameter!("slo-power", 0.0, target_ms, (slo_power) hold_band_ms),
        parameter!("slo-power", 0.0, 1.5, (slo_power) cap_floor_over_consumed),
    ];
    let used = |parameter: &Parameter| uses.contains(&parameter.key);
    Ok(all.into_iter().filter(used).collect())
}

const BY_ALL: [&str; 5] = [
    "guard",
    "utilisation_threshold",
    "sustained_periods",
    "utilisation_window_periods",
    "hold_band_ms",
];
const BY_CORES: &str = "request_window_periods";
const BY_CAP: &str = "cap_floor_over_consumed";

pub(super) fn slo_power(_: &LawConfig, context: &LawContext) -> Found {
    slo_power_using(context, &[&BY_ALL[..], &[BY_CORES, BY_CAP]].concat())
}

pub(super) fn power_only(_: &LawConfig, context: &LawContext) -> Found {
    slo_power_using(context, &[&BY_ALL[..], &[BY_CAP]].concat())
}

pub(super) fn elastic_only(_: &LawConfig, context: &LawContext) -> Found {
    slo_power_using(context, &[&BY_ALL[..], &[BY_CORES]].concat())
}

fn pegasus_holding(hold: Parameter) -> Found {
    Ok(vec![
        parameter!("pegasus", 1.0, 2.0, (pegasus) far_over),
        // Their ranges meet and do not overlap: far_under above under is refused.
        parameter!("pegasus", 0.6, 0.95, (pegasus) under),
        parameter!("pegasus", 0.0, 0.6, (pegasus) far_under),
        parameter!("pegasus", 0.01, 0.3, (pegasus) raise),
        parameter!("pegasus", 0.001, 0.05, (pegasus) lower),
        parameter!("pegasus", 0.001, 0.1, (pegasus) lower_far),
        hold,
    ])
}

pub(super) fn pegasus(_: &LawConfig, _: &LawContext) -> Found {
    pegasus_holding(parameter!("pegasus", 0.0, 300.0, (pegasus) hold_s or 300.0))
}

pub(super) fn pegasus_as_run(_: &LawConfig, _: &LawContext) -> Found {
    pegasus_holding(parameter!("pegasus", 0.0, 300.0, (pegasus) hold_s or 30.0))
}

fn of_interval() -> Vec<Parameter> {
    vec![
        parameter!("batching", 0.001, 1.0, (batching) effort),
        parameter!("batching", 0.95, 0.99, (batching) forgetting),
    ]
}

fn of_frequency() -> Vec<Parameter> {
    vec![
        parameter!("dvfs", 0.1, 1.0, (dvfs) alpha_large),
        parameter!("dvfs", 0.2, 2.0, (dvfs) beta_large),
        parameter!("dvfs", 0.3, 0.95, (dvfs) target_utilisation),
        parameter!("dvfs", 1.0, 16.0, (dvfs) every_periods as u32),
    ]
}

pub(super) fn batching(_: &LawConfig, _: &LawContext) -> Found {
    Ok(of_interval())
}

pub(super) fn dvfs(_: &LawConfig, _: &LawContext) -> Found {
    Ok(of_frequency())
}

pub(super) fn batching_dvfs(_: &LawConfig, _: &LawContext) -> Found {
    let coordinator = parameter!("batching-dvfs", 0.5, 1.0, (batching_dvfs) scaling);
    let parts = of_interval().into_iter().chain(of_frequency());
    Ok(parts.chain([coordinator]).collect())
}

/// Its budget and its significance are there for safety.
pub(super) fn seek(_: &LawConfig, _: &LawContext) -> Found {
    Ok(vec![
        parameter!("seek", 0.05, 0.6, (seek) first_share),
        parameter!("seek", 1.2, 2.5, (seek) ratio),
        parameter!("seek", 1.0, 12.0, (seek) block_periods as u32),
        parameter!("seek", 0.0, 0.05, (seek) least_gain),
    ])
}

pub(super) fn hpa(_: &LawConfig, _: &LawContext) -> Found {
    Ok(vec![
        parameter!("hpa", 0.3, 0.98, (hpa) target_utilisation),
        parameter!("hpa", 1.0, 60.0, (hpa) sync_s),
        parameter!("hpa", 0.0, 0.3, (hpa) tolerance),
        parameter!("hpa.down", 0.0, 600.0, (hpa.down) stabilisation_window_s or 300.0),
    ])
}

pub(super) fn k8s_as_run(_: &LawConfig, _: &LawContext) -> Found {
    Ok(vec![
        parameter!("k8s-as-run", 0.3, 0.98, (k8s_as_run) target_utilisation),
        parameter!("k8s-as-run", 1.0, 30.0, (k8s_as_run) interval_s),
    ])
}

pub(super) fn hpa_nodes(_: &LawConfig, _: &LawContext) -> Found {
    Ok(vec![
        parameter!("hpa-nodes", 0.1, 0.9, (hpa_nodes) unneeded_below),
        parameter!("hpa-nodes", 60.0, 3600.0, (hpa_nodes) unneeded_s),
    ])
}

/// The one cap, from the lowest that the nodes take to what all their cores can need.
pub(super) fn power_manager(config: &LawConfig, context: &LawContext) -> Found {
    let plant = context.plant;
    let law = PowerManager::new(context.slo, plant, &config.power_manager);
    let start = law.map_err(LawError::of("power-manager"))?.cap();
    Ok(vec![Parameter {
        table: "power-manager",
        key: "cap_w",
        low: plant.power().lowest_cap.get(),
        high: plant.power().limit(plant.cores().max()).get(),
        whole: false,
        // The level's cap where the file names no other.
        get: Box::new(move |law| law.power_manager.cap_w.unwrap_or(start.get())),
        set: |law, value| law.power_manager.cap_w = Some(value),
    }])
}
