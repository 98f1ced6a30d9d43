//! What nodes can be given and what they have of it, alone and together: pure functions of what they said of themselves.

use headroom_control::{NodeCapacity, PowerEnvelope};
use headroom_units::{Cores, Lever, LeverRange, Setting, Spread, Watts};
use headroom_wire::message::{Description, Ranges, Sample};

/// What a node can be given.
pub(super) fn capacity(description: &Description) -> Result<NodeCapacity, String> {
    let range = |lever, what: &str| {
        let ranges = &description.ranges;
        ranges.get(lever).ok_or_else(|| {
            let why = ranges.missing(lever).map(|none| none.reason.as_str());
            let why = why.unwrap_or("`headroom doctor` there says why");
            format!("its {what} cannot be limited: {why}")
        })
    };
    let cores = range(Lever::Cores, "cores")?;
    let cap = range(Lever::Cap, "power")?;
    let whole = f64::from(description.node.cores_online).max(cores.max);
    let envelope = description.envelope.ok_or("it does not know what it draws")?;
    Ok(NodeCapacity {
        fewest: Cores::new(cores.min),
        most: Cores::new(cores.max),
        power: PowerEnvelope {
            base: envelope.idle,
            per_core: (envelope.full - envelope.idle) / whole,
            lowest_cap: Watts::new(cap.min),
        },
    })
}

/// The line through what all nodes can need with no core and with all.
pub(super) fn envelope(nodes: &[NodeCapacity], most: Cores) -> PowerEnvelope {
    let base: Watts = nodes.iter().map(|node| node.power.base).sum();
    let all: Cores = nodes.iter().map(|node| node.most).sum();
    let cores: Watts = nodes
        .iter()
        .map(|node| node.power.per_core * node.most.get())
        .sum();
    let per_core = cores / all.max(Cores::new(f64::MIN_POSITIVE)).get();
    let lowest: Watts = nodes.iter().map(|node| node.power.lowest_cap).sum();
    let fewest: Cores = nodes.iter().map(|node| node.fewest).sum();
    let bound = base + per_core * fewest.min(most).get();
    PowerEnvelope {
        base,
        per_core,
        lowest_cap: lowest.min(bound),
    }
}

/// What can be commanded of a lever that every node has for itself: one value for all, which each keeps as near as it can.
/// `None` where one of them lacks it, since a value would then hold some nodes back and not the others.
pub(super) fn together(nodes: impl Iterator<Item = Option<LeverRange>>) -> Option<LeverRange> {
    let join = |one: LeverRange, other: LeverRange| LeverRange {
        min: one.min.min(other.min),
        max: one.max.max(other.max),
        step: one.step.min(other.step),
        delay: one.delay.max(other.delay),
    };
    nodes.collect::<Option<Vec<_>>>()?.into_iter().reduce(join)
}

/// The levers that every node has for itself.
pub(super) fn of_each() -> impl Iterator<Item = Lever> {
    Lever::ALL
        .into_iter()
        .filter(|lever| lever.info().spread == Spread::Each)
}

/// A node's part of a setting: of the levers that it has for itself, the value that is nearest within its range.
pub(super) fn own(setting: &Setting, ranges: &Ranges) -> Setting {
    of_each().fold(Setting::default(), |all, lever| {
        let value = setting.get(lever).zip(ranges.get(lever));
        all.with(
            lever,
            value.map(|(value, range)| value.clamp(range.min, range.max)),
        )
    })
}

/// The cores that a node's service has now.
pub(super) fn cores_in_force(description: &Description, in_force: &Setting) -> Cores {
    let all = description
        .ranges
        .get(Lever::Cores)
        .map_or(f64::from(description.node.cores_online), |range| range.max);
    in_force.cores().unwrap_or(Cores::new(all))
}

/// All cores that a node's service can have, and what they can need.
pub(super) fn everything(description: &Description) -> (Cores, Watts) {
    let cores = cores_in_force(description, &Setting::default());
    let cap = capacity(description).map_or(Watts::ZERO, |capacity| capacity.power.limit(cores));
    (cores, cap)
}

/// Cores that a node's service could use: what is allocated, or what a software cap left of it.
pub(crate) fn usable(allocated: Cores, sample: Option<&Sample>) -> Cores {
    let left = sample.and_then(|sample| sample.usable);
    left.map_or(allocated, |left| left.min(allocated))
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_control::{CoreRange, Plant};
    use std::time::Duration;

    #[test]
    fn what_a_software_cap_left_is_what_could_be_used() {
        let sample = |usable: Option<f64>| Sample {
            number: 1,
            agent_run: 1,
            uptime: Duration::ZERO,
            period: Duration::ZERO,
            cpu: None,
            machine_utilisation: None,
            zones: Vec::new(),
            energy: None,
            frequency: None,
            in_force: Setting::default(),
            lease: None,
            troubles: Vec::new(),
            usable: usable.map(Cores::new),
            refused: None,
            oncall: None,
            work: None,
        };
        let usable = |left| usable(Cores::new(2.0), Some(&sample(left))).get();
        assert_eq!(
            (usable(Some(0.5)), usable(Some(4.0)), usable(None)),
            (0.5, 2.0, 2.0)
        );
    }

    #[test]
    fn a_cluster_has_a_lever_of_all_its_nodes_or_not_at_all() {
        let range = |min: f64, max: f64, step: f64| Some(LeverRange::new(min, max, step).unwrap());
        let all = together([range(0.8, 2.1, 0.1), range(1.2, 3.4, 0.2)].into_iter());
        assert_eq!(all, range(0.8, 3.4, 0.1));
        assert!(together([range(0.8, 2.1, 0.1), None].into_iter()).is_none());
        assert!(together(std::iter::empty()).is_none());
    }

    #[test]
    fn a_node_has_the_nearest_value_of_its_own_levers_alone() {
        let ranges = Ranges::default()
            .with(Lever::Cores, Ok(LeverRange::between(0.1, 2.0)))
            .with(Lever::Frequency, Ok(LeverRange::between(1.2e9, 3.4e9)));
        let setting = Setting::from([(Lever::Cores, 8.0), (Lever::Frequency, 0.8e9)]);
        assert_eq!(own(&setting, &ranges), Setting::from([(Lever::Frequency, 1.2e9)]));
        assert_eq!(own(&setting, &Ranges::default()), Setting::default());
    }

    #[test]
    fn the_clusters_line_meets_what_all_nodes_need_with_all_their_cores() {
        let node = |base: f64, per_core: f64, most: f64| NodeCapacity {
            fewest: Cores::new(0.1),
            most: Cores::new(most),
            power: PowerEnvelope {
                base: Watts::new(base),
                per_core: Watts::new(per_core),
                lowest_cap: Watts::new(base + 0.05),
            },
        };
        let nodes = [node(46.52, 2.86, 16.0), node(10.0, 5.0, 4.0)];
        let cluster = envelope(&nodes, Cores::new(20.0));
        let all: f64 = nodes.iter().map(|node| node.power.limit(node.most).get()).sum();
        assert!((cluster.limit(Cores::new(20.0)).get() - all).abs() < 1e-9);
        let range = CoreRange::new(Cores::new(0.2), Cores::new(20.0), Cores::new(0.1)).unwrap();
        assert!(Plant::new(range, cluster).is_ok(), "{cluster:?}");
    }
}
