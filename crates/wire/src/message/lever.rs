//! What can be set of a gateway beside its backends, by name.

use super::{Range, range};
use crate::check::{Invalid, at_most};
use crate::{Refusal, proto};

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
    fn a_setting_is_taken_by_the_lever_of_its_name_within_its_range_once() {
        let lever = |name: &str, unit: &str, maximum| GatewayLever {
            name: name.into(),
            unit: unit.into(),
            range: Range::new(1.0, maximum),
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
