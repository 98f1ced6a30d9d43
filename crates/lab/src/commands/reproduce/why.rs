//! What can be said of a difference from the paper: its size and cause, or that it cannot be told.

use headroom_record::statistics::Estimate;

/// Of one value whose spread is not known nothing is told apart.
const ONE_RUN: &str = "cannot tell: one run shows no spread";

/// What an estimate says of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Below,
    Covers,
    Above,
}

/// Where the whole interval lies; `None` where none is known.
fn side(ours: Estimate, number: f64) -> Option<Side> {
    let half = ours.half_width?;
    Some(match ours.mean - number {
        less if less < -half => Side::Below,
        more if more > half => Side::Above,
        _ => Side::Covers,
    })
}

/// Of a gain: by how much it falls short of the paper's and why. An interval that covers the paper's number and that of no gain agrees
/// with nothing.
pub fn of_gain(ours: Estimate, (paper, none): (f64, f64), cause: &str) -> String {
    match (side(ours, paper), side(ours, none)) {
        (None, _) | (_, None) => ONE_RUN.to_owned(),
        (Some(Side::Below), _) => format!("short of the paper by {:.1}: {cause}", paper - ours.mean),
        (Some(Side::Covers), Some(Side::Covers)) => {
            "cannot tell: the interval covers both the paper's number and no gain at all".to_owned()
        }
        _ => String::new(),
    }
}

/// Of a number that is to be near the paper's: within so many percent of it.
pub fn of_near(ours: Estimate, paper: f64, percent: f64, cause: &str) -> String {
    let of_paper = |value: f64| value / paper * 100.0;
    let (over, Some(half)) = (of_paper(ours.mean - paper), ours.half_width.map(of_paper)) else {
        return ONE_RUN.to_owned();
    };
    match (over.abs() - half > percent, over.abs() + half > percent) {
        (true, _) => format!("{over:+.0} % of the paper's: {cause}"),
        (false, true) => format!(
            "cannot tell whether it is within {percent:.0} %: from {:+.0} to {:+.0} % of the paper's",
            over - half,
            over + half
        ),
        (false, false) => String::new(),
    }
}

/// Of a loss that is to stay below a bound.
pub fn of_loss(ours: Estimate, most: f64, cause: &str) -> String {
    match side(ours, most) {
        None => ONE_RUN.to_owned(),
        Some(Side::Above) => format!("{:.1} over what it may lose{cause}", ours.mean - most),
        Some(Side::Covers) => format!("cannot tell: the interval covers {most}, the most that it may lose"),
        Some(Side::Below) => String::new(),
    }
}

/// What it bounds that a batch spares fetches of what is being fetched already: all of these spared take `all` percent off, and the paper
/// has so much.
pub fn of_spared(all: Option<Estimate>, paper: f64) -> String {
    let known = all.and_then(|all| Some((all, all.half_width?, side(all, paper)?)));
    let Some((all, half, side)) = known else {
        return "why is not known: what collapsing alone brings was not measured".to_owned();
    };
    let bounds = match side {
        Side::Below => "which is less than the paper's: what batches spare here cannot bring that",
        Side::Covers => "and whether that bounds it cannot be told: the interval covers the paper's",
        Side::Above => "which is more than the paper's and bounds nothing: why it is missed is not known",
    };
    format!(
        "a batch spares fetches of what is being fetched already; under the dynamic load all of them together (collapsing alone) bring \
         {:.1} ± {half:.1} %, {bounds}",
        all.mean
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn estimate(mean: f64, half: f64) -> Estimate {
        Estimate {
            mean,
            half_width: Some(half),
            count: 3,
        }
    }

    const ONE: Estimate = Estimate {
        mean: 5.0,
        half_width: None,
        count: 1,
    };

    #[test]
    fn a_gain_falls_short_agrees_or_cannot_be_told() {
        let said = |mean: f64, half: f64| of_gain(estimate(mean, half), (18.0, 0.0), "a cause");
        assert_eq!(said(5.0, 2.0), "short of the paper by 13.0: a cause");
        assert_eq!(said(17.0, 2.0), "");
        assert_eq!(said(30.0, 2.0), "");
        assert!(said(5.0, 14.0).starts_with("cannot tell: the interval covers both"));
        // A ratio without a gain is 1.
        assert!(of_gain(estimate(2.0, 1.5), (3.0, 1.0), "").starts_with("cannot tell"));
        assert_eq!(of_gain(estimate(2.0, 1.5), (3.0, 0.0), ""), "");
        assert_eq!(of_gain(ONE, (18.0, 0.0), "a cause"), ONE_RUN);
    }

    #[test]
    fn a_number_is_near_far_or_cannot_be_told() {
        let said = |mean: f64, half: f64| of_near(estimate(mean, half), 1000.0, 10.0, "a cause");
        assert_eq!(said(1200.0, 50.0), "+20 % of the paper's: a cause");
        assert_eq!(said(800.0, 50.0), "-20 % of the paper's: a cause");
        assert_eq!(said(1050.0, 40.0), "");
        let wide = said(1020.0, 300.0);
        assert_eq!(
            wide,
            "cannot tell whether it is within 10 %: from -28 to +32 % of the paper's"
        );
        assert_eq!(of_near(ONE, 5.0, 10.0, ""), ONE_RUN);
    }

    #[test]
    fn a_loss_is_allowed_too_large_or_cannot_be_told() {
        assert_eq!(of_loss(estimate(1.0, 0.5), 2.0, ""), "");
        assert_eq!(
            of_loss(estimate(4.0, 0.5), 2.0, ": why"),
            "2.0 over what it may lose: why"
        );
        for mean in [1.0, 3.0] {
            assert!(of_loss(estimate(mean, 1.5), 2.0, "").starts_with("cannot tell"));
        }
        assert_eq!(of_loss(ONE, 2.0, ""), ONE_RUN);
    }

    #[test]
    fn what_is_spared_bounds_only_what_lies_above_it() {
        let said = |mean: f64, half: f64| of_spared(Some(estimate(mean, half)), 18.0);
        assert!(said(9.0, 2.0).contains("9.0 ± 2.0 %, which is less than the paper's"));
        assert!(said(17.0, 2.0).contains("cannot be told"));
        assert!(said(30.0, 2.0).contains("bounds nothing"));
        assert!(of_spared(None, 18.0).contains("was not measured"));
    }
}
