//! `[law]`: which law, and the parameters of each.

use super::LawName;
use headroom_console::{ConfigError, Document};
use headroom_control::queueing::cores_needed;
use headroom_control::{
    Fixed, Headroom, HeadroomError, HeadroomTuning, Hpa, HpaTuning, K8sAsRun, K8sAsRunTuning, Law, Mode,
    OutOfRange, Pegasus, PegasusTuning, PegasusVariant, Plant, PowerManager, PowerManagerTuning, Powersave,
    PowersaveError, Slo, SloPower, SloPowerError, Tuning,
};
use headroom_units::{PerSecond, Seconds};
use serde::Deserialize;

/// `[law]`. The parameters of laws other than the one that runs are checked too, and do nothing.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LawConfig {
    /// The law.
    #[serde(default = "default_law")]
    pub name: LawName,
    /// The parameters of Headroom's own law.
    #[serde(default)]
    pub headroom: HeadroomTuning,
    /// The parameters of SLO-Power, whole or with one of its components alone.
    #[serde(default, rename = "slo-power")]
    pub slo_power: Tuning,
    /// The parameters of the Horizontal Pod Autoscaler.
    #[serde(default)]
    pub hpa: HpaTuning,
    /// The parameters of the autoscaler as the SLO-Power authors ran it.
    #[serde(default, rename = "k8s-as-run")]
    pub k8s_as_run: K8sAsRunTuning,
    /// The parameters of Pegasus, in both of its variants.
    #[serde(default)]
    pub pegasus: PegasusTuning,
    /// The parameters of the fixed caps.
    #[serde(default, rename = "power-manager")]
    pub power_manager: PowerManagerTuning,
}

const fn default_law() -> LawName {
    LawName::SloPower
}

impl Default for LawConfig {
    fn default() -> Self {
        Self::of(default_law())
    }
}

/// A law that cannot be built.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{key}: {why}")]
pub struct LawError {
    /// The key of the configuration file that the objection is about.
    pub key: String,
    /// What is wrong with it.
    pub why: LawObjection,
}

/// What is wrong with a law's parameters, or with the machine for it.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum LawObjection {
    /// SLO-Power's.
    #[error(transparent)]
    SloPower(#[from] SloPowerError),
    /// That of Headroom's own law.
    #[error(transparent)]
    Headroom(#[from] HeadroomError),
    /// A parameter outside its range.
    #[error(transparent)]
    OutOfRange(#[from] OutOfRange),
    /// No frequency to lower.
    #[error(transparent)]
    Powersave(#[from] PowersaveError),
}

impl LawError {
    fn slo_power(error: SloPowerError) -> Self {
        let key = match &error {
            SloPowerError::OutOfRange(bad) => format!("law.slo-power.{}", bad.key),
            SloPowerError::TargetOutOfReach(_) => "slo.target_ms".to_owned(),
        };
        Self {
            key,
            why: error.into(),
        }
    }

    fn headroom(error: HeadroomError) -> Self {
        let key = match &error {
            HeadroomError::OutOfRange(bad) => format!("law.headroom.{}", bad.key),
            HeadroomError::ServiceRate(_) => "service.requests_per_core_s".to_owned(),
        };
        Self {
            key,
            why: error.into(),
        }
    }

    /// For the errors of the table `[law.TABLE]`.
    fn of(table: &'static str) -> impl FnOnce(OutOfRange) -> Self {
        move |error| Self {
            key: format!("law.{table}.{}", error.key),
            why: error.into(),
        }
    }
}

impl LawConfig {
    /// A law with its default parameters.
    pub fn of(name: LawName) -> Self {
        Self {
            name,
            headroom: HeadroomTuning::default(),
            slo_power: Tuning::default(),
            hpa: HpaTuning::default(),
            k8s_as_run: K8sAsRunTuning::default(),
            pegasus: PegasusTuning::default(),
            power_manager: PowerManagerTuning::default(),
        }
    }

    /// The law for this promise, this machine and μ requests per second and core.
    ///
    /// # Errors
    /// A parameter outside its range, a target that no number of cores can meet, a lever that the law needs and the
    /// machine lacks.
    pub fn build(&self, slo: Slo, plant: Plant, service_rate: PerSecond) -> Result<Box<dyn Law>, LawError> {
        let slo_power = |mode| -> Result<Box<dyn Law>, LawError> {
            let law = SloPower::with_mode(slo, plant, service_rate, self.slo_power.clone(), mode);
            Ok(Box::new(law.map_err(LawError::slo_power)?))
        };
        let pegasus = |variant| -> Result<Box<dyn Law>, LawError> {
            let law = Pegasus::new(slo, plant, variant, self.pegasus.clone());
            Ok(Box::new(law.map_err(LawError::of("pegasus"))?))
        };
        match self.name {
            LawName::Fixed => Ok(Box::new(Fixed::new(plant))),
            LawName::Headroom => {
                let law = Headroom::new(slo, plant, service_rate, self.headroom.clone());
                Ok(Box::new(law.map_err(LawError::headroom)?))
            }
            LawName::SloPower => slo_power(Mode::Joint),
            LawName::PowerOnly => slo_power(Mode::PowerOnly),
            LawName::ElasticOnly => slo_power(Mode::ElasticOnly),
            LawName::Hpa => {
                let law = Hpa::new(plant, service_rate, self.hpa.clone());
                Ok(Box::new(law.map_err(LawError::of("hpa"))?))
            }
            LawName::K8sAsRun => {
                let law = K8sAsRun::new(plant, self.k8s_as_run.clone());
                Ok(Box::new(law.map_err(LawError::of("k8s-as-run"))?))
            }
            LawName::Pegasus => pegasus(PegasusVariant::Published),
            LawName::PegasusAsRun => pegasus(PegasusVariant::AsRun),
            LawName::PowerManager => {
                let law = PowerManager::new(slo, plant, &self.power_manager);
                Ok(Box::new(law.map_err(LawError::of("power-manager"))?))
            }
            LawName::Powersave => {
                let law = Powersave::new(plant).map_err(|error| LawError {
                    key: "law.name".to_owned(),
                    why: error.into(),
                })?;
                Ok(Box::new(law))
            }
        }
    }

    /// The same, for a configuration file: what is wrong comes with its line.
    ///
    /// # Errors
    /// As [`LawConfig::build`].
    pub fn law(
        &self,
        document: &Document,
        slo: Slo,
        plant: Plant,
        service_rate: PerSecond,
    ) -> Result<Box<dyn Law>, ConfigError> {
        self.build(slo, plant, service_rate)
            .map_err(|error| document.error(&error.key, error.why))
    }

    /// Whether our own law can reach the target at all, where μ is given: one request alone takes 1/μ, however many cores there
    /// are. The other laws that know of the target say so when they are built. Where μ is measured, a busy minute must not
    /// end a service.
    ///
    /// # Errors
    /// A target out of reach, with its line.
    pub fn reachable(
        &self,
        document: &Document,
        slo: Slo,
        service_rate: PerSecond,
    ) -> Result<(), ConfigError> {
        match self.name {
            LawName::Headroom => cores_needed(PerSecond::new(0.0), service_rate, slo.target())
                .map(drop)
                .map_err(|error| document.error("slo.target_ms", error)),
            _ => Ok(()),
        }
    }

    /// The latency above which the law repairs, where it has such a one below the target: a line to draw.
    pub fn guard(&self, slo: Slo) -> Option<Seconds> {
        match self.name {
            LawName::SloPower | LawName::PowerOnly | LawName::ElasticOnly => {
                Some(slo.target() * self.slo_power.guard)
            }
            LawName::Headroom => {
                Some(slo.target() * self.headroom.guard).filter(|guard| *guard < slo.target())
            }
            LawName::Fixed
            | LawName::Hpa
            | LawName::K8sAsRun
            | LawName::Pegasus
            | LawName::PegasusAsRun
            | LawName::PowerManager
            | LawName::Powersave => None,
        }
    }

    /// Checks the parameters of all laws, whichever runs.
    ///
    /// # Errors
    /// One outside its range, with its line.
    pub fn check(&self, document: &Document) -> Result<(), ConfigError> {
        let all = || {
            self.headroom.check().map_err(LawError::of("headroom"))?;
            self.slo_power.check().map_err(LawError::of("slo-power"))?;
            self.hpa.check().map_err(LawError::of("hpa"))?;
            self.k8s_as_run.check().map_err(LawError::of("k8s-as-run"))?;
            self.pegasus.check().map_err(LawError::of("pegasus"))?;
            self.power_manager.check().map_err(LawError::of("power-manager"))
        };
        all().map_err(|error| document.error(&error.key, error.why))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;
    use headroom_control::{CoreRange, FrequencyRange, PowerEnvelope};
    use headroom_units::{Cores, Hertz, Ratio, Watts};

    fn plant() -> Plant {
        let cores = CoreRange::new(Cores::new(0.2), Cores::new(2.0), Cores::new(0.1)).unwrap();
        let power = PowerEnvelope {
            base: Watts::new(6.0),
            per_core: Watts::new(2.86),
            lowest_cap: Watts::new(6.2),
        };
        Plant::new(cores, power).unwrap()
    }

    fn slo() -> Slo {
        Slo::new(Ratio::from_percent(95.0), Seconds::new(0.25)).unwrap()
    }

    fn document(text: &str) -> Document {
        Document::shipped("headroom.toml", text)
    }

    fn parse(text: &str) -> LawConfig {
        #[derive(Deserialize)]
        struct File {
            law: LawConfig,
        }
        toml::from_str::<File>(text).unwrap().law
    }

    #[test]
    fn every_law_is_built_under_the_name_that_it_gives_itself() {
        let hertz = |ghz: f64| Hertz::new(ghz * 1e9);
        let frequency = FrequencyRange::new(hertz(0.8), hertz(2.1), hertz(0.1)).unwrap();
        let plant = plant().with_frequency(frequency);
        for name in LawName::value_variants() {
            let law = LawConfig::of(*name)
                .build(slo(), plant, PerSecond::new(250.0))
                .unwrap();
            assert_eq!(law.name(), name.to_string());
            let written = parse(&format!("[law]\nname = \"{name}\"\n"));
            assert_eq!(written.name, *name);
            assert_eq!(
                LawName::from_str(&name.to_string(), false).unwrap(),
                *name,
                "on the command line too"
            );
        }
    }

    #[test]
    fn each_law_s_mistake_comes_with_its_line() {
        for (table, said) in [
            (
                "headroom]\nconfidence = 1.0",
                "headroom.toml:2: law.headroom.confidence: confidence is 1: it must be",
            ),
            (
                "hpa]\nsync_s = 0",
                "headroom.toml:2: law.hpa.sync_s: sync_s is 0: it must be",
            ),
            (
                "hpa.up]\nstabilisation_window_s = -1",
                "headroom.toml:2: law.hpa.up.stabilisation_window_s: ",
            ),
            (
                "k8s-as-run]\nnodes = 0",
                "headroom.toml:2: law.k8s-as-run.nodes: nodes is 0",
            ),
            (
                "pegasus]\nraise = 0",
                "headroom.toml:2: law.pegasus.raise: raise is 0",
            ),
            (
                "power-manager]\nlevels = [{ target_ms = 9, cap_share = 2 }]",
                "headroom.toml:2: law.power-manager.levels.cap_share: ",
            ),
        ] {
            let text = format!("[law.{table}\n");
            let message = parse(&text).check(&document(&text)).unwrap_err().to_string();
            assert!(message.starts_with(said), "{message}");
        }
    }

    #[test]
    fn what_a_machine_cannot_do_comes_with_the_law_s_line() {
        for (text, said) in [
            (
                "[law]\nname = \"powersave\"\n",
                "headroom.toml:2: law.name: powersave runs all cores at their lowest frequency",
            ),
            (
                "[law]\nname = \"hpa\"\n[law.hpa]\ncores_per_pod = 0.25\n",
                "headroom.toml:4: law.hpa.cores_per_pod: cores_per_pod is 0.25: it must be a multiple of 0.1",
            ),
            (
                "[law]\nname = \"power-manager\"\n[law.power-manager]\ncap_w = 900\n",
                "headroom.toml:4: law.power-manager.cap_w: cap_w is 900: it must be a cap between 6.20 W",
            ),
        ] {
            let (law, document) = (parse(text), document(text));
            law.check(&document).unwrap();
            let Err(error) = law.law(&document, slo(), plant(), PerSecond::new(250.0)) else {
                panic!("it was accepted: {text}")
            };
            assert!(error.to_string().starts_with(said), "{error}");
        }
    }

    #[test]
    fn the_guard_is_that_of_the_laws_that_have_one() {
        let guard = |name| LawConfig::of(name).guard(slo());
        assert_eq!(guard(LawName::SloPower), Some(Seconds::new(0.2)));
        assert_eq!(guard(LawName::ElasticOnly), Some(Seconds::new(0.2)));
        assert_eq!(guard(LawName::Pegasus), None);
        assert_eq!(guard(LawName::Headroom), None, "its guard is the target");
        let mut careful = LawConfig::of(LawName::Headroom);
        careful.headroom.guard = 0.9;
        assert_eq!(careful.guard(slo()), Some(Seconds::new(0.225)));
    }
}
