//! A whole server on, off and between.

use crate::machine::{FigureError, check};
use headroom_units::{Joules, Seconds, Watts};
use serde::{Deserialize, Serialize};

/// What switching a server off and on takes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServerFigures {
    /// Switched off: its management controller and what its supply wastes.
    pub off: Watts,
    /// While it boots.
    pub booting: Watts,
    /// From the command until it serves.
    pub boot: Seconds,
    /// While it shuts down.
    pub shutting_down: Watts,
    /// From the command until it is off.
    pub shutdown: Seconds,
}

impl Default for ServerFigures {
    /// A server whose full power is about 100 W: it boots in a minute at nearly that, without doing any work.
    fn default() -> Self {
        Self {
            off: Watts::new(3.0),
            booting: Watts::new(90.0),
            boot: Seconds::new(60.0),
            shutting_down: Watts::new(60.0),
            shutdown: Seconds::new(10.0),
        }
    }
}

impl ServerFigures {
    /// Checks the figures.
    ///
    /// # Errors
    /// [`FigureError`] with the key of the first figure that cannot be.
    pub fn check(&self) -> Result<(), FigureError> {
        for (key, power) in [
            ("server.off", self.off),
            ("server.booting", self.booting),
            ("server.shutting_down", self.shutting_down),
        ] {
            check(
                key,
                power.get(),
                (0.0..=1e5).contains(&power.get()),
                "give 0 to 100000 watts",
            )?;
        }
        for (key, time) in [("server.boot", self.boot), ("server.shutdown", self.shutdown)] {
            check(
                key,
                time.get(),
                (0.0..=3600.0).contains(&time.get()),
                "give 0 to 3600 seconds",
            )?;
        }
        // A server that boots or shuts down draws what an off one does, and more.
        for (key, power, time) in [
            ("server.booting", self.booting, self.boot),
            ("server.shutting_down", self.shutting_down, self.shutdown),
        ] {
            check(
                key,
                power.get(),
                power >= self.off || time <= Seconds::ZERO,
                format!("give at least what it draws off, {:.1} watts", self.off.get()),
            )?;
        }
        Ok(())
    }

    /// The energy of a shutdown and the boot that follows it.
    pub fn cycle(&self) -> Joules {
        self.booting * self.boot + self.shutting_down * self.shutdown
    }

    /// How long a server must be away, from the command to shut down until it serves again, to draw less than one that
    /// idles at `idle`: `(E_cycle - P_off t_cycle) / (P_idle - P_off)`, and never less than the cycle itself. `None`
    /// where being off draws as much as idling: switching off never pays.
    pub fn break_even(&self, idle: Watts) -> Option<Seconds> {
        let saved_w = (idle - self.off).get();
        if saved_w <= 0.0 {
            return None;
        }
        let cycle = self.boot + self.shutdown;
        let extra_j = (self.cycle() - self.off * cycle).get();
        Some(Seconds::new(extra_j / saved_w).max(cycle))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switching_off_pays_after_what_a_boot_costs() {
        let server = ServerFigures::default();
        // 90 W for 60 s and 60 W for 10 s, beside 45 W idle: (6000 - 210) / 42 = 137.9 s.
        let time = server.break_even(Watts::new(45.0)).unwrap();
        assert!((time.get() - 137.857).abs() < 1e-3, "{time}");
        let away = time.get() - 70.0;
        let off_j = server.cycle().get() + 3.0 * away;
        assert!(
            (off_j - 45.0 * time.get()).abs() < 1e-6,
            "the same energy either way"
        );
        assert_eq!(server.break_even(Watts::new(3.0)), None);
        // One that draws more idle than booting: as soon as it can be back.
        assert_eq!(server.break_even(Watts::new(500.0)), Some(Seconds::new(70.0)));
    }

    #[test]
    fn figures_that_cannot_be_are_refused_by_key() {
        let bad = ServerFigures {
            boot: Seconds::new(-1.0),
            ..ServerFigures::default()
        };
        assert!(
            bad.check()
                .unwrap_err()
                .to_string()
                .starts_with("server.boot is -1")
        );
        let bad = ServerFigures {
            off: Watts::new(20.0),
            shutting_down: Watts::new(19.0),
            ..ServerFigures::default()
        };
        let why = bad.check().unwrap_err().to_string();
        assert!(why.starts_with("server.shutting_down is 19"), "{why}");
        let at_once = ServerFigures {
            shutdown: Seconds::ZERO,
            ..bad
        };
        assert!(at_once.check().is_ok(), "it never shuts down");
    }
}
