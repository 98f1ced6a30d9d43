//! What each lever can save on a machine or a cluster, in watts and by which cause, and which one is best here.

use super::Report;
use headroom_node::Roots;
use headroom_node::probe::{Finding, State};
use headroom_physics::MachineFigures;
use headroom_physics::saving::Savings;
use headroom_units::Watts;
use headroom_wire::message::Description;
use serde::Serialize;

/// What one lever can save of the same work.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LeverSaving {
    /// The lever: `frequency`, `quota`, `cpuset`, `cap`, `server off`.
    pub lever: &'static str,
    /// Watts that it saves where it saves most; 0 where it saves nothing by itself.
    pub watts: f64,
    /// By which cause, with numbers.
    pub why: String,
    /// What is missing for it here; nothing where it can be used.
    pub missing: Option<String>,
}

/// What is there of levers, in words where it is not.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Levers {
    /// Why the frequency cannot be limited.
    pub no_frequency: Option<String>,
    /// Why no whole cores can be taken away.
    pub no_cpuset: Option<String>,
    /// Why the package's own power limit cannot be set.
    pub no_hardware_cap: Option<String>,
    /// Why the kernel says nothing of idle states.
    pub no_idle_states: Option<String>,
    /// Whether a power switch is named for it.
    pub is_switched: bool,
}

impl Levers {
    /// By what was found on the machine.
    pub fn found(findings: &[Finding]) -> Self {
        let usable = |finding: &Finding| finding.state != State::Unusable;
        Self::named(
            findings
                .iter()
                .map(|finding| (finding.what.as_str(), usable(finding), finding.why.as_str())),
        )
    }

    /// By what an agent says of its machine.
    pub fn of_node(description: &Description) -> Self {
        let devices = description.devices.iter();
        Self::named(devices.map(|device| (device.name.as_str(), device.usable, device.reason.as_str())))
    }

    /// Of a machine that nobody could ask, and why.
    pub fn unknown(why: &str) -> Self {
        let unknown = || Some(why.to_owned());
        Self {
            no_frequency: unknown(),
            no_cpuset: unknown(),
            no_hardware_cap: unknown(),
            no_idle_states: unknown(),
            is_switched: false,
        }
    }

    /// By the names of levers, whether each can be used, and why or why not.
    fn named<'a>(all: impl Iterator<Item = (&'a str, bool, &'a str)> + Clone) -> Self {
        let without = |names: &[&str]| {
            let mut found = all.clone().filter(|(name, ..)| names.contains(name));
            if found.clone().any(|(_, usable, _)| usable) {
                return None;
            }
            let why = found.next().map(|(.., why)| why.to_owned());
            Some(why.unwrap_or_else(|| "it was not found".to_owned()))
        };
        Self {
            no_frequency: without(&["CPU frequency limit"]),
            no_cpuset: without(&["CPU sets"]),
            no_hardware_cap: without(&["RAPL power limits", "HSMP power limits (AMD)"]),
            no_idle_states: without(&["CPU idle states"]),
            is_switched: false,
        }
    }
}

/// What each lever saves on a machine of these figures, the one that saves most first.
pub fn savings(machine: &MachineFigures, levers: &Levers) -> Vec<LeverSaving> {
    let savings = Savings::of(machine);
    let watts = |power: Watts| format!("{:.1} W", power.get());
    let (slowed, light) = (savings.frequency, savings.frequency_at_light);
    let [pages, short] = savings.parking;
    let by_frequency = slowed.saved();
    let deep = levers
        .no_idle_states
        .as_ref()
        .map_or(String::new(), |why| format!(", where the host lets them ({why})"));
    let mut all = vec![
        LeverSaving {
            lever: "frequency",
            watts: by_frequency.get(),
            why: format!(
                "{} instead of {} at {:.0} % load, by a lower voltage at {:.1} GHz; {} at {:.0} % load, where the packages sleep less if \
                 work takes longer",
                watts(slowed.best),
                watts(slowed.full),
                slowed.load * 100.0,
                slowed.frequency.get() / 1e9,
                watts(light.saved()),
                light.load * 100.0
            ),
            missing: levers.no_frequency.clone(),
        },
        LeverSaving {
            lever: "cap",
            watts: match levers.no_hardware_cap {
                None => by_frequency.get(),
                Some(_) => 0.0,
            },
            why: match levers.no_hardware_cap {
                None => "the hardware keeps it by the frequency".to_owned(),
                Some(_) => "held by quota it bounds the watts and saves none".to_owned(),
            },
            missing: levers.no_hardware_cap.clone(),
        },
        LeverSaving {
            lever: "quota",
            watts: 0.0,
            why: "a quota switches no core off".to_owned(),
            missing: None,
        },
        LeverSaving {
            lever: "cpuset",
            watts: pages.saved().get(),
            why: match short.saved().get() >= 0.05 {
                true => format!(
                    "idle cores sleep by themselves; {} with requests of {:.2} ms at {:.0} % load, by deep sleep of {} cores{deep}. The \
                     packages' {} only while all cores sleep",
                    watts(short.saved()),
                    short.request.as_millis(),
                    short.load * 100.0,
                    machine.processor.cores - short.cores,
                    watts(savings.packages)
                ),
                false => "idle cores draw as little as parked ones".to_owned(),
            },
            missing: levers.no_cpuset.clone(),
        },
        LeverSaving {
            lever: "server off",
            watts: savings.off_pays_after.map_or(0.0, |_| savings.off.get()),
            why: match savings.off_pays_after {
                Some(time) => format!(
                    "{} against an idle one, from {:.0} s away on ({:.0} s of boot)",
                    watts(savings.off),
                    time.get(),
                    machine.server.boot.get()
                ),
                None => format!(
                    "never: off it draws {}, and {} on and idle",
                    watts(machine.server.off),
                    watts(savings.idle)
                ),
            },
            missing: (!levers.is_switched).then(|| {
                "`headroom controller` switches servers, by a power switch for each node".to_owned()
            }),
        },
    ];
    all.sort_by(|one, other| other.watts.total_cmp(&one.watts));
    all
}

/// The words of one.
pub fn words(saving: &LeverSaving) -> String {
    let missing = match &saving.missing {
        Some(missing) => format!(" [not here: {missing}]"),
        None => String::new(),
    };
    format!("{:.1} W: {}{missing}", saving.watts, saving.why)
}

/// Less is as much as none.
const WORTH_W: f64 = 0.5;

/// The lever of this machine that saves most.
pub fn best(savings: &[LeverSaving]) -> Option<&LeverSaving> {
    savings
        .iter()
        .find(|saving| saving.missing.is_none() && saving.watts >= WORTH_W)
}

/// An example configuration with what saves most on this machine set, and why in its first line.
pub fn example(text: &str, savings: &[LeverSaving]) -> String {
    let Some(best) = best(savings) else {
        return format!("# No lever saves watts on this machine (`headroom doctor` says why).\n{text}");
    };
    let set = match best.lever {
        // Whole cores sleep where fractions of all of them do not.
        "cpuset" => text.replace("# lever = \"quota\"\n", "lever = \"cpuset\"\n"),
        _ => text.to_owned(),
    };
    format!(
        "# What saves most on this machine: {}, {}.\n{set}",
        best.lever,
        words(best)
    )
}

/// Of the machine that these trees are of, by the figures of a Skylake server with as many cores; nothing where it names no
/// processor.
pub fn of_machine(roots: &Roots, findings: &[Finding]) -> Vec<LeverSaving> {
    match headroom_node::cpu::online(roots).map(|cpus| cpus.len()) {
        Ok(cores) if cores > 0 => savings(&MachineFigures::skylake(cores), &Levers::found(findings)),
        _ => Vec::new(),
    }
}

/// Adds to what a check says what each lever saves.
pub fn describe(machine: &MachineFigures, roots: &Roots, report: &mut Report) {
    let findings = headroom_node::probe::probe(roots);
    for saving in savings(machine, &Levers::found(&findings)) {
        let value = serde_json::to_value(&saving).unwrap_or_default();
        report.item(
            "saves",
            "savings",
            format_args!("{}: {}", saving.lever, words(&saving)),
            value,
        );
    }
}

/// What one lever can save on the machines of a cluster that are alike.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClusterSaving {
    /// The machines' names.
    pub nodes: Vec<String>,
    /// On all of them together, watts.
    pub total_watts: f64,
    /// On each.
    #[serde(flatten)]
    pub each: LeverSaving,
}

/// What each lever saves on the machines of a cluster, the one that saves most on all of those that are alike first.
pub fn of_cluster(machines: &[(String, MachineFigures, Levers)]) -> Vec<ClusterSaving> {
    let mut alike: Vec<(Vec<String>, &MachineFigures, &Levers)> = Vec::new();
    for (name, figures, levers) in machines {
        match alike
            .iter_mut()
            .find(|(_, of, with)| *of == figures && *with == levers)
        {
            Some((names, ..)) => names.push(name.clone()),
            None => alike.push((vec![name.clone()], figures, levers)),
        }
    }
    let of_alike = |(nodes, figures, levers): &(Vec<String>, &MachineFigures, &Levers)| {
        let count = nodes.len() as f64;
        let each = savings(figures, levers).into_iter();
        each.map(|each| ClusterSaving {
            nodes: nodes.clone(),
            total_watts: each.watts * count,
            each,
        })
        .collect::<Vec<_>>()
    };
    let mut all: Vec<ClusterSaving> = alike.iter().flat_map(of_alike).collect();
    all.sort_by(|one, other| other.total_watts.total_cmp(&one.total_watts));
    all
}

/// The most machines that are named in a line.
const MAX_NAMED: usize = 4;

/// Adds to what a check says what each lever saves on the machines of a cluster.
pub fn describe_cluster(machines: &[(String, MachineFigures, Levers)], report: &mut Report) {
    for saving in of_cluster(machines) {
        let value = serde_json::to_value(&saving).unwrap_or_default();
        let (nodes, each) = (&saving.nodes, &saving.each);
        let of = match nodes.len() {
            1 => format!("on {}", nodes[0]),
            count if count <= MAX_NAMED => format!(
                "{:.1} W on {} together, on each",
                saving.total_watts,
                nodes.join(", ")
            ),
            count => format!(
                "{:.1} W on {} and {} more together, on each",
                saving.total_watts,
                nodes[..MAX_NAMED].join(", "),
                count - MAX_NAMED
            ),
        };
        report.item(
            "saves",
            "savings",
            format_args!("{}: {of} {}", each.lever, words(each)),
            value,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(all: &[LeverSaving], lever: &str) -> LeverSaving {
        all.iter().find(|saving| saving.lever == lever).unwrap().clone()
    }

    #[test]
    fn each_lever_says_its_watts_and_their_cause() {
        let machine = MachineFigures::skylake(8);
        let all = savings(&machine, &Levers::default());
        let frequency = words(&of(&all, "frequency"));
        assert!(frequency.contains("by a lower voltage at 1."), "{frequency}");
        assert_eq!(words(&of(&all, "quota")), "0.0 W: a quota switches no core off");
        let cpuset = of(&all, "cpuset").why;
        assert!(
            cpuset.contains("with requests of 0.05 ms at") && cpuset.contains("The packages' 18.8 W"),
            "{cpuset}"
        );
        assert!(of(&all, "server off").why.contains("60 s of boot"));
        assert_eq!(of(&all, "cap").watts, of(&all, "frequency").watts);
        assert_eq!(best(&all).unwrap().lever, "frequency");
    }

    #[test]
    fn an_example_has_the_lever_that_saves_most() {
        let text = crate::config::EXAMPLE;
        let set = |levers: &Levers| example(text, &savings(&MachineFigures::skylake(8), levers));
        let all = set(&Levers::default());
        assert!(
            all.starts_with("# What saves most on this machine: frequency, "),
            "{all}"
        );
        assert!(all.contains("\nname = \"joint\"\n") && all.contains("\n# lever = \"quota\"\n"));
        let none = || Some("none".to_owned());
        let virtual_machine = Levers {
            no_frequency: none(),
            no_hardware_cap: none(),
            ..Levers::default()
        };
        assert!(set(&virtual_machine).starts_with("# No lever saves watts on this machine"));
        let parking = LeverSaving {
            lever: "cpuset",
            watts: 5.0,
            why: String::new(),
            missing: None,
        };
        let all = example(text, &[parking]);
        assert!(all.contains("\nname = \"joint\"\n") && all.contains("\nlever = \"cpuset\"\n"));
    }

    #[test]
    fn machines_of_a_cluster_that_are_alike_are_said_together_and_servers_off_where_they_are_switched() {
        let switched = Levers {
            is_switched: true,
            ..Levers::default()
        };
        let node = |name: &str, cores, levers: &Levers| {
            (name.to_owned(), MachineFigures::skylake(cores), levers.clone())
        };
        let machines = [
            node("n1", 8, &switched),
            node("n2", 16, &Levers::default()),
            node("n3", 8, &switched),
        ];
        let all = of_cluster(&machines);
        assert!(all.windows(2).all(|two| two[0].total_watts >= two[1].total_watts));
        let off: Vec<&ClusterSaving> = all
            .iter()
            .filter(|saving| saving.each.lever == "server off")
            .collect();
        let of_two = off.iter().find(|saving| saving.nodes == ["n1", "n3"]).unwrap();
        assert_eq!(of_two.total_watts, 2.0 * of_two.each.watts);
        assert_eq!(of_two.each.missing, None);
        let of_one = off.iter().find(|saving| saving.nodes == ["n2"]).unwrap();
        assert!(of_one.each.missing.is_some() && of_one.total_watts == of_one.each.watts);
        assert_eq!(off.len(), 2);
    }

    #[test]
    fn what_is_missing_is_said_and_a_cap_by_quota_saves_nothing() {
        let levers = Levers {
            no_frequency: Some("a virtual machine's frequency belongs to its host".to_owned()),
            no_hardware_cap: Some("no powercap directory".to_owned()),
            no_idle_states: Some("none".to_owned()),
            ..Levers::default()
        };
        let all = savings(&MachineFigures::skylake(8), &levers);
        assert!(
            words(&of(&all, "frequency"))
                .ends_with("[not here: a virtual machine's frequency belongs to its host]")
        );
        assert_eq!(of(&all, "cap").watts, 0.0);
        assert_eq!(best(&all), None);
        let mut never = MachineFigures::skylake(2);
        never.server.off = Watts::new(500.0);
        assert_eq!(of(&savings(&never, &levers), "server off").watts, 0.0);
    }
}
