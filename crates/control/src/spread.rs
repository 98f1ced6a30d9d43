//! One decision for a cluster, spread over its nodes: how many cores each is given, and which share of the cap.
//!
//! Cores go to the nodes evenly by what each can have, in whole steps, by Webster's divisor method (A. Sainte-Laguë,
//! 1910; M. L. Balinski and H. P. Young, *Fair Representation*, 1982): one step after another goes to the node that is
//! furthest behind its share. Of the methods that are fair by capacity only those with a divisor never move more than
//! they must: one step more changes one node by one step, and when a node goes, no other loses. That needs no memory of
//! what was given before, so the same call always gives the same answer.

use crate::plant::{CoreRange, PlantError, PowerEnvelope, tidy};
use headroom_units::{Cores, Watts};
use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// The most steps that are spread at once: 100,000 cores in steps of a tenth.
pub const MAX_STEPS: u64 = 1_000_000;

/// What one node can be given.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NodeCapacity {
    /// The fewest cores.
    pub fewest: Cores,
    /// The most cores.
    pub most: Cores,
    /// The power that cores can need there, and the lowest cap that it takes.
    pub power: PowerEnvelope,
}

/// What one node is given.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NodeShare {
    /// Cores.
    pub cores: Cores,
    /// The power cap.
    pub cap: Watts,
}

/// Spreads over a fixed size of step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    step: Cores,
}

/// A node on its way to its share: `given` steps above its fewest, of `room`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Claim {
    given: u64,
    room: u64,
    node: usize,
}

impl Ord for Claim {
    /// The greatest is who comes next: the smallest (2 given + 1) / room, then the first in the list.
    fn cmp(&self, other: &Self) -> Ordering {
        let cross = |claim: &Self, of: &Self| (2 * u128::from(claim.given) + 1) * u128::from(of.room);
        cross(other, self)
            .cmp(&cross(self, other))
            .then(other.node.cmp(&self.node))
    }
}

impl PartialOrd for Claim {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Spread {
    /// In steps of so many cores.
    ///
    /// # Errors
    /// [`PlantError::Range`]: a step that is none.
    pub fn new(step: Cores) -> Result<Self, PlantError> {
        CoreRange::new(step, step, step).map(|_| Self { step })
    }

    /// The smallest change.
    pub const fn step(&self) -> Cores {
        self.step
    }

    /// A node's range in whole steps: its fewest rounded up (at least one), its most rounded down (at least its fewest).
    fn steps(&self, node: &NodeCapacity) -> (u64, u64) {
        // A hair beside a multiple belongs to it. `as` saturates and makes NaN 0.
        let fewest = ((node.fewest / self.step - 1e-9).ceil() as u64).clamp(1, MAX_STEPS);
        let most = ((node.most / self.step + 1e-9).floor() as u64).min(MAX_STEPS);
        (fewest, most.max(fewest))
    }

    fn cores_of(&self, steps: u64) -> Cores {
        tidy(self.step * steps as f64)
    }

    /// The fewest and the most cores that these nodes can have together, in whole steps.
    pub fn range(&self, nodes: &[NodeCapacity]) -> (Cores, Cores) {
        let sums = nodes.iter().map(|node| self.steps(node));
        let (fewest, most) = sums.fold((0, 0), |sum, steps| (sum.0 + steps.0, sum.1 + steps.1));
        (self.cores_of(fewest), self.cores_of(most))
    }

    /// Spreads cores over nodes: evenly by what each can have above its fewest, together the multiple of the step nearest
    /// to `cores` as far as [`Spread::range`] allows. The order of the nodes settles ties.
    pub fn cores(&self, cores: Cores, nodes: &[NodeCapacity]) -> Vec<Cores> {
        let ranges: Vec<(u64, u64)> = nodes.iter().map(|node| self.steps(node)).collect();
        let mut steps: Vec<u64> = ranges.iter().map(|(fewest, _)| *fewest).collect();
        let wanted = if cores.is_finite() {
            ((cores / self.step).round() as u64).min(MAX_STEPS)
        } else {
            MAX_STEPS
        };
        let mut left = wanted.saturating_sub(steps.iter().sum());
        let room = |node: usize| ranges[node].1 - ranges[node].0;
        let mut claims: BinaryHeap<Claim> = (0..nodes.len())
            .filter(|node| room(*node) > 0)
            .map(|node| Claim {
                given: 0,
                room: room(node),
                node,
            })
            .collect();
        while left > 0
            && let Some(mut next) = claims.pop()
        {
            steps[next.node] += 1;
            next.given += 1;
            left -= 1;
            if next.given < next.room {
                claims.push(next);
            }
        }
        steps.into_iter().map(|steps| self.cores_of(steps)).collect()
    }

    /// Spreads an allocation: the cores as [`Spread::cores`], and the cap in proportion to what the cores of each node can
    /// need (`limit(c)`), at least each node's lowest cap. What is left when each has its limit goes on top of that, up to
    /// the limit of all its cores: it limits nothing, but a law that leaves the cap where everything is on has allocated
    /// that much. Together the caps are the cap asked for as far as these bounds allow.
    pub fn shares(&self, cores: Cores, cap: Watts, nodes: &[NodeCapacity]) -> Vec<NodeShare> {
        let cores = self.cores(cores, nodes);
        let bounds: Vec<(Watts, Watts)> = nodes
            .iter()
            .zip(&cores)
            .map(|(node, cores)| {
                let limit = node.power.limit(*cores);
                (node.power.lowest_cap.min(limit), limit)
            })
            .collect();
        let needed: Watts = bounds.iter().map(|(_, limit)| *limit).sum();
        let caps = if cap > needed {
            let room = |(node, (_, limit)): (&NodeCapacity, &(Watts, Watts))| {
                (node.power.limit(node.most) - *limit).max(Watts::ZERO)
            };
            let all: Watts = nodes.iter().zip(&bounds).map(room).sum();
            let share = if all > Watts::ZERO {
                ((cap - needed) / all).min(1.0)
            } else {
                0.0
            };
            let with_room = |both: (&NodeCapacity, &(Watts, Watts))| both.1.1 + room(both) * share;
            nodes.iter().zip(&bounds).map(with_room).collect()
        } else {
            split_cap(cap, &bounds)
        };
        cores
            .into_iter()
            .zip(caps)
            .map(|(cores, cap)| NodeShare { cores, cap })
            .collect()
    }
}

/// One factor for all limits, save where a node's lowest cap is more: those get it, and the others share what is left.
fn split_cap(cap: Watts, bounds: &[(Watts, Watts)]) -> Vec<Watts> {
    let mut held = vec![false; bounds.len()];
    // Each round holds at least one more node at its lowest, or is the last.
    loop {
        let of = |hold: bool, pick: fn(&(Watts, Watts)) -> Watts| -> Watts {
            let chosen = bounds.iter().zip(&held).filter(|(_, held)| **held == hold);
            chosen.map(|(bound, _)| pick(bound)).sum()
        };
        let free = of(false, |(_, limit)| *limit);
        let left = cap - of(true, |(lowest, _)| *lowest);
        let factor = if free > Watts::ZERO {
            (left / free).clamp(0.0, 1.0)
        } else {
            1.0
        };
        let mut more = false;
        for ((lowest, limit), held) in bounds.iter().zip(&mut held) {
            if !*held && *limit * factor < *lowest {
                *held = true;
                more = true;
            }
        }
        if !more {
            let cap_of = |((lowest, limit), held): (&(Watts, Watts), &bool)| {
                if *held { *lowest } else { *limit * factor }
            };
            return bounds.iter().zip(&held).map(cap_of).collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn node(fewest: f64, most: f64) -> NodeCapacity {
        NodeCapacity {
            fewest: Cores::new(fewest),
            most: Cores::new(most),
            power: PowerEnvelope {
                base: Watts::new(6.0),
                per_core: Watts::new(3.0),
                lowest_cap: Watts::new(7.0),
            },
        }
    }

    fn tenths() -> Spread {
        Spread::new(Cores::new(0.1)).unwrap()
    }

    fn numbers(cores: &[Cores]) -> Vec<f64> {
        cores.iter().map(|cores| cores.get()).collect()
    }

    #[test]
    fn cores_go_evenly_by_capacity() {
        let nodes = [node(0.1, 2.1), node(0.1, 2.1), node(0.1, 4.1)];
        assert_eq!(numbers(&tenths().cores(Cores::new(4.3), &nodes)), [1.1, 1.1, 2.1]);
        assert_eq!(numbers(&tenths().cores(Cores::new(0.0), &nodes)), [0.1, 0.1, 0.1]);
        assert_eq!(
            numbers(&tenths().cores(Cores::new(f64::INFINITY), &nodes)),
            [2.1, 2.1, 4.1]
        );
        assert_eq!(tenths().cores(Cores::new(1.0), &[]), []);
    }

    #[test]
    fn one_step_more_goes_to_the_first_of_equals() {
        let nodes = [node(0.1, 2.0), node(0.1, 2.0)];
        assert_eq!(numbers(&tenths().cores(Cores::new(1.0), &nodes)), [0.5, 0.5]);
        assert_eq!(numbers(&tenths().cores(Cores::new(1.1), &nodes)), [0.6, 0.5]);
    }

    #[test]
    fn a_range_beside_the_steps_is_kept_inside() {
        assert_eq!(
            tenths().range(&[node(0.05, 1.99)]),
            (Cores::new(0.1), Cores::new(1.9))
        );
        assert!(Spread::new(Cores::ZERO).is_err());
    }

    #[test]
    fn a_cap_goes_by_what_the_cores_can_need() {
        let nodes = [node(1.0, 4.0), node(1.0, 4.0)];
        let whole = Spread::new(Cores::new(1.0)).unwrap();
        let shares = whole.shares(Cores::new(3.0), Watts::new(21.0), &nodes);
        assert_eq!(
            (shares[0].cap, shares[1].cap),
            (Watts::new(12.0), Watts::new(9.0)),
            "what they can need"
        );
        let shares = whole.shares(Cores::new(3.0), Watts::new(28.5), &nodes);
        assert_eq!(
            (shares[0].cap, shares[1].cap),
            (Watts::new(15.0), Watts::new(13.5)),
            "half of what their other cores could need, on top"
        );
        let shares = whole.shares(Cores::new(3.0), Watts::new(100.0), &nodes);
        assert_eq!(
            (shares[0].cap, shares[1].cap),
            (Watts::new(18.0), Watts::new(18.0)),
            "no more than all their cores could need"
        );
        let shares = whole.shares(Cores::new(3.0), Watts::new(10.0), &nodes);
        assert_eq!(
            (shares[0].cap, shares[1].cap),
            (Watts::new(7.0), Watts::new(7.0)),
            "no less than they take"
        );
        let shares = whole.shares(Cores::new(3.0), Watts::new(14.7), &nodes);
        assert!(
            (shares[0].cap.get() - 7.7).abs() < 1e-9 && shares[1].cap == Watts::new(7.0),
            "{shares:?}"
        );
    }

    fn nodes() -> impl Strategy<Value = Vec<NodeCapacity>> {
        let one = (0.01..2.0f64, 0.0..16.0f64, 0.0..60.0f64, 0.1..5.0f64, 0.0..1.0f64);
        let one = one.prop_map(|(fewest, more, base, per_core, low)| {
            let power = PowerEnvelope {
                base: Watts::new(base),
                per_core: Watts::new(per_core),
                lowest_cap: Watts::new(low * (base + per_core * fewest)),
            };
            NodeCapacity {
                fewest: Cores::new(fewest),
                most: Cores::new(fewest + more),
                power,
            }
        });
        proptest::collection::vec(one, 1..9)
    }

    fn in_steps(cores: &[Cores]) -> Vec<i64> {
        cores
            .iter()
            .map(|cores| (cores.get() * 10.0).round() as i64)
            .collect()
    }

    proptest! {
        #[test]
        fn each_node_is_in_its_range_and_the_sum_is_what_was_asked(nodes in nodes(), asked in 0.0..200.0f64) {
            let spread = tenths();
            let given = spread.cores(Cores::new(asked), &nodes);
            let (fewest, most) = spread.range(&nodes);
            for (node, cores) in nodes.iter().zip(&given) {
                let (low, high) = spread.range(std::slice::from_ref(node));
                prop_assert!(*cores >= low && *cores <= high, "{cores} of {low} to {high}");
                prop_assert!(*cores >= node.fewest.max(Cores::new(0.1)) - Cores::new(1e-6));
            }
            let sum: Cores = given.iter().copied().sum();
            let wanted = ((asked * 10.0).round() / 10.0).clamp(fewest.get(), most.get());
            prop_assert!((sum.get() - wanted).abs() < 1e-6, "{sum} for {wanted}");
        }

        #[test]
        fn the_same_question_has_the_same_answer(nodes in nodes(), asked in 0.0..200.0f64) {
            prop_assert_eq!(tenths().cores(Cores::new(asked), &nodes), tenths().cores(Cores::new(asked), &nodes));
        }

        #[test]
        fn one_step_more_changes_one_node_by_one_step(nodes in nodes(), asked in 0.0..200.0f64) {
            let less = in_steps(&tenths().cores(Cores::new(asked), &nodes));
            let more = in_steps(&tenths().cores(Cores::new(asked + 0.1), &nodes));
            let moved: Vec<i64> = less.iter().zip(&more).map(|(less, more)| more - less).collect();
            prop_assert!(moved.iter().all(|moved| *moved >= 0) && moved.iter().sum::<i64>() <= 1, "{moved:?}");
        }

        #[test]
        fn when_a_node_goes_no_other_loses_and_when_it_comes_none_gains(
            nodes in nodes(),
            asked in 0.0..200.0f64,
            which in 0usize..8,
        ) {
            let gone = which % nodes.len();
            let mut rest = nodes.clone();
            rest.remove(gone);
            let mut with = in_steps(&tenths().cores(Cores::new(asked), &nodes));
            with.remove(gone);
            let without = in_steps(&tenths().cores(Cores::new(asked), &rest));
            prop_assert!(with.iter().zip(&without).all(|(with, without)| without >= with), "{with:?} {without:?}");
        }

        #[test]
        fn caps_are_in_their_bounds_and_together_what_was_asked(
            nodes in nodes(),
            asked in 0.0..200.0f64,
            cap in 0.0..900.0f64,
        ) {
            let shares = tenths().shares(Cores::new(asked), Watts::new(cap), &nodes);
            let (mut lowest, mut highest, mut sum) = (0.0, 0.0, 0.0);
            for (node, share) in nodes.iter().zip(&shares) {
                let low = node.power.lowest_cap.min(node.power.limit(share.cores)).get();
                let high = node.power.limit(node.most.max(share.cores)).get();
                prop_assert!(share.cap.get() >= low - 1e-9 && share.cap.get() <= high + 1e-9);
                lowest += low;
                highest += high;
                sum += share.cap.get();
            }
            prop_assert!((sum - cap.clamp(lowest, highest)).abs() < 1e-6, "{sum} for {cap} in {lowest} to {highest}");
        }
    }
}
