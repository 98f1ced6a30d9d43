//! Subtractive clustering (Chiu, "Fuzzy model identification based on cluster estimation", 1994): the centres of a fuzzy model's rules are
//! points of the data that have many others near them. The paper does not say how its rules were found; the author's related systems
//! do it so (recalled, not looked up).

/// How much farther than the radius a centre takes potential from its neighbourhood.
const SQUASH: f64 = 1.25;
/// A point with this share of the first centre's potential is a centre.
const ACCEPT: f64 = 0.5;
/// One with less than this share is none, and the search ends.
const REJECT: f64 = 0.15;
/// Points that the centres are sought among; of more, every so many-th is taken. The work grows with the square.
const MAX_POINTS: usize = 1_500;

/// The centres, within `radius` of which a point counts as near, of points that are normalised to about 0 to 1 in each dimension, the one with the highest potential first; at most
/// `most`, and at least one where there is a point.
pub(super) fn centres(points: &[Vec<f64>], radius: f64, most: usize) -> Vec<Vec<f64>> {
    let stride = points.len().div_ceil(MAX_POINTS).max(1);
    let points: Vec<&Vec<f64>> = points.iter().step_by(stride).collect();
    let near = 4.0 / (radius * radius);
    let taken = 4.0 / (radius * radius * SQUASH * SQUASH);
    let potential_of = |one: &&Vec<f64>| -> f64 {
        let others = points.iter();
        others.map(|two| (-near * distance_squared(one, two)).exp()).sum()
    };
    let mut potentials: Vec<f64> = points.iter().map(potential_of).collect();
    let mut centres: Vec<Vec<f64>> = Vec::new();
    let mut first = None;
    while centres.len() < most {
        let highest = (0..points.len()).max_by(|one, two| potentials[*one].total_cmp(&potentials[*two]));
        let Some(at) = highest else { break };
        let share = potentials[at] / *first.get_or_insert(potentials[at]);
        if !centres.is_empty() && share < ACCEPT {
            if share < REJECT {
                break;
            }
            // Between the two a centre must be far from the others for what potential it has.
            let nearest = centres.iter().map(|one| distance_squared(one, points[at]));
            let nearest = nearest.fold(f64::INFINITY, f64::min).sqrt();
            if nearest / radius + share < 1.0 {
                potentials[at] = 0.0;
                continue;
            }
        }
        let centre = points[at].clone();
        let height = potentials[at];
        for (potential, point) in potentials.iter_mut().zip(&points) {
            *potential -= height * (-taken * distance_squared(&centre, point)).exp();
        }
        centres.push(centre);
    }
    centres
}

fn distance_squared(one: &[f64], two: &[f64]) -> f64 {
    one.iter().zip(two).map(|(one, two)| (one - two).powi(2)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_clouds_have_a_centre_each_and_the_denser_comes_first() {
        let mut points = Vec::new();
        for step in 0..30 {
            let near = f64::from(step % 5) * 0.01;
            points.push(vec![0.1 + near, 0.1]);
            if step % 2 == 0 {
                points.push(vec![0.9, 0.9 - near]);
            }
        }
        let found = centres(&points, 0.5, 8);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0][0] < 0.2 && found[1][0] > 0.8);
    }

    #[test]
    fn there_are_no_more_than_asked_for_and_one_of_a_single_point() {
        let points: Vec<Vec<f64>> = (0..40)
            .map(|at| vec![f64::from(at % 8) / 7.0, f64::from(at / 8) / 4.0])
            .collect();
        assert_eq!(centres(&points, 0.5, 3).len(), 3);
        assert_eq!(centres(&points[..1], 0.5, 3), [points[0].clone()]);
        assert!(centres(&[], 0.5, 3).is_empty());
    }
}
