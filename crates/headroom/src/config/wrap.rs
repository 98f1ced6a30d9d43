//! What `headroom wrap` reads.

use super::oncall::OncallConfig;
use super::{AdminConfig, ControlConfig, RecordConfig, SloConfig};
use headroom_console::{ConfigErrors, Document, Mistakes};
use headroom_control::{LawConfig, LawName, LawNames};
use headroom_node::power::MeterPreference;
use headroom_physics::Machine;
use headroom_units::Setting;
use serde::Deserialize;
use std::path::Path;

/// An example with every key, its default and what it means: what `headroom wrap --example` prints.
pub const EXAMPLE: &str = concat!(
    include_str!("../../wrap.example.toml"),
    include_str!("../../oncall.example.toml"),
    include_str!("../../laws-on-call.example.toml")
);

/// The whole file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WrapConfig {
    /// The SLO of all queries together.
    #[serde(default = "slo")]
    pub slo: SloConfig,
    /// The law and its parameters.
    #[serde(default)]
    pub law: LawConfig,
    /// The server on call.
    #[serde(default)]
    pub oncall: OncallConfig,
    /// The meter.
    #[serde(default)]
    pub power: WrapPower,
    /// What the machine is.
    #[serde(default)]
    pub machine: Machine,
    /// The control period.
    #[serde(default)]
    pub control: ControlConfig,
    /// The flight recorder.
    #[serde(default)]
    pub record: RecordConfig,
    /// The admin port.
    #[serde(default)]
    pub admin: AdminConfig,
}

/// `[power]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WrapPower {
    /// Which meter to take, or which to try in turn.
    pub meter: MeterPreference,
}

fn slo() -> SloConfig {
    SloConfig {
        percentile: PERCENTILE,
        target_ms: 100.0,
        failed_status: headroom_units::FailedStatus::default(),
    }
}

/// The SLO's percentile where none is named.
const PERCENTILE: f64 = 99.0;
/// The laws that move C, N and D, and the one that leaves a server alone.
pub const LAWS: [LawName; 5] = [
    LawName::ON_CALL,
    LawName::REEF,
    LawName::JOINT,
    LawName::CONSTANT,
    LawName::FIXED,
];
/// Queries are many, and a comparison takes dozens of periods.
const PERIOD_MS: f64 = 250.0;

impl WrapConfig {
    /// Reads a file, or the defaults where there is none, of which those laws run that `laws` makes of those that it names.
    ///
    /// # Errors
    /// [`ConfigErrors`] for a file that cannot be read or understood, and for every value that is outside its range.
    pub fn read(
        file: Option<&Path>,
        laws: impl Fn(LawNames) -> LawNames,
    ) -> Result<(Self, Document), ConfigErrors> {
        let document = match file {
            Some(file) => Document::read(file, "wrap")?,
            None => Document::shipped("(no configuration)", ""),
        };
        let named = document.has("law", "name");
        let mut config: Self = document.parse_checked("wrap", |config: &Self, mistakes| {
            config.check(&document, mistakes);
        })?;
        if !named {
            config.law.names = LawName::ON_CALL.into();
        }
        if !document.has("control", "period_ms") {
            config.control.period_ms = PERIOD_MS;
        }
        if !document.has("slo", "percentile") {
            config.slo.percentile = PERCENTILE;
        }
        // Many servers may be wrapped on one machine.
        if !document.has("admin", "listen") {
            config.admin.listen = None;
        }
        config.law.names = laws(config.law.names);
        if let Some(other) = config.law.names.iter().find(|name| !LAWS.contains(name)) {
            let known = LAWS.map(LawName::as_str).join(", ");
            let why = format!("is {other}, which moves nothing of a wrapped server: choose of {known}");
            return Err(document.error("law.name", why).into());
        }
        Ok((config, document))
    }

    /// The setting that holds, by flags or the file, where no law moves any.
    pub fn by_hand(&self) -> Option<&Setting> {
        let mut laws = self.law.names.iter();
        laws.all(|law| law == LawName::CONSTANT)
            .then_some(&self.law.constant.setting)
    }

    fn check(&self, document: &Document, mistakes: &mut Mistakes) {
        mistakes.of(self.slo.slo(document));
        for error in self.law.mistakes() {
            mistakes.push(document.error(&error.key, error.why));
        }
        mistakes.of(self.control.check(document));
        mistakes.of(self.record.check(document));
        self.oncall.check(false, document, mistakes);
        self.oncall.check_laws(&self.law, document, mistakes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_console::ConfigError;

    fn read(text: &str) -> Result<WrapConfig, String> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("wrap.toml");
        std::fs::write(&file, text).unwrap();
        let read = WrapConfig::read(Some(&file), |names| names);
        read.map(|(config, _)| config).map_err(|errors| {
            errors
                .iter()
                .map(ConfigError::to_string)
                .collect::<Vec<_>>()
                .join("\n")
        })
    }

    #[test]
    fn the_example_is_what_holds_without_a_file() {
        let (default, _) = WrapConfig::read(None, |names| names).unwrap();
        let example = read(EXAMPLE).unwrap();
        assert_eq!(format!("{:?}", example.slo), format!("{:?}", default.slo));
        assert_eq!(format!("{:?}", example.oncall), format!("{:?}", default.oncall));
        assert_eq!(format!("{:?}", example.law), format!("{:?}", default.law));
        assert_eq!(format!("{:?}", example.control), format!("{:?}", default.control));
        // Each key that is commented out is one: with it in force the file is still understood.
        let in_force: String = EXAMPLE
            .lines()
            .map(|line| match line.strip_prefix("# ") {
                Some(key) if key.starts_with("[[oncall") || key.starts_with("name = \"gold\"") => key,
                Some(key)
                    if ["clients", "weight = ", "p95_ms", "p99_ms", "p999_ms"]
                        .iter()
                        .any(|of| key.starts_with(of)) =>
                {
                    key
                }
                _ => line,
            })
            .flat_map(|line| [line, "\n"])
            .collect();
        let config = read(&in_force).unwrap();
        assert_eq!(config.oncall.class[0].name, "gold");
    }

    #[test]
    fn keys_that_are_commented_out_stand_with_their_default() {
        let own = include_str!("../../wrap.example.toml");
        let is_key = |line: &&str| line.split_once(" = ").is_some_and(|(key, _)| !key.contains(' '));
        let in_force: String = own
            .lines()
            .map(|line| line.strip_prefix("# ").filter(is_key).unwrap_or(line))
            .flat_map(|line| [line, "\n"])
            .collect();
        assert!(in_force.contains("\nlost_periods_to_full = "), "{in_force}");
        let (default, _) = WrapConfig::read(None, |names| names).unwrap();
        let example = read(&in_force).unwrap();
        assert_eq!(format!("{:?}", example.control), format!("{:?}", default.control));
        assert_eq!(format!("{:?}", example.record), format!("{:?}", default.record));
        assert_eq!(format!("{:?}", example.power), format!("{:?}", default.power));
    }

    #[test]
    fn a_class_that_nothing_is_done_for_is_said_not_to_be_kept() {
        let gold = "[[oncall.class]]\nname = \"gold\"\nclients = [\"10.0.0.0/8\"]\np99_ms = 4\n";
        let notes = |text: &str| {
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("wrap.toml");
            std::fs::write(&file, text).unwrap();
            let (config, document) = WrapConfig::read(Some(&file), |names| names).unwrap();
            config.oncall.notes(&config.law, &document).join("\n")
        };
        let kept = |law: &str| notes(&format!("{gold}{law}"));
        assert!(kept("").contains("class gold: its SLO of a percentile is watched and reported"));
        assert!(kept("").contains("law.on-call.policy is fair"));
        assert!(kept("[law]\nname = \"fixed\"\n").contains("the law fixed gives no class turns"));
        assert_eq!(kept("[law.on-call]\npolicy = \"paced\"\n"), "");
        assert_eq!(
            kept("[law]\nname = \"joint\"\n[law.on-call]\npolicy = \"pslo\"\n"),
            ""
        );
        assert_eq!(
            kept("[law.on-call.areas]\nlaw = \"reef\"\nbest_effort_per_s = 10.0\n"),
            ""
        );
        let elsewhere = kept("[law.reef]\npolicy = \"paced\"\n");
        assert!(
            elsewhere.contains("class gold")
                && elsewhere.contains("law.reef.policy is written and does nothing"),
            "{elsewhere}"
        );
        let table = kept("[law.on-call]\npolicy = \"table\"\ntable = { gold = { tokens = 0 } }\n");
        assert!(
            table.contains("class rest has no row") && table.contains("table.gold has 0 tokens"),
            "{table}"
        );
        let idle = kept("[law.on-call]\npolicy = \"paced\"\ntable = { gold = { tokens = 2 } }\n");
        assert!(
            idle.contains("law.on-call.table is written and does nothing"),
            "{idle}"
        );
        let no_areas = kept("[law.on-call]\npolicy = \"paced\"\nareas = { best_effort_per_s = 10.0 }\n");
        assert!(
            no_areas.contains("law.on-call.areas.best_effort_per_s is written and does nothing"),
            "{no_areas}"
        );
        let shadowed = notes(&format!(
            "{gold}[[oncall.class]]\nname = \"app\"\nclients = [\"10.2.0.0/16\"]\n[law.on-call]\npolicy = \"paced\"\n"
        ));
        assert!(
            shadowed.contains("class app: no connection is ever in it") && shadowed.contains("class gold"),
            "{shadowed}"
        );
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        let wrong =
            "[oncall]\nlinger_us = 2000000\n[[oncall.class]]\nname = \"rest\"\nclients = [\"unix\"]\n";
        let said = read(wrong).unwrap_err();
        assert!(
            said.contains("wrap.toml:2: oncall.linger_us: is 2000000"),
            "{said}"
        );
        assert!(
            said.contains("wrap.toml:4:") && said.contains("class of all others"),
            "{said}"
        );
        let said = read("[[oncall.class]]\nname = \"a\"\nclients = [\"localhost\"]\n").unwrap_err();
        assert!(
            said.contains("wrap.toml:3") && said.contains("names no clients"),
            "{said}"
        );
        let said = read("[oncall]\nconnections_in_metrics = 2000\n").unwrap_err();
        assert!(
            said.contains("wrap.toml:2: oncall.connections_in_metrics: is 2000: at most 1024"),
            "{said}"
        );
        let refused = |text: &str, parts: &[&str]| {
            let said = read(text).unwrap_err();
            assert!(parts.iter().all(|part| said.contains(part)), "{said}");
        };
        let class = "[[oncall.class]]\nname = \"gold\"\nclients = [\"unix\"]\n";
        refused(
            &format!("{class}[law.on-call]\npolicy = \"pslo\"\n"),
            &["wrap.toml:5: law.on-call.policy: is pslo", "give one p95_ms"],
        );
        refused(
            &format!("{class}p95_ms = 20\n[law.reef]\npolicy = \"utslo\"\n"),
            &["wrap.toml:6: law.reef.policy: is utslo", "give one disengagement"],
        );
        refused(
            &format!("{class}[law.reef]\npolicy = \"paced\"\n"),
            &["wrap.toml:5: law.reef.policy: is paced", "give one p95_ms"],
        );
        refused(
            &format!(
                "{class}[law.on-call]\npolicy = \"table\"\ntable = {{ silver = {{ tokens = 2 }}, rest = {{ tokens = 1 }} }}\n"
            ),
            &[
                "wrap.toml:6: law.on-call.table.silver: names no class",
                "one of gold, rest",
            ],
        );
        refused(
            &format!("{class}[law.on-call.areas]\nlaw = \"reef\"\nbest_effort_per_s = 100\n"),
            &["wrap.toml:5: law.on-call.areas.law: divides the cores by SLOs"],
        );
        refused(
            "[law.on-call.areas]\nlaw = \"weights\"\n",
            &[
                "wrap.toml:2",
                "baseline of the simulator alone",
                "choose none, reef",
            ],
        );
        refused(
            &format!("{class}p95_ms = 20\n[law.on-call.areas]\nlaw = \"reef\"\n"),
            &["wrap.toml:5: law.on-call.areas.best_effort_per_s: is missing"],
        );
        refused(
            &format!("{class}disengagement = {{ at_most = 2.0, points = [[0.0, 0.0]] }}\n"),
            &["oncall.class[0].disengagement.at_most"],
        );
        // Whether a class that is not understood has an SLO is not known.
        let said = read(&format!(
            "{class}p99_ms = \"x\"\n[law.on-call]\npolicy = \"paced\"\n"
        ))
        .unwrap_err();
        assert!(!said.contains("law.on-call.policy"), "{said}");
        let said = read(&format!(
            "{class}p99_ms = -1\n[law.on-call]\npolicy = \"utslo\"\n"
        ))
        .unwrap_err();
        assert!(!said.contains("law.on-call.policy"), "{said}");
        refused(
            "[oncall.class]\nname = \"gold\"\nclients = [\"unix\"]\n",
            &["write [[oncall.class]], in two brackets, before each"],
        );
        assert!(read("[gateway]\n").unwrap_err().contains("gateway"));
        let said = read("[oncall]\nserver = \"mariadbd\"\n").unwrap_err();
        assert!(
            said.contains("wrap.toml:2: oncall.server: is for `headroom up`"),
            "{said}"
        );
        let said = read("[law]\nname = \"hpa\"\n").unwrap_err();
        assert!(
            said.contains("wrap.toml:2: law.name: is hpa, which moves nothing of a wrapped server"),
            "{said}"
        );
        // A table without the key has the same default as none.
        assert_eq!(read("[slo]\ntarget_ms = 50\n").unwrap().slo.percentile, 99.0);
    }
}
