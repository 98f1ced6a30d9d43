//! What a file names, made.

use super::tables::ControllerKind;
use super::{DAY_S, ResizeFile};
use headroom_console::{ConfigError, Document};
use headroom_control::Law;
use headroom_control::capacity::{QueueMonitor, QueueTuning};
use headroom_control::resize::{AlwaysOn, Schedule, Scheduled, Stepwise};
use headroom_units::{PerSecond, Seconds};

impl ResizeFile {
    /// The parameters of queue monitoring, at the control period.
    ///
    /// # Errors
    /// A parameter outside its range, with its line.
    pub fn queue_tuning(&self, document: &Document) -> Result<QueueTuning, ConfigError> {
        let period_s = self.control.period_ms / 1e3;
        let given_s = self.capacity.queue.sampling_period_s;
        if given_s != QueueTuning::default().sampling_period_s && given_s != period_s {
            let why = format!(
                "is {given_s}: capacities are estimated once a period, so leave it out or set control.period_ms"
            );
            return Err(document.error("capacity.queue.sampling_period_s", why));
        }
        let tuning = QueueTuning {
            sampling_period_s: period_s,
            ..self.capacity.queue
        };
        QueueMonitor::new(tuning)
            .map_err(|error| document.error(&format!("capacity.queue.{}", error.key), &error))?;
        Ok(tuning)
    }

    /// The controller.
    ///
    /// # Errors
    /// What it needs is missing or outside its range, with its line.
    pub fn resizer(&self, document: &Document) -> Result<Box<dyn Law>, ConfigError> {
        let table = &self.controller;
        let capacity = || {
            let missing = || document.error("controller.capacity_per_s", "is missing: what one server takes");
            table.capacity_per_s.map(PerSecond::new).ok_or_else(missing)
        };
        Ok(match table.kind {
            ControllerKind::AlwaysOn => Box::new(AlwaysOn),
            ControllerKind::Static => Box::new(
                Stepwise::fixed(capacity()?, self.resize)
                    .map_err(|error| document.error("controller.capacity_per_s", error))?,
            ),
            ControllerKind::Dynamic => {
                Box::new(Stepwise::online(self.resize).map_err(|error| document.error("resize", error))?)
            }
            ControllerKind::Scheduled => {
                let wrong = |error| document.error("controller", error);
                let slot = Seconds::new(table.slot_s);
                let schedule = match (&table.slots, &table.curve_per_s) {
                    (Some(slots), None) => Schedule::new(slot, slots.clone()),
                    (None, Some(curve)) => {
                        let curve: Vec<PerSecond> = curve.iter().copied().map(PerSecond::new).collect();
                        Schedule::of_curve(&curve, Seconds::new(table.curve_step_s), slot, capacity()?)
                    }
                    _ => {
                        let why = "a scheduled controller needs exactly one of slots and curve_per_s";
                        return Err(document.error("controller", why));
                    }
                };
                document.within(&[("controller.utc_offset_s", table.utc_offset_s, -DAY_S, DAY_S)])?;
                let scheduled = Scheduled::new(schedule.map_err(wrong)?, Seconds::new(table.lead_s));
                let offset = Seconds::new(table.utc_offset_s);
                Box::new(scheduled.map_err(wrong)?.with_offset(offset))
            }
        })
    }
}
