//! A decision that is overruled because the balancer cannot be relied on.

use super::{Health, PowerState, Resize};
use crate::decision::Reason;

/// The rule of a decision that is held because the balancer cannot be relied on.
pub const BALANCER_LOST: &str = "balancer-lost";
/// The rule of one that is held because nobody would switch servers on again if the controller were killed.
pub const GUARD_LOST: &str = "guard-lost";
/// The rule of one that starts every server, because the run before could not.
pub const BROUGHT_BACK: &str = "brought-back";

/// While the balancer cannot be relied on, or no guard stands, nobody who is up goes; `rule` says which.
pub fn hold(
    rule: &'static str,
    decided: Resize,
    why: &str,
    states: &[PowerState],
    health: &[Health],
) -> Resize {
    let up = states
        .iter()
        .zip(health)
        .filter(|(state, health)| match state {
            PowerState::Booting | PowerState::Warming | PowerState::Serving => true,
            PowerState::Draining => health.answering,
            PowerState::Off
            | PowerState::Stopping
            | PowerState::Failed(_)
            | PowerState::Leaving
            | PowerState::Maintenance => false,
        })
        .count();
    if decided.servers >= up {
        return decided;
    }
    Resize {
        servers: up,
        reason: Reason::new(
            rule,
            format!(
                "{why}: all {up} servers that are up stay, though {} would do",
                decided.servers
            ),
            &[("servers", up as f64), ("decided", decided.servers as f64)],
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_goes_while_the_balancer_cannot_be_told() {
        let decided = |servers| Resize {
            servers,
            reason: Reason::new("shrink", String::new(), &[]),
        };
        let states = [PowerState::Serving, PowerState::Draining, PowerState::Off];
        let up = Health {
            answering: true,
            ..Health::default()
        };
        let health = [up, up, Health::default()];
        let held = hold(BALANCER_LOST, decided(1), "no answer", &states, &health);
        assert_eq!((held.servers, held.reason.rule.as_ref()), (2, BALANCER_LOST));
        assert!(held.reason.text.starts_with("no answer: all 2 servers"));
        // More are still started.
        let more = hold(BALANCER_LOST, decided(3), "no answer", &states, &health);
        assert_eq!((more.servers, more.reason.rule.as_ref()), (3, "shrink"));
        // One that drains and does not answer cannot come back.
        let health = [up, Health::default(), Health::default()];
        assert_eq!(
            hold(BALANCER_LOST, decided(1), "no answer", &states, &health).servers,
            1
        );
    }
}
