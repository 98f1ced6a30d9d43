//! The list of laws, and their tables.

use super::{
    Built, Entry, Found, LawContext, LawError, LawName, LawNames, ScheduledConfig, StaticConfig, foreseen,
    search, servers,
};
use crate::batching::{
    Batching, BatchingDvfs, BatchingTuning, CoordinatorTuning, Dvfs, DvfsTuning, Seek, SeekTuning,
};
use crate::constant::{Constant, ConstantConfig};
use crate::elastic::ElasticTuning;
use crate::headroom::Headroom;
use crate::hpa::{Hpa, HpaNodes, HpaNodesTuning, HpaTuning, K8sAsRun, K8sAsRunTuning};
use crate::joint::{Joint, JointTuning};
use crate::oncall::law::{OnCall, OncallTuning, Reef, ReefTuning};
use crate::parameter::Parameters;
use crate::pegasus::{Pegasus, PegasusTuning, PegasusVariant};
use crate::placement::{Placement, PlacementTuning};
use crate::power_manager::{PowerManager, PowerManagerTuning, Powersave};
use crate::resize::{AlwaysOn, ResizeTuning};
use crate::slo_power::{Mode, SloPower};
use crate::{Fixed, HeadroomTuning, Tuning};
use headroom_units::Lever;
use serde::Deserialize;

const FIXED: Entry = Entry {
    name: "fixed",
    about: "Everything on, always: the reference for savings",
    table: None,
    resizes: false,
    may_resize: false,
    of_gateways: false,
    has_defaults: true,
    needs_reachable_target: false,
    needs_service_rate: false,
    build: |_, context| Ok(Box::new(Fixed::new(context.plant))),
    foreseen: |_, _, _| Vec::new(),
    search: nothing,
};

/// The laws, in the order in which help and tables name them.
pub(super) static LAWS: [Entry; 26] = [
    FIXED,
    Entry {
        name: "headroom",
        about: "Headroom's own: the cheapest cores, frequency and cap that keep the percentile under the target with a stated \
                confidence",
        table: Some("headroom"),
        needs_reachable_target: true,
        needs_service_rate: true,
        build: headroom,
        search: search::headroom,
        ..FIXED
    },
    Entry {
        name: "slo-power",
        about: "SLO-Power as published: cores by its M/G/k/PS model, power caps, under one Control Unit",
        build: |config, context| slo_power(config, context, Mode::Joint),
        search: search::slo_power,
        ..SLO_POWER
    },
    Entry {
        name: "power-only",
        about: "SLO-Power's power component alone: all cores on, the cap moved",
        build: |config, context| slo_power(config, context, Mode::PowerOnly),
        search: search::power_only,
        ..SLO_POWER
    },
    Entry {
        name: "elastic-only",
        about: "SLO-Power's elastic component alone: cores moved, the cap at its limit",
        build: |config, context| slo_power(config, context, Mode::ElasticOnly),
        search: search::elastic_only,
        ..SLO_POWER
    },
    Entry {
        name: "hpa",
        about: "The Horizontal Pod Autoscaler of Kubernetes: cores by utilisation or by requests, no notion of latency",
        table: Some("hpa"),
        needs_service_rate: true,
        build: |config, context| {
            let law = Hpa::new(context.plant, context.service_rate, config.hpa.clone());
            Ok(Box::new(law.map_err(LawError::of("hpa"))?))
        },
        search: search::hpa,
        ..FIXED
    },
    Entry {
        name: "k8s-as-run",
        about: "That autoscaler as the SLO-Power authors ran it: by utilisation every 2 s, without damping",
        table: Some("k8s-as-run"),
        build: |config, context| {
            let law = K8sAsRun::new(context.plant, config.k8s_as_run.clone());
            Ok(Box::new(law.map_err(LawError::of("k8s-as-run"))?))
        },
        search: search::k8s_as_run,
        ..FIXED
    },
    Entry {
        name: "pegasus",
        about: "Pegasus as published: all cores on, the cap moved by a table of thresholds on latency",
        table: Some("pegasus"),
        build: |config, context| pegasus(config, context, PegasusVariant::Published),
        search: search::pegasus,
        ..FIXED
    },
    Entry {
        name: "pegasus-as-run",
        about: "Pegasus as the SLO-Power authors ran it",
        table: Some("pegasus"),
        build: |config, context| pegasus(config, context, PegasusVariant::AsRun),
        search: search::pegasus_as_run,
        ..FIXED
    },
    Entry {
        name: "power-manager",
        about: "One fixed cap by the tightness of the SLO",
        table: Some("power-manager"),
        build: |config, context| {
            let law = PowerManager::new(context.slo, context.plant, &config.power_manager);
            Ok(Box::new(law.map_err(LawError::of("power-manager"))?))
        },
        search: search::power_manager,
        ..FIXED
    },
    Entry {
        name: "powersave",
        about: "All cores at their lowest frequency, as the kernel's governor of that name",
        build: |_, context| Ok(Box::new(Powersave::new(context.plant)?)),
        ..FIXED
    },
    Entry {
        name: "constant",
        about: "A setting that stays, of the levers that law.constant.setting names, as in { cap = 40.0 }: for those that no \
                other law steers",
        table: Some("constant"),
        has_defaults: false,
        build: constant,
        foreseen: foreseen::constant,
        ..FIXED
    },
    Entry {
        name: "joint",
        about: "Headroom's own for every lever: the cheapest servers and frequency that keep the SLO as often as asked, \
                whatever the model believes",
        table: Some("joint"),
        needs_reachable_target: true,
        needs_service_rate: true,
        may_resize: true,
        build: joint,
        foreseen: foreseen::joint,
        search: search::joint,
        ..FIXED
    },
    Entry {
        name: "hpa-nodes",
        may_resize: true,
        about: "That autoscaler with Kubernetes' cluster autoscaler: nodes by what the pods request",
        table: Some("hpa-nodes"),
        needs_service_rate: true,
        build: hpa_nodes,
        search: search::hpa_nodes,
        ..FIXED
    },
    Entry {
        name: "batching",
        about: "Self-tuning batching as published: how long a gateway holds requests, by a fuzzy model that predicts the mean \
                response time",
        table: Some("batching"),
        of_gateways: true,
        build: |config, context| {
            let law = Batching::new(context.slo, context.plant, config.batching.clone())?;
            Ok(Box::new(law))
        },
        foreseen: foreseen::batching,
        search: search::batching,
        ..FIXED
    },
    Entry {
        name: "dvfs",
        about: "The CPU frequency by expert fuzzy rules on throughput and use, as published with self-tuning batching",
        table: Some("dvfs"),
        build: |config, context| Ok(Box::new(Dvfs::new(context.plant, config.dvfs.clone())?)),
        search: search::dvfs,
        ..FIXED
    },
    Entry {
        name: "batching-dvfs",
        about: "Self-tuning batching with DVFS as published: the batch interval and the frequency under one coordinator",
        table: Some("batching-dvfs"),
        build: |config, context| {
            let law = BatchingDvfs::new(
                context.slo,
                context.plant,
                config.batching.clone(),
                config.dvfs.clone(),
                config.batching_dvfs,
            )?;
            Ok(Box::new(law))
        },
        foreseen: foreseen::batching,
        search: search::batching_dvfs,
        ..FIXED
    },
    Entry {
        name: "seek",
        about: "Headroom's own for the batch interval: seeks the one of least response time, and holds nothing where that does \
                not help",
        table: Some("seek"),
        of_gateways: true,
        build: |config, context| {
            Ok(Box::new(Seek::new(
                context.slo,
                context.plant,
                config.seek.clone(),
            )?))
        },
        foreseen: foreseen::seek,
        search: search::seek,
        ..FIXED
    },
    Entry {
        name: "static",
        about: "Servers on and off: as many as the load needs where each takes a capacity that a benchmark showed",
        table: Some("static"),
        has_defaults: false,
        build: servers::fixed,
        ..RESIZER
    },
    Entry {
        name: "dynamic",
        about: "Servers on and off: as many as the load needs by each server's capacity, estimated from its accept queue",
        table: Some("resize"),
        build: servers::online,
        ..RESIZER
    },
    Entry {
        name: "elastic",
        about: "Headroom's own for servers on and off: as many as what comes needs, and may need until another could boot, with capacities \
                estimated online, and none switched off for less than its boot costs",
        table: Some("elastic"),
        build: servers::elastic,
        ..RESIZER
    },
    Entry {
        name: "scheduled",
        about: "Servers on and off by the time of day",
        table: Some("scheduled"),
        has_defaults: false,
        build: servers::scheduled,
        ..RESIZER
    },
    Entry {
        name: "on-call",
        about: "Headroom's own for a server on call: how many workers run at once, how many queries a connection has in a round, how \
                long nothing wakes between rounds; by comparison, for what law.on-call.goal says",
        table: Some("on-call"),
        build: |config, context| {
            let law = OnCall::new(
                context.slo,
                context.plant,
                context.machines.first(),
                config.on_call.clone(),
            );
            Ok(Box::new(law.map_err(LawError::of("on-call"))?))
        },
        search: search::on_call,
        ..FIXED
    },
    Entry {
        name: "reef",
        about: "REEF's regulator of a server on call as published: the fewest workers that saturate it, batches by the goal, a delay by \
                the load limit",
        table: Some("reef"),
        build: |config, context| {
            let law = Reef::new(context.slo, context.plant, context.machines.first(), &config.reef);
            Ok(Box::new(law.map_err(LawError::of("reef"))?))
        },
        search: search::reef,
        ..FIXED
    },
    Entry {
        name: "always-on",
        about: "Every server on, always: the reference for what switching them off saves",
        ..RESIZER
    },
    Entry {
        name: "placement",
        about: "Headroom's own for gateways in front of machines of several kinds: requests by the size of their answers to the machines that \
                serve them for the least energy",
        table: Some("placement"),
        has_defaults: false,
        of_gateways: true,
        build: |config, context| {
            let law = Placement::new(context.slo, &context.plant, config.placement.clone())?;
            Ok(Box::new(law))
        },
        foreseen: foreseen::placement,
        search: search::placement,
        ..FIXED
    },
];

/// What the laws that switch servers share.
const RESIZER: Entry = Entry {
    resizes: true,
    build: |_, _| Ok(Box::new(AlwaysOn)),
    foreseen: foreseen::servers,
    ..FIXED
};

/// `[law]`: which laws, and the parameters of each. Those of the laws that do not run are checked too, and do nothing.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct LawConfig {
    /// The law, or the laws that run together, each on its own levers.
    #[serde(rename = "name")]
    pub names: LawNames,
    /// Periods from one decision about the number of servers to the next.
    #[serde(rename = "servers_every_periods")]
    pub servers_every_periods: u32,
    /// The parameters of Headroom's own law.
    pub headroom: HeadroomTuning,
    /// The parameters of the joint law.
    pub joint: JointTuning,
    /// The parameters of SLO-Power, whole or with one of its components alone.
    pub slo_power: Tuning,
    /// The parameters of the Horizontal Pod Autoscaler.
    pub hpa: HpaTuning,
    /// The parameters of the cluster autoscaler beside it.
    pub hpa_nodes: HpaNodesTuning,
    /// The parameters of the autoscaler as the SLO-Power authors ran it.
    pub k8s_as_run: K8sAsRunTuning,
    /// The parameters of Pegasus, in both of its variants.
    pub pegasus: PegasusTuning,
    /// The parameters of the fixed caps.
    pub power_manager: PowerManagerTuning,
    /// The parameters of the control of the batch interval by a fuzzy model.
    pub batching: BatchingTuning,
    /// The parameters of the control of the frequency by fuzzy rules.
    pub dvfs: DvfsTuning,
    /// The parameters of their coordinator.
    pub batching_dvfs: CoordinatorTuning,
    /// The parameters of the law that seeks the batch interval of least cost.
    pub seek: SeekTuning,
    /// The parameters of the law that places requests by size.
    pub placement: PlacementTuning,
    /// The parameters of our own law of a server on call.
    pub on_call: OncallTuning,
    /// The parameters of that law as published.
    pub reef: ReefTuning,
    /// The parameters of the laws that follow the load with servers, as published.
    pub resize: ResizeTuning,
    /// The parameters of our own law that does.
    pub elastic: ElasticTuning,
    /// What one server can take.
    #[serde(rename = "static")]
    pub fixed_capacity: StaticConfig,
    /// What stays.
    pub constant: ConstantConfig,
    /// The schedule.
    pub scheduled: ScheduledConfig,
}

impl Default for LawConfig {
    fn default() -> Self {
        Self::of(LawName::default())
    }
}

impl LawConfig {
    /// A law with the default parameters.
    pub fn of(name: LawName) -> Self {
        Self {
            names: name.into(),
            servers_every_periods: 1,
            headroom: HeadroomTuning::default(),
            joint: JointTuning::default(),
            slo_power: Tuning::default(),
            hpa: HpaTuning::default(),
            hpa_nodes: HpaNodesTuning::default(),
            k8s_as_run: K8sAsRunTuning::default(),
            pegasus: PegasusTuning::default(),
            power_manager: PowerManagerTuning::default(),
            batching: BatchingTuning::default(),
            dvfs: DvfsTuning::default(),
            batching_dvfs: CoordinatorTuning::default(),
            seek: SeekTuning::default(),
            placement: PlacementTuning::default(),
            on_call: OncallTuning::default(),
            reef: ReefTuning::default(),
            resize: ResizeTuning::default(),
            elastic: ElasticTuning::default(),
            fixed_capacity: StaticConfig::default(),
            constant: ConstantConfig::default(),
            scheduled: ScheduledConfig::default(),
        }
    }

    /// Checks the parameters of all laws, whichever runs.
    ///
    /// # Errors
    /// One outside its range.
    pub fn check(&self) -> Result<(), LawError> {
        self.mistakes().into_iter().next().map_or(Ok(()), Err)
    }

    /// All that is outside its range, whichever law runs.
    pub fn mistakes(&self) -> Vec<LawError> {
        let laws: [(&'static str, &dyn Parameters); 15] = [
            ("headroom", &self.headroom),
            ("joint", &self.joint),
            ("slo-power", &self.slo_power),
            ("hpa", &self.hpa),
            ("hpa-nodes", &self.hpa_nodes),
            ("k8s-as-run", &self.k8s_as_run),
            ("pegasus", &self.pegasus),
            ("power-manager", &self.power_manager),
            ("batching", &self.batching),
            ("batching-dvfs", &self.batching_dvfs),
            ("seek", &self.seek),
            ("placement", &self.placement),
            ("on-call", &self.on_call),
            ("reef", &self.reef),
            ("resize", &self.resize),
        ];
        let of_laws = laws
            .into_iter()
            .flat_map(|(name, law)| law.outside().into_iter().map(LawError::of(name)));
        let constant = self.constant.setting.iter();
        let constant = constant
            .filter(|(_, value)| !value.is_finite())
            .map(|(lever, value)| constant_value(lever, format!("is {value}: it must be a number")));
        let every = (self.servers_every_periods == 0)
            .then(|| LawError::new("law.servers_every_periods", "is 0: it must be 1 or more"));
        of_laws
            .chain(self.dvfs.mistakes())
            .chain(constant)
            .chain(every)
            .collect()
    }
}

/// What the three SLO-Power laws share.
const SLO_POWER: Entry = Entry {
    table: Some("slo-power"),
    needs_service_rate: true,
    foreseen: foreseen::slo_power,
    ..FIXED
};

/// Names that code refers to.
impl LawName {
    /// `fixed`.
    pub const FIXED: Self = Self(&LAWS[0]);
    /// `headroom`.
    pub const HEADROOM: Self = Self(&LAWS[1]);
    /// `joint`.
    pub const JOINT: Self = Self(&LAWS[12]);
    /// `slo-power`.
    pub const SLO_POWER: Self = Self(&LAWS[2]);
    /// `power-only`.
    pub const POWER_ONLY: Self = Self(&LAWS[3]);
    /// `elastic-only`.
    pub const ELASTIC_ONLY: Self = Self(&LAWS[4]);
    /// `k8s-as-run`.
    pub const K8S_AS_RUN: Self = Self(&LAWS[6]);
    /// `pegasus-as-run`.
    pub const PEGASUS_AS_RUN: Self = Self(&LAWS[8]);
    /// `power-manager`.
    pub const POWER_MANAGER: Self = Self(&LAWS[9]);
    /// `powersave`.
    pub const POWERSAVE: Self = Self(&LAWS[10]);
    /// `constant`.
    pub const CONSTANT: Self = Self(&LAWS[11]);
    /// `on-call`.
    pub const ON_CALL: Self = Self(&LAWS[22]);
    /// `reef`.
    pub const REEF: Self = Self(&LAWS[23]);
}

fn nothing(_: &LawConfig, _: &LawContext) -> Found {
    Ok(Vec::new())
}

pub(super) fn constant_value(lever: Lever, why: String) -> LawError {
    LawError::new(format!("law.constant.setting.{lever}"), why)
}

fn constant(config: &LawConfig, context: &LawContext) -> Built {
    let setting = config.constant.setting;
    for (lever, value) in setting.iter() {
        // A lever that is not here is refused where the laws are joined.
        if let Some(bounds) = context.plant.bounds(lever) {
            foreseen::within(lever, value, bounds)?;
        }
    }
    match Constant::new(setting) {
        Some(law) => Ok(Box::new(law)),
        None => Err(LawError::new(
            "law.constant.setting",
            "is empty: name a lever, as in { cores = 1.5 }",
        )),
    }
}

fn headroom(config: &LawConfig, context: &LawContext) -> Built {
    let (slo, rate, tuning) = (context.slo, context.service_rate, config.headroom.clone());
    Ok(Box::new(Headroom::new(slo, context.plant, rate, tuning)?))
}

fn joint(config: &LawConfig, context: &LawContext) -> Built {
    let (spare, servers) = (config.joint.spare, context.machines.len());
    if servers > 0 && spare >= servers {
        let why = format!(
            "is {spare} of {servers} servers: one at least must be needed for the load, so give at most {}",
            servers - 1
        );
        return Err(LawError::new("law.joint.spare", why));
    }
    let law = Joint::new(
        context.slo,
        context.plant,
        &context.machines,
        context.service_rate,
        config.joint.clone(),
    );
    match law {
        Some(law) => {
            let law = law.with_interval(config.seek.clone())?;
            let law = law.with_placement(config.placement.clone())?;
            let machine = context.machines.first();
            Ok(Box::new(law.with_sleep(machine, config.on_call.clone())?))
        }
        None => Err(LawError::new(
            "law.name",
            "joint plans by what the machines draw, which nobody says here: give [machine]",
        )),
    }
}

fn hpa_nodes(config: &LawConfig, context: &LawContext) -> Built {
    if context.machines.is_empty() {
        return Err(LawError::new(
            "law.name",
            "hpa-nodes switches machines by their cores, which nobody says here: give [machine]",
        ));
    }
    let law = HpaNodes::new(
        context.plant,
        &context.machines,
        context.service_rate,
        config.hpa.clone(),
        config.hpa_nodes,
    );
    Ok(Box::new(law.map_err(LawError::of("hpa"))?))
}

fn slo_power(config: &LawConfig, context: &LawContext, mode: Mode) -> Built {
    let (slo, rate, tuning) = (context.slo, context.service_rate, config.slo_power.clone());
    Ok(Box::new(SloPower::with_mode(
        slo,
        context.plant,
        rate,
        tuning,
        mode,
    )?))
}

fn pegasus(config: &LawConfig, context: &LawContext, variant: PegasusVariant) -> Built {
    let law = Pegasus::new(context.slo, context.plant, variant, config.pegasus.clone());
    Ok(Box::new(law.map_err(LawError::of("pegasus"))?))
}
