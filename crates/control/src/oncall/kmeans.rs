//! Groups of threads with similar mean-latency budgets: one-dimensional k-means on their logarithms.
//!
//! Source: REEF Section 3.5 and Algorithm 1, line 2 \[F\], which name K-means and no start, scale or tie rule. Ours \[D\]: the
//! logarithm, for 1 ms and 2 ms differ as much as 100 ms and 200 ms; a start at the quantiles of the distinct values, so that
//! the same budgets always give the same areas; a tie goes to the stricter area.

use headroom_units::Seconds;

/// Rounds of Lloyd's algorithm at most; in one dimension it ends long before.
const MAX_ROUNDS: usize = 1_000;

/// A request for areas that cannot be answered.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum AreasError {
    /// No area was asked for.
    #[error("the number of areas is 0: it must be 1 or more")]
    NoArea,
    /// A budget is not a positive number.
    #[error("the mean latency budget at index {index} is {value} s: it must be greater than 0 and finite")]
    Budget {
        /// Which of the budgets.
        index: usize,
        /// Its value, in seconds.
        value: f64,
    },
}

/// One group of threads.
#[derive(Clone, Debug, PartialEq)]
pub struct Area {
    /// The geometric mean of its budgets, in seconds.
    pub centre: Seconds,
    /// Which budgets are in it, by index, ascending.
    pub members: Vec<usize>,
}

/// At most `count` areas of these budgets, the strictest (shortest) first; each has a member. Fewer where there are fewer
/// distinct budgets, or where an area lost all its members to its neighbours.
///
/// # Errors
/// [`AreasError`] where no area was asked for, or a budget is not a positive number.
pub fn areas(budgets: &[Seconds], count: usize) -> Result<Vec<Area>, AreasError> {
    if count == 0 {
        return Err(AreasError::NoArea);
    }
    let bad = |budget: &Seconds| !(budget.get() > 0.0 && budget.is_finite());
    if let Some(index) = budgets.iter().position(bad) {
        return Err(AreasError::Budget {
            index,
            value: budgets[index].get(),
        });
    }
    let logs: Vec<f64> = budgets.iter().map(|budget| budget.get().ln()).collect();
    let mut distinct = logs.clone();
    distinct.sort_by(f64::total_cmp);
    distinct.dedup();
    let mut centres = start(&distinct, count);
    let mut assigned = assign(&logs, &centres);
    for _ in 0..MAX_ROUNDS {
        centres = means(&logs, &assigned, centres.len());
        let next = assign(&logs, &centres);
        if next == assigned {
            break;
        }
        assigned = next;
    }
    let members = |area: usize| (0..logs.len()).filter(|index| assigned[*index] == area).collect();
    let areas = centres.iter().enumerate().map(|(area, centre)| Area {
        centre: Seconds::new(centre.exp()),
        members: members(area),
    });
    Ok(areas.filter(|area| !area.members.is_empty()).collect())
}

/// The middle of each of `count` equal parts of the sorted distinct values; all of them where there are no more.
fn start(distinct: &[f64], count: usize) -> Vec<f64> {
    let count = count.min(distinct.len());
    (0..count)
        .map(|part| distinct[(2 * part + 1) * distinct.len() / (2 * count)])
        .collect()
}

/// The index of the nearest centre of each value; the first, so the stricter, of two at the same distance.
fn assign(logs: &[f64], centres: &[f64]) -> Vec<usize> {
    let nearest = |value: &f64| {
        let distance = |area: &usize| (centres[*area] - value).abs();
        (0..centres.len())
            .min_by(|one, other| distance(one).total_cmp(&distance(other)))
            .unwrap_or_default()
    };
    logs.iter().map(nearest).collect()
}

/// The mean of each area's values, without the areas that have none.
fn means(logs: &[f64], assigned: &[usize], count: usize) -> Vec<f64> {
    let mut sums = vec![(0.0, 0usize); count];
    for (value, area) in logs.iter().zip(assigned) {
        sums[*area].0 += value;
        sums[*area].1 += 1;
    }
    let filled = sums.into_iter().filter(|(_, members)| *members > 0);
    filled.map(|(sum, members)| sum / members as f64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(millis: &[f64], count: usize) -> Vec<Vec<usize>> {
        let budgets: Vec<_> = millis.iter().copied().map(Seconds::from_millis).collect();
        areas(&budgets, count)
            .unwrap()
            .into_iter()
            .map(|area| area.members)
            .collect()
    }

    #[test]
    fn budgets_of_one_magnitude_are_one_area_and_the_strictest_is_first() {
        let found = of(&[100.0, 1.0, 10.0, 1.2, 110.0, 9.0], 3);
        assert_eq!(found, [vec![1, 3], vec![2, 5], vec![0, 4]]);
    }

    #[test]
    fn fewer_distinct_budgets_than_areas_are_fewer_areas() {
        assert_eq!(of(&[5.0, 5.0, 5.0], 4), [vec![0, 1, 2]]);
        assert_eq!(of(&[5.0, 7.0], 4), [vec![0], vec![1]]);
        assert!(of(&[], 4).is_empty());
    }

    #[test]
    fn what_is_no_budget_is_refused() {
        assert_eq!(areas(&[], 0), Err(AreasError::NoArea));
        for value in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let error = areas(&[Seconds::new(1.0), Seconds::new(value)], 2).unwrap_err();
            assert!(matches!(error, AreasError::Budget { index: 1, .. }), "{error}");
        }
    }

    proptest! {
        /// Every budget is in exactly one area, the one with the nearest centre, and areas are in order.
        #[test]
        fn each_is_assigned_to_the_nearest_centre(
            millis in proptest::collection::vec(0.01..10_000.0f64, 1..120), count in 1..8usize,
        ) {
            let budgets: Vec<_> = millis.iter().copied().map(Seconds::from_millis).collect();
            let found = areas(&budgets, count).unwrap();
            prop_assert!(found.len() <= count);
            prop_assert!(found.windows(2).all(|pair| pair[0].centre < pair[1].centre));
            let mut all: Vec<usize> = found.iter().flat_map(|area| area.members.clone()).collect();
            all.sort_unstable();
            prop_assert_eq!(all, (0..budgets.len()).collect::<Vec<_>>());
            for area in &found {
                for member in &area.members {
                    let distance = |centre: Seconds| (centre.get().ln() - budgets[*member].get().ln()).abs();
                    let nearest = found.iter().map(|area| distance(area.centre)).fold(f64::INFINITY, f64::min);
                    prop_assert!(distance(area.centre) <= nearest + 1e-9);
                }
            }
        }
    }
}
