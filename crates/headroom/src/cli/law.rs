//! The laws, by name.

use clap::ValueEnum;

/// A control law, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LawName {
    /// Everything on, always: the reference for savings.
    Fixed,
    /// Headroom's own: the cheapest cores, frequency and cap that keep the percentile under the target with a stated
    /// confidence.
    Headroom,
    /// SLO-Power as published: cores by its M/G/k/PS model, power caps, under one Control Unit.
    SloPower,
    /// SLO-Power's power component alone: all cores on, the cap moved.
    PowerOnly,
    /// SLO-Power's elastic component alone: cores moved, the cap at its limit.
    ElasticOnly,
    /// The Horizontal Pod Autoscaler of Kubernetes: cores by utilisation or by requests, no notion of latency.
    Hpa,
    /// That autoscaler as the SLO-Power authors ran it: by utilisation every 2 s, without damping.
    K8sAsRun,
    /// Pegasus as published: all cores on, the cap moved by a table of thresholds on latency.
    Pegasus,
    /// Pegasus as the SLO-Power authors ran it.
    PegasusAsRun,
    /// One fixed cap by the tightness of the promise.
    PowerManager,
    /// All cores at their lowest frequency, as the kernel's governor of that name.
    Powersave,
}

impl LawName {
    /// The name, as the law gives it itself.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fixed => "fixed",
            Self::Headroom => "headroom",
            Self::SloPower => "slo-power",
            Self::PowerOnly => "power-only",
            Self::ElasticOnly => "elastic-only",
            Self::Hpa => "hpa",
            Self::K8sAsRun => "k8s-as-run",
            Self::Pegasus => "pegasus",
            Self::PegasusAsRun => "pegasus-as-run",
            Self::PowerManager => "power-manager",
            Self::Powersave => "powersave",
        }
    }
}

impl std::fmt::Display for LawName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}
