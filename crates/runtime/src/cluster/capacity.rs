//! What nodes can be given and what they have of it, alone and together: pure functions of what they said of themselves.

use headroom_control::{FrequencyRange, NodeCapacity, PlantError, PowerEnvelope};
use headroom_units::{Cores, Hertz, Watts};
use headroom_wire::message::{self, Description, Sample};

/// What a node can be given.
pub(super) fn capacity(description: &Description) -> Result<NodeCapacity, String> {
    let cores = description
        .cores
        .ok_or("its cores cannot be limited: `headroom doctor` there says why")?;
    let cap = description
        .cap
        .ok_or("its power cannot be limited: `headroom doctor` there says why")?;
    let whole = f64::from(description.node.cores_online).max(cores.maximum);
    let envelope = description.envelope.ok_or("it does not know what it draws")?;
    Ok(NodeCapacity {
        fewest: Cores::new(cores.minimum),
        most: Cores::new(cores.maximum),
        power: PowerEnvelope {
            base: envelope.idle,
            per_core: (envelope.full - envelope.idle) / whole,
            lowest_cap: Watts::new(cap.minimum),
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

/// The frequencies that all nodes together can be limited to: one limit for all, which each keeps as near as it can.
/// `None` where one of them has no lever for it, since a limit would then hold some nodes back and not the others.
pub(super) fn frequencies(
    nodes: impl Iterator<Item = Option<message::Range>>,
) -> Option<Result<FrequencyRange, PlantError>> {
    let ranges: Vec<message::Range> = nodes.collect::<Option<_>>()?;
    let least = |pick: fn(&message::Range) -> f64| ranges.iter().map(pick).reduce(f64::min);
    let lowest = least(|range| range.minimum)?;
    let highest = ranges.iter().map(|range| range.maximum).reduce(f64::max)?;
    let step = least(|range| range.step)?;
    Some(FrequencyRange::new(
        Hertz::new(lowest),
        Hertz::new(highest),
        Hertz::new(step.min(highest)),
    ))
}

/// The cores that a node's service has now.
pub(super) fn cores_in_force(description: &Description, in_force: &message::Allocation) -> Cores {
    let all = description
        .cores
        .map_or(f64::from(description.node.cores_online), |range| range.maximum);
    in_force.cores.unwrap_or(Cores::new(all))
}

/// All cores that a node's service can have, and what they can need.
pub(super) fn everything(description: &Description) -> (Cores, Watts) {
    let cores = cores_in_force(description, &message::Allocation::AS_FOUND);
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
            in_force: message::Allocation::AS_FOUND,
            lease: None,
            troubles: Vec::new(),
            usable: usable.map(Cores::new),
            refused: None,
        };
        let usable = |left| usable(Cores::new(2.0), Some(&sample(left))).get();
        assert_eq!(
            (usable(Some(0.5)), usable(Some(4.0)), usable(None)),
            (0.5, 2.0, 2.0)
        );
    }

    #[test]
    fn a_cluster_has_the_frequencies_of_all_its_nodes_or_none() {
        let range = |minimum: f64, maximum: f64, step: f64| {
            Some(message::Range {
                minimum: minimum * 1e9,
                maximum: maximum * 1e9,
                step: step * 1e9,
            })
        };
        let all = frequencies([range(0.8, 2.1, 0.1), range(1.2, 3.4, 0.2)].into_iter());
        let all = all.unwrap().unwrap();
        let ghz = |frequency: Hertz| (frequency.get() / 1e7).round() / 100.0;
        assert_eq!((ghz(all.min()), ghz(all.max()), ghz(all.step())), (0.8, 3.4, 0.1));
        assert!(frequencies([range(0.8, 2.1, 0.1), None].into_iter()).is_none());
        assert!(frequencies(std::iter::empty()).is_none());
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
