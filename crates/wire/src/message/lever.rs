//! What can be set of a gateway beside its backends, by name.

use super::{Range, range};
use crate::check::{Invalid, at_most};
use crate::{Refusal, proto};
use std::time::Duration;

pub use crate::proto::LeverSetting;

/// The most levers of one gateway.
pub const MAX_LEVERS: usize = 64;

/// Something that can be set of a gateway.
#[derive(Clone, Debug, PartialEq)]
pub struct GatewayLever {
    /// Its name, unlike those of the gateway's other levers.
    pub name: String,
    /// The unit of its values.
    pub unit: String,
    /// The values that it takes.
    pub range: Range,
    /// The value that it has while nobody sets it.
    pub configured: f64,
}

/// The lease that settings are asked for with, in milliseconds.
pub(super) const LEASE_MS: Range = Range::new(100.0, 86_400_000.0);

/// For how long settings are asked for: `None` where there is none, so that all levers are as configured.
///
/// # Errors
/// Settings with a lease outside 100 ms to a day.
pub fn lease_of(request: &proto::SetLeversRequest) -> Result<Option<Duration>, Refusal> {
    if request.settings.is_empty() {
        return Ok(None);
    }
    Refusal::check_range("lease_ms", request.lease_ms as f64, LEASE_MS, "ms")?;
    Ok(Some(Duration::from_millis(request.lease_ms)))
}

/// Checks that every setting is one that these levers take, before the first of them is carried out.
///
/// ```
/// use headroom_wire::message::{GatewayLever, LeverSetting, Range, check_settings};
///
/// let levers = [GatewayLever {
///     name: "batch interval".into(),
///     unit: "ms".into(),
///     range: Range::new(0.0, 200.0),
///     configured: 0.0,
/// }];
/// let setting = |lever: &str, value| LeverSetting { lever: lever.into(), value };
/// assert!(check_settings(&levers, &[setting("batch interval", 50.0)]).is_ok());
/// let refused = check_settings(&levers, &[setting("frequency", 2e9)]).unwrap_err();
/// assert!(refused.to_string().contains("frequency"));
/// ```
///
/// # Errors
/// More settings than [`MAX_LEVERS`], a lever that there is not, a lever named twice, a value outside its lever's range.
pub fn check_settings(levers: &[GatewayLever], settings: &[LeverSetting]) -> Result<(), Refusal> {
    at_most("settings", settings.iter().collect(), MAX_LEVERS)?;
    for (index, setting) in settings.iter().enumerate() {
        let name = setting.lever.as_str();
        let Some(lever) = levers.iter().find(|lever| lever.name == name) else {
            let names: Vec<&str> = levers.iter().map(|lever| lever.name.as_str()).collect();
            let there = match names.is_empty() {
                true => "a lever of this gateway, which has none".to_owned(),
                false => format!("a lever of this gateway: {}", names.join(", ")),
            };
            return Err(Invalid::new("settings.lever", format!("{name:?}"), there).into());
        };
        if settings[..index].iter().any(|earlier| earlier.lever == name) {
            let expected = "each lever once";
            return Err(Invalid::new("settings.lever", format!("{name:?} twice"), expected).into());
        }
        Refusal::check_range(name, setting.value, lever.range, &lever.unit)?;
    }
    Ok(())
}

impl From<GatewayLever> for proto::GatewayLever {
    fn from(lever: GatewayLever) -> Self {
        Self {
            name: lever.name,
            unit: lever.unit,
            range: Some(lever.range),
            configured: lever.configured,
        }
    }
}

impl TryFrom<proto::GatewayLever> for GatewayLever {
    type Error = Invalid;
    fn try_from(message: proto::GatewayLever) -> Result<Self, Invalid> {
        Ok(Self {
            name: message.name,
            unit: message.unit,
            range: range("levers.range", message.range)?,
            configured: message.configured,
        })
    }
}

impl TryFrom<proto::LeversSet> for Vec<LeverSetting> {
    type Error = Invalid;
    fn try_from(message: proto::LeversSet) -> Result<Self, Invalid> {
        at_most("settings", message.settings, MAX_LEVERS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_have_a_lease_and_none_needs_none() {
        let request = |lease_ms, settings: usize| proto::SetLeversRequest {
            settings: vec![LeverSetting::default(); settings],
            lease_ms,
            routes: Vec::new(),
        };
        assert_eq!(lease_of(&request(0, 0)), Ok(None));
        assert_eq!(lease_of(&request(2_000, 1)), Ok(Some(Duration::from_secs(2))));
        for lease_ms in [0, 99, 86_400_001] {
            let refused = lease_of(&request(lease_ms, 1)).unwrap_err().to_string();
            assert!(
                refused.contains("lease_ms") && refused.contains("100 to 86400000 ms"),
                "{refused}"
            );
        }
    }

    #[test]
    fn a_setting_is_taken_by_the_lever_of_its_name_within_its_range_once() {
        let lever = |name: &str, unit: &str, maximum| GatewayLever {
            name: name.into(),
            unit: unit.into(),
            range: Range::new(1.0, maximum),
            configured: 1.0,
        };
        let levers = [lever("interval", "ms", 200.0), lever("size", "requests", 64.0)];
        let check = |settings: &[(&str, f64)]| {
            let settings: Vec<LeverSetting> = settings
                .iter()
                .map(|(lever, value)| LeverSetting {
                    lever: (*lever).into(),
                    value: *value,
                })
                .collect();
            check_settings(&levers, &settings).map_err(|refusal| refusal.to_string())
        };
        assert_eq!(check(&[]), Ok(()));
        assert_eq!(check(&[("size", 64.0), ("interval", 1.0)]), Ok(()));
        for (settings, words) in [
            (
                vec![("size", 8.0), ("cap", 9.0)],
                "settings.lever is \"cap\": expected a lever of this gateway: interval, size",
            ),
            (
                vec![("size", 8.0), ("size", 8.0)],
                "settings.lever is \"size\" twice: expected each lever once",
            ),
            (vec![("interval", 0.5)], "interval is 0.5 ms, outside 1 to 200 ms"),
            (
                vec![("interval", f64::NAN)],
                "interval is NaN ms, outside 1 to 200 ms",
            ),
        ] {
            assert_eq!(check(&settings), Err(words.to_owned()));
        }
    }
}
