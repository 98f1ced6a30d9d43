//! What `wrap`, `up` and `agent` say alike to a run with a server on call.

mod on_call;

pub use on_call::OnCall;

use crate::config::ControlConfig;
use crate::config::oncall::OncallConfig;
use headroom_control::oncall::law::{AreaLawName, PolicyName};
use headroom_control::{LawConfig, LawName};
use headroom_node::cpu::CpuList;
use headroom_runtime::live::silence;
use headroom_runtime::oncall::{AttachOptions, Connections};
use headroom_units::Seconds;
use std::sync::Arc;
use std::time::Duration;

/// How long what is commanded holds without us at least: the server of a run that was killed serves as without it from then on.
pub const MIN_LEASE: Duration = Duration::from_secs(5);

/// For how long what is commanded holds where it is not renewed.
pub fn lease(control: &ControlConfig) -> Duration {
    silence(control.period()).max(MIN_LEASE)
}

/// Whether a policy or a law of areas asks for each connection, also where there are no classes.
pub fn asks_each(law: &LawConfig) -> bool {
    let policies = [law.on_call.policy, law.reef.policy];
    let areas = [law.on_call.areas.law, law.reef.areas.law];
    policies.iter().any(|policy| *policy != PolicyName::Fair)
        || areas.iter().any(|law| *law != AreaLawName::None)
}

/// The laws with the break-even time of the machine's own idle states, where the configuration names none: what is measured over it and
/// what a delay is held to are one.
pub fn with_break_even(law: &LawConfig, length: Seconds) -> LawConfig {
    let of_machine = (length > Seconds::ZERO).then(|| length.as_millis());
    let mut law = law.clone();
    for given in [&mut law.on_call.break_even_ms, &mut law.reef.break_even_ms] {
        *given = given.or(of_machine);
    }
    law
}

/// Whether the law of the table `[law.on-call]` is in force: by its own name, or as a part of `joint`.
pub fn runs_on_call(law: &LawConfig) -> bool {
    runs(law, LawName::ON_CALL) || runs(law, LawName::JOINT)
}

/// Whether that of `[law.reef]` is.
pub fn runs_reef(law: &LawConfig) -> bool {
    runs(law, LawName::REEF)
}

fn runs(law: &LawConfig, name: LawName) -> bool {
    law.names.iter().any(|one| one == name)
}

/// Says where a law in force may delay rounds by less than pays alone, so that it never does.
pub fn no_delay_pays(law: &LawConfig) -> Option<String> {
    let (on_call, reef) = (&law.on_call, &law.reef);
    let all = [
        (
            "on-call",
            runs_on_call(law),
            on_call.max_delay_ms,
            on_call.break_even_ms,
        ),
        ("reef", runs_reef(law), reef.max_delay_ms, reef.break_even_ms),
    ];
    let in_force = all.into_iter().filter(|(_, is_in_force, ..)| *is_in_force);
    in_force
        .filter_map(|(name, _, most, pays)| Some((name, most, pays?)))
        .find(|(_, most, pays)| *most > 0.0 && most < pays)
        .map(|(name, most, pays)| {
            format!(
                "law.{name}.max_delay_ms is {most}, and an idle period pays from {pays} ms on: no round is ever delayed; write more, or 0 where \
                 that is meant"
            )
        })
}

/// How a run commands a server that another program started, on these CPUs.
pub fn attach_options(
    config: &OncallConfig,
    law: &LawConfig,
    control: &ControlConfig,
    (cpus, break_even): (CpuList, Seconds),
) -> AttachOptions {
    AttachOptions {
        linger: Duration::from_micros(config.linger_us),
        lease: lease(control),
        classes: config.class.clone(),
        each: asks_each(law),
        cpus,
        break_even,
        connections: Arc::new(Connections::new(
            config.class.clone(),
            config.connections_in_metrics,
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_longest_delay_that_never_pays_is_said_of_the_law_in_force() {
        let said = |text: &str| {
            no_delay_pays(&with_break_even(
                &toml::from_str(text).unwrap(),
                Seconds::from_millis(0.6),
            ))
        };
        assert_eq!(said("name = \"on-call\"\n"), None);
        assert_eq!(said("name = \"on-call\"\n[on-call]\nmax_delay_ms = 0.0\n"), None);
        assert_eq!(said("name = \"on-call\"\n[reef]\nmax_delay_ms = 0.5\n"), None);
        assert_eq!(
            said("name = \"on-call\"\n[on-call]\nmax_delay_ms = 0.5\nbreak_even_ms = 0.2\n"),
            None
        );
        let joint = said("name = \"joint\"\n[on-call]\nmax_delay_ms = 0.5\n").unwrap();
        assert!(
            joint.contains("law.on-call.max_delay_ms is 0.5") && joint.contains("from 0.6 ms on"),
            "{joint}"
        );
        assert!(said("name = \"reef\"\n[reef]\nmax_delay_ms = 0.5\n").is_some());
    }
}
