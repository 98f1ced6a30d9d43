//! Whether a scenario is a world: each objection names its key and the value.

use super::scenario::{GateFigures, Incident, QueryArrivals, ThreadsScenario};
use crate::error::{ScenarioError, within};

/// The most connections: each costs some hundred bytes, and a figure in every observation.
const MAX_CONNECTIONS: u32 = 100_000;
/// The most disk accesses of a query.
const MAX_ACCESSES: u32 = 1_000;
/// The most incidents.
const MAX_INCIDENTS: f64 = 1e6;

impl ThreadsScenario {
    /// Checks the figures.
    ///
    /// # Errors
    /// [`ScenarioError`] with the key.
    pub fn check(&self) -> Result<(), ScenarioError> {
        let seconds = " seconds";
        within("duration_s", self.duration_s, 0.01, 1e6, seconds)?;
        within("warm_up_s", self.warm_up_s, 0.0, self.duration_s * 0.99, seconds)?;
        within("period_s", self.period_s, 1e-4, 1e6, seconds)?;
        let connections = f64::from(self.connections);
        within("connections", connections, 1.0, f64::from(MAX_CONNECTIONS), "")?;
        self.check_classes()?;
        within("slo_percentile", self.slo_percentile, 1e-6, 0.999_999, "")?;
        self.arrivals.check("arrivals")?;
        let query = &self.query;
        within("query.instructions", query.instructions, 1.0, 1e13, "")?;
        within(
            "query.instructions_per_s",
            query.instructions_per_s,
            1e3,
            1e13,
            " per second",
        )?;
        query.shape.check("query.shape")?;
        query.inflation.check("query.inflation")?;
        let disk = &self.disk;
        within("disk.probability", disk.probability, 0.0, 1.0, "")?;
        let (accesses, parallel) = (f64::from(disk.accesses), f64::from(disk.parallel));
        within("disk.accesses", accesses, 1.0, f64::from(MAX_ACCESSES), "")?;
        within("disk.parallel", parallel, 1.0, 1e6, "")?;
        within("disk.service_s", disk.service_s, 1e-9, 3_600.0, seconds)?;
        disk.service.check("disk.service")?;
        within("disk.power_w", disk.power_w, 0.0, 1e5, " watts")?;
        let locks = &self.locks;
        within("locks.probability", locks.probability, 0.0, 1.0, "")?;
        within("locks.rows", f64::from(locks.rows), 1.0, 1e6, "")?;
        within("locks.queries", f64::from(locks.queries), 1.0, 1e6, "")?;
        within("locks.until", locks.until, 0.0, 1.0, "")?;
        let latest = if locks.queries == 1 { locks.until } else { 1.0 };
        within("locks.from", locks.from, 0.0, latest, "")?;
        let kernel = &self.kernel;
        within("kernel.slice_s", kernel.slice_s(), 1e-7, 3_600.0, seconds)?;
        within("kernel.switch_s", kernel.switch_s, 0.0, 1.0, seconds)?;
        let preempt_s = kernel.preempt_after_s.unwrap_or(0.0);
        within("kernel.preempt_after_s", preempt_s, 0.0, 3_600.0, seconds)?;
        if let Some(gate) = &self.gate {
            self.check_gate(gate)?;
        }
        self.check_incidents()?;
        within("break_even_s", self.break_even_s, 0.0, 3_600.0, seconds)?;
        self.machine.check().map_err(|error| {
            let why = format!("is {}: {}", error.value, error.expected);
            ScenarioError::new(format!("machine.{}", error.key), why)
        })
    }

    fn check_incidents(&self) -> Result<(), ScenarioError> {
        let count = self.incidents.len() as f64;
        within("incidents", count, 0.0, MAX_INCIDENTS, " values")?;
        for (number, incident) in self.incidents.iter().enumerate() {
            let key = |name: &str| format!("incidents.{number}.{name}");
            within(&key("at_s"), incident.at_s(), 0.0, self.duration_s, " seconds")?;
            match incident {
                Incident::Storm { queries, .. } => {
                    within(&key("queries"), f64::from(*queries), 1.0, 1e4, "")?;
                }
                Incident::Stall { length_s, .. } => {
                    within(&key("length_s"), *length_s, 0.0, 3_600.0, " seconds")?;
                }
                Incident::Kill { connection, .. } => {
                    let last = f64::from(self.connections - 1);
                    within(&key("connection"), f64::from(*connection), 0.0, last, "")?;
                }
                Incident::Load { scale, .. } => {
                    within(&key("scale"), *scale, 1e-3, 1e3, "")?;
                }
            }
        }
        Ok(())
    }

    fn check_gate(&self, gate: &GateFigures) -> Result<(), ScenarioError> {
        within("gate.tokens", f64::from(gate.tokens), 1.0, 1e9, "")?;
        within("gate.linger_s", gate.linger_s, 0.0, 3_600.0, " seconds")?;
        within("gate.wake_s", gate.wake_s, 0.0, 1.0, " seconds")?;
        within(
            "gate.concurrency",
            f64::from(gate.concurrency),
            1.0,
            1e9,
            " workers",
        )?;
        within("gate.delay_s", gate.delay_s, 0.0, 3_600.0, " seconds")
    }
}

impl QueryArrivals {
    pub(super) fn check(&self, key: &str) -> Result<(), ScenarioError> {
        match self {
            Self::Closed { think_s, think } => {
                within(&format!("{key}.think_s"), *think_s, 0.0, 86_400.0, " seconds")?;
                Ok(think.check(&format!("{key}.think"))?)
            }
            Self::Open { rate_per_s } => {
                let unit = " queries per second";
                within(&format!("{key}.rate_per_s"), *rate_per_s, 1e-6, 1e9, unit)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_a_world_and_what_is_none_is_named() {
        assert_eq!(ThreadsScenario::default().check(), Ok(()));
        assert_eq!(ThreadsScenario::mysql(512).check(), Ok(()));
        for (text, said) in [
            ("connections = 0", "connections: is 0: it must be 1 to 100000"),
            (
                "duration_s = 5.0\nwarm_up_s = 6.0",
                "warm_up_s: is 6: it must be 0 to 4.95 seconds",
            ),
            (
                "disk.probability = 1.5",
                "disk.probability: is 1.5: it must be 0 to 1",
            ),
            (
                "arrivals = { kind = \"open\", rate_per_s = 0.0 }",
                "arrivals.rate_per_s: is 0",
            ),
            (
                "locks = { from = 0.9, until = 0.5 }",
                "locks.from: is 0.9: it must be 0 to 0.5",
            ),
            (
                "kernel.slice_s = 0.0",
                "kernel.slice_s: is 0: it must be 0.0000001",
            ),
            (
                "gate.concurrency = 0",
                "gate.concurrency: is 0: it must be 1 to 1000000000 workers",
            ),
            (
                "classes = [{ name = \"a\", connections = 60 }]",
                "classes: have 60 connections together, and connections is 64",
            ),
            (
                "connections = 2\nclasses = [{ name = \"a\" }, { name = \"a\" }]",
                "classes.1.name: is \"a\", as that of another class",
            ),
            (
                "classes = [{ connections = 64, disengagement = { target = 0.001, points = [] } }]",
                "classes.0.disengagement.points: the number of points",
            ),
            ("gate.tokens = 0", "gate.tokens: is 0"),
            (
                "incidents = [{ kind = \"kill\", at_s = 1.0, connection = 64 }]",
                "incidents.0.connection: is 64: it must be 0 to 63",
            ),
            (
                "incidents = [{ kind = \"storm\", at_s = 21.0, queries = 1 }]",
                "incidents.0.at_s: is 21: it must be 0 to 20 seconds",
            ),
            ("query.shape = { kind = \"lognormal\", scv = 0.0 }", "query.shape"),
        ] {
            let scenario: ThreadsScenario = toml::from_str(text).unwrap();
            let error = scenario.check().unwrap_err().to_string();
            assert!(error.starts_with(said), "{error}");
        }
        let mysql = ThreadsScenario::mysql(64);
        let text = toml::to_string(&mysql).unwrap();
        assert_eq!(toml::from_str::<ThreadsScenario>(&text).unwrap(), mysql);
        for unknown in ["threads = 5", "gate.n = 1", "kernel.policy = \"cfs\""] {
            assert!(toml::from_str::<ThreadsScenario>(unknown).is_err(), "{unknown}");
        }
    }
}
