//! Whole numbers that may be written with a point.

use serde::de::{Deserialize, Deserializer, Error};

/// Milliseconds: `250` or `250.0`.
///
/// # Errors
/// What is no number; a negative one, and a part of a millisecond.
pub(super) fn milliseconds<'de, D: Deserializer<'de>>(input: D) -> Result<Option<u64>, D::Error> {
    let given = Option::<f64>::deserialize(input)?;
    given
        .map(|ms: f64| match ms >= 0.0 && ms.fract() == 0.0 {
            true => Ok(ms as u64),
            false => Err(D::Error::custom(format_args!(
                "is {ms}: allowed are whole milliseconds, such as 250"
            ))),
        })
        .transpose()
}

#[cfg(test)]
mod tests {
    use crate::config::GatewayConfig;

    #[test]
    fn a_target_may_be_written_with_a_point_and_is_whole_milliseconds() {
        let read = |target: &str| {
            let config: Result<GatewayConfig, _> = toml::from_str(&format!("target_ms = {target}"));
            config
                .map(|config| config.target_ms)
                .map_err(|error| error.to_string())
        };
        assert_eq!(read("250"), Ok(Some(250)));
        assert_eq!(read("250.0"), Ok(Some(250)));
        for wrong in ["0.5", "-1", "inf", "nan"] {
            let error = read(wrong).unwrap_err();
            assert!(error.contains("allowed are whole milliseconds"), "{error}");
        }
        assert!(read("\"soon\"").is_err());
    }
}
