//! `[law.placement]`.

use crate::parameter::{Bound, OutOfRange, Parameters, refused, require};
use headroom_physics::ServerFigures;
use headroom_physics::serving::{ServiceCost, ServingMachine};
use headroom_units::{Seconds, Watts};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The most backends that the law places on.
pub const MAX_BACKENDS: usize = 256;
/// The most kinds of machines that it tells apart.
pub const MAX_KINDS: usize = 16;

/// The parameters of the law of placement.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PlacementTuning {
    /// The predicted percentile of each class stays under this share of the target.
    pub guard: f64,
    /// The kind of machine of each backend, by its URL as the gateways have it.
    pub machines: BTreeMap<String, String>,
    /// What each kind is, as `headroom place --law` prints it from a profile.
    pub kinds: BTreeMap<String, KindFigures>,
    /// Other routes must save this share of what the work draws.
    pub least_gain: f64,
    /// The mean age of what rates and sizes are known by, periods.
    pub smoothing_periods: u32,
    /// Periods in which the gateway balances as configured before it places for the first time, and after its telemetry was lost.
    pub warm_up_periods: u32,
    /// Periods in a row in which the SLO was missed, and the model does not say why, before it lets go.
    pub late_periods: u32,
    /// Periods for which it then lets go; doubled each time, up to eightfold.
    pub let_go_periods: u32,
    /// What a request takes at least beside the work of its machine: the network and the gateway, ms. More is learned where all backends take it.
    pub path_ms: f64,
}

/// `[law.placement.kinds.NAME]`: a machine and what the service takes there.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KindFigures {
    /// Cores that serve at once.
    pub cores: usize,
    /// What its link carries in one direction, bytes a second.
    pub link_bytes_per_s: f64,
    /// Drawn while it serves nothing, W.
    pub idle_w: f64,
    /// What all cores busy add, W.
    pub busy_w: f64,
    /// What a full link adds, W.
    pub link_w: f64,
    /// Time of one core for a request of any size, µs.
    pub request_us: f64,
    /// Time of one core for each kilobyte (1024 bytes) of its answer, µs.
    pub kilobyte_us: f64,
    /// Bytes over the link beside the content.
    pub head_bytes: f64,
    /// Bytes over the link for each byte of the content.
    pub bytes_per_byte: f64,
}

impl KindFigures {
    /// The figures of a machine and the cost of its service.
    pub fn of(machine: &ServingMachine, service: &ServiceCost) -> Self {
        Self {
            cores: machine.cores,
            link_bytes_per_s: machine.link_bytes_per_s,
            idle_w: machine.idle.get(),
            busy_w: machine.busy.get(),
            link_w: machine.link.get(),
            request_us: service.per_request.get() * 1e6,
            kilobyte_us: service.per_byte.get() * 1e6 * 1024.0,
            head_bytes: service.head_bytes,
            bytes_per_byte: service.bytes_per_byte,
        }
    }

    /// The machine, which is never switched here.
    pub fn machine(&self, name: &str) -> ServingMachine {
        ServingMachine {
            name: name.to_owned(),
            cores: self.cores,
            link_bytes_per_s: self.link_bytes_per_s,
            idle: Watts::new(self.idle_w),
            busy: Watts::new(self.busy_w),
            link: Watts::new(self.link_w),
            server: ServerFigures {
                off: Watts::ZERO,
                ..ServerFigures::default()
            },
        }
    }

    /// What its service takes.
    pub fn service(&self) -> ServiceCost {
        ServiceCost {
            per_request: Seconds::new(self.request_us * 1e-6),
            per_byte: Seconds::new(self.kilobyte_us * 1e-6 / 1024.0),
            head_bytes: self.head_bytes,
            bytes_per_byte: self.bytes_per_byte,
        }
    }
}

impl Default for PlacementTuning {
    fn default() -> Self {
        Self {
            guard: 0.8,
            machines: BTreeMap::new(),
            kinds: BTreeMap::new(),
            least_gain: 0.02,
            smoothing_periods: 10,
            warm_up_periods: 3,
            late_periods: 3,
            let_go_periods: 60,
            path_ms: 0.5,
        }
    }
}

impl Parameters for PlacementTuning {
    fn outside(&self) -> Vec<OutOfRange> {
        let periods = Bound::Between(1.0, 10_000.0);
        let counts = [
            ("machines", self.machines.len(), MAX_BACKENDS),
            ("kinds", self.kinds.len(), MAX_KINDS),
        ];
        let counts = counts.map(|(key, count, most)| {
            require(
                key,
                count as f64,
                count <= most,
                format!("at most {most} of them"),
            )
        });
        let own = [
            Bound::Share.check("guard", self.guard),
            Bound::Between(0.0, 0.5).check("least_gain", self.least_gain),
            periods.check("smoothing_periods", f64::from(self.smoothing_periods)),
            periods.check("warm_up_periods", f64::from(self.warm_up_periods)),
            periods.check("late_periods", f64::from(self.late_periods)),
            periods.check("let_go_periods", f64::from(self.let_go_periods)),
            Bound::Between(0.0, 10_000.0).check("path_ms", self.path_ms),
        ];
        let kinds = self.kinds.iter().flat_map(|(name, kind)| {
            let key = |key: &str| format!("kinds.{name}.{key}");
            [
                Bound::Between(1.0, 4096.0).check(key("cores"), kind.cores as f64),
                Bound::Positive.check(key("link_bytes_per_s"), kind.link_bytes_per_s),
                Bound::Between(0.0, 1e5).check(key("idle_w"), kind.idle_w),
                Bound::Between(0.0, 1e5).check(key("busy_w"), kind.busy_w),
                Bound::Between(0.0, 1e5).check(key("link_w"), kind.link_w),
                Bound::Positive.check(key("request_us"), kind.request_us),
                Bound::NotNegative.check(key("kilobyte_us"), kind.kilobyte_us),
                Bound::NotNegative.check(key("head_bytes"), kind.head_bytes),
                Bound::Positive.check(key("bytes_per_byte"), kind.bytes_per_byte),
            ]
        });
        refused(counts.into_iter().chain(own).chain(kinds))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parameter::assert_refused;

    #[test]
    fn the_defaults_pass_and_what_is_out_of_range_is_named() {
        assert_refused(
            PlacementTuning::check,
            &[
                (r#"{"guard": 1.5}"#, "guard is 1.5"),
                (r#"{"late_periods": 0}"#, "late_periods is 0"),
                (r#"{"path_ms": -1}"#, "path_ms is -1"),
                (
                    r#"{"kinds": {"arm": {"cores": 0, "link_bytes_per_s": 1, "idle_w": 1, "busy_w": 1, "link_w": 0, "request_us": 1,
                        "kilobyte_us": 0, "head_bytes": 0, "bytes_per_byte": 1}}}"#,
                    "kinds.arm.cores is 0",
                ),
            ],
        );
    }
}
