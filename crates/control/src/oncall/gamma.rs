//! Digamma and trigamma, the first two derivatives of ln Γ, for positive arguments.
//!
//! Both climb to an argument of at least [`LARGE`] by the recurrence and use the asymptotic series there, whose first omitted
//! term is then below 1e-15.

/// From here on the series are exact to a double.
const LARGE: f64 = 12.0;

/// psi(x) of x > 0; not a number elsewhere.
pub(super) fn digamma(x: f64) -> f64 {
    if x <= 0.0 || x.is_nan() {
        return f64::NAN;
    }
    let (mut x, mut sum) = (x, 0.0);
    while x < LARGE {
        sum -= 1.0 / x;
        x += 1.0;
    }
    let y = 1.0 / (x * x);
    let series = y
        * (1.0 / 12.0
            - y * (1.0 / 120.0
                - y * (1.0 / 252.0 - y * (1.0 / 240.0 - y * (1.0 / 132.0 - y * 691.0 / 32_760.0)))));
    sum + x.ln() - 0.5 / x - series
}

/// psi'(x) of x > 0; not a number elsewhere.
pub(super) fn trigamma(x: f64) -> f64 {
    if x <= 0.0 || x.is_nan() {
        return f64::NAN;
    }
    let (mut x, mut sum) = (x, 0.0);
    while x < LARGE {
        sum += 1.0 / (x * x);
        x += 1.0;
    }
    let y = 1.0 / (x * x);
    let series = y
        * (1.0 / 6.0
            - y * (1.0 / 30.0
                - y * (1.0 / 42.0 - y * (1.0 / 30.0 - y * (5.0 / 66.0 - y * 691.0 / 2_730.0)))));
    sum + 1.0 / x + 0.5 * y + series / x
}

#[cfg(test)]
mod tests {
    use super::*;

    const EULER: f64 = 0.577_215_664_901_532_9;

    #[test]
    fn known_constants() {
        let basel = std::f64::consts::PI.powi(2) / 6.0;
        let digammas = [
            (1.0, -EULER),
            (2.0, 1.0 - EULER),
            (0.5, -EULER - 2.0 * 2.0f64.ln()),
            (10.0, 2.251_752_589_066_721),
        ];
        for (x, value) in digammas {
            assert!((digamma(x) - value).abs() < 1e-13, "psi({x}) = {}", digamma(x));
        }
        let trigammas = [
            (1.0, basel),
            (2.0, basel - 1.0),
            (0.5, 3.0 * basel),
            (10.0, 0.105_166_335_681_685_7),
        ];
        for (x, value) in trigammas {
            assert!((trigamma(x) - value).abs() < 1e-13, "psi'({x}) = {}", trigamma(x));
        }
        assert!(digamma(0.0).is_nan() && trigamma(-1.0).is_nan());
    }
}
