//! What a cluster draws at its plug, as a device of the control loop: it sets nothing, and says what all servers drew together,
//! those that are off, boot or shut down included.

use super::server::{Counted, Meter};
use headroom_control::Decision;
use headroom_runtime::live::{Device, DevicePeriod};
use headroom_units::{Joules, Reading, Seconds, Setting, Source, Watts};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// What a cluster drew in its run so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Drawn {
    /// Since the run began.
    pub counted: Counted,
    /// In the last period.
    pub power: Watts,
    /// Servers that are on.
    pub servers_on: usize,
}

/// A cluster's meter.
#[derive(Debug)]
pub struct Mains {
    meters: Vec<Meter>,
    before: Option<(Instant, Counted)>,
    shown: Arc<Mutex<Drawn>>,
}

impl Mains {
    /// The meter of these servers; what it shows can be read elsewhere too.
    pub fn new(meters: Vec<Meter>, shown: Arc<Mutex<Drawn>>) -> Self {
        Self {
            meters,
            before: None,
            shown,
        }
    }

    fn total(&self) -> Option<Counted> {
        self.meters
            .iter()
            .try_fold(Counted::default(), |sum, meter| Some(sum.with(meter.counted()?)))
    }
}

impl Drawn {
    /// Energy since the run began.
    pub fn energy(&self) -> Joules {
        self.counted.energy.total()
    }
}

impl Device for Mains {
    fn begin(&mut self) -> Option<String> {
        self.before = self.total().map(|counted| (Instant::now(), counted));
        Some(format!("the plug of {} emulated servers", self.meters.len()))
    }

    fn observe(&mut self, period: &mut DevicePeriod) {
        let now = self.total().map(|counted| (Instant::now(), counted));
        (period.energy, period.power) = (None, None);
        period.beside_caps = self.meters.iter().map(Meter::beside_caps).sum();
        if let (Some((at, counted)), Some((was_at, was))) = (now, self.before)
            && counted.energy.total() >= was.energy.total()
            && at > was_at
        {
            let since = counted.since(was);
            let (drawn, length) = (since.energy.total(), Seconds::from(at - was_at));
            let power = drawn / length;
            let reading = |value| Reading {
                value,
                source: Source::Emulated,
            };
            period.energy = Some(reading(drawn));
            period.power = Some(Reading {
                value: power,
                source: Source::Emulated,
            });
            let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
            *shown = Drawn {
                counted: shown.counted.with(since),
                power,
                servers_on: self.meters.iter().filter(|meter| meter.is_on()).count(),
            };
        }
        self.before = now;
    }

    fn in_force(&self) -> Setting {
        Setting::default()
    }

    fn apply(&mut self, _decision: &mut Decision) -> anyhow::Result<()> {
        Ok(())
    }
}
