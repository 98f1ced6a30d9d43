//! A node with a server on call, as its agent serves it: the machine's levers, and C, N and D of the server, under one lease.
//!
//! The server comes and goes. Its levers can be commanded all the while, since what a controller can set is found out once; while it is
//! away none of them is in force, and when it is back it has what the lease asks for.

use super::attached::{AttachFailure, AttachOptions, Held, Link};
use super::device::LEVERS;
use super::wrapped::WrappedAt;
use crate::live::{Device, DevicePeriod, ReportedLatency, Telemetry, TrafficPeriod};
use headroom_control::{Decision, OncallObservation};
use headroom_node::agent::machine::{About, Counters};
use headroom_node::agent::{Machine, MachineError, PutBack};
use headroom_units::{Lever, Seconds, Setting};
use headroom_wire::message::{
    Device as Described, MAX_AWAY, OnCallCounters, OnCallNow, OnCallSample, OnCallServer, Ranges,
};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// What is commanded of the server is renewed so many times within its lease.
const RENEWALS: u32 = 4;

/// A machine with a server on call on it.
pub struct OncallMachine {
    machine: Box<dyn Machine>,
    link: Link,
    server: OnCallServer,
    /// Within what time the server is to hear from here.
    renewed_within: Duration,
    /// What the lease asks of the server's levers.
    wanted: Setting,
    counted: Counted,
}

/// What was counted since this began, of each process that the server was.
struct Counted {
    /// All but the latencies.
    counters: OnCallCounters,
    /// Queries by latency in microseconds: as many as the library's histogram tells apart.
    latencies: BTreeMap<u64, u64>,
    /// The end of what was counted.
    at: Instant,
}

impl OncallMachine {
    /// The machine with the levers of the server at this place, which is attached to now or when it is there; with what cannot be had of it,
    /// in words.
    ///
    /// # Errors
    /// What no start of the server mends: it is another user's, of another version, or commanded by somebody else.
    pub fn open(
        machine: Box<dyn Machine>,
        at: WrappedAt,
        options: AttachOptions,
    ) -> Result<(Self, Vec<String>), AttachFailure> {
        let (break_even, lease) = (options.break_even, options.lease);
        let (link, notes) = Link::open(at, options)?;
        let machine = Self {
            machine,
            server: OnCallServer {
                name: link.name(),
                break_even,
            },
            link,
            renewed_within: lease / RENEWALS,
            wanted: Setting::default(),
            counted: Counted {
                counters: OnCallCounters::default(),
                latencies: BTreeMap::new(),
                at: Instant::now(),
            },
        };
        Ok((machine, notes))
    }

    /// Puts what is wanted in force, or renews it.
    fn command(&mut self) -> Result<(), MachineError> {
        match &mut self.link.held {
            Some(held) => held
                .device
                .apply(&mut Decision::of(self.wanted))
                .map_err(|error| MachineError::new(format!("{error:#}"))),
            None => Ok(()),
        }
    }

    /// The server as it is now. One that came is attached to, and has what the lease asks for.
    fn look(&mut self) -> OnCallSample {
        let now = match self.link.held() {
            Some(held) => Ok(self.counted.read(held)),
            None => {
                self.link.seek();
                // What it did before it was attached to is nobody's.
                self.counted.at = Instant::now();
                Err(shortened(self.link.away.as_deref().unwrap_or(ATTACHED)))
            }
        };
        if let Err(error) = self.command() {
            tracing::error!(
                "the workers of {} are not as commanded: {error}",
                self.server.name
            );
        }
        OnCallSample {
            server: self.server.name.clone(),
            now,
            counters: self.counted.counters(),
        }
    }
}

/// What is said in the period in which it is found.
const ATTACHED: &str = "it was attached to just now: its first whole period is the next";

/// As much of a text as a message may carry.
fn shortened(why: &str) -> String {
    let mut ends = (0..=MAX_AWAY.min(why.len())).rev();
    let end = ends.find(|end| why.is_char_boundary(*end));
    why[..end.unwrap_or(0)].to_owned()
}

impl Counted {
    /// What the server did since the last call, added; and what it does now.
    fn read(&mut self, held: &mut Held) -> OnCallNow {
        let mut period = DevicePeriod::default();
        let traffic = held.telemetry.take(Duration::ZERO).unwrap_or_default();
        held.device.observe(&mut period);
        let oncall = period.oncall.unwrap_or_default();
        let at = Instant::now();
        let length = at - std::mem::replace(&mut self.at, at);
        let cores = oncall
            .cores
            .and_then(|cores| u32::try_from(cores).ok())
            .unwrap_or(1)
            .max(1);
        self.add(&oncall, &traffic, length * cores);
        OnCallNow {
            connections: narrow(oncall.connections),
            running: narrow(oncall.running),
            waiting: narrow(oncall.waiting),
            waiting_least: narrow(oncall.always_waiting()),
            oldest_waiting: oncall.oldest_waiting.map(length_of),
            in_flight: traffic.in_flight.unwrap_or(0),
            oldest_in_flight: traffic.oldest_in_flight.map(length_of),
            cores,
            asking_thousandths: oncall.asking.map(|asking| (asking * 1e3).round() as u32),
        }
    }

    /// Adds a period with so much time of all its processors together.
    fn add(&mut self, oncall: &OncallObservation, traffic: &TrafficPeriod, measured: Duration) {
        let all = &mut self.counters;
        all.arrivals += traffic.arrivals;
        all.queries += traffic.completions;
        all.failures += traffic.failures;
        all.rounds += oncall.rounds;
        all.given_back += oncall.given_back;
        if let Some(switches) = oncall.context_switches {
            *all.context_switches.get_or_insert_default() += switches;
        }
        if let Some(long) = oncall.long_idle {
            all.measured += measured;
            all.long_idle += measured.mul_f64(long.get().clamp(0.0, 1.0));
        }
        if let ReportedLatency::Histogram(histogram) = &traffic.latency {
            for of in histogram.iter_recorded() {
                *self.latencies.entry(of.value_iterated_to()).or_default() += of.count_at_value();
            }
        }
    }

    fn counters(&self) -> OnCallCounters {
        OnCallCounters {
            latencies: self.latencies.iter().map(|(us, count)| (*us, *count)).collect(),
            ..self.counters.clone()
        }
    }
}

fn narrow(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn length_of(seconds: Seconds) -> Duration {
    Duration::try_from_secs_f64(seconds.get()).unwrap_or_default()
}

/// Of a setting the server's levers alone, as whole numbers where these are asked for.
fn of_server(setting: Setting) -> Setting {
    LEVERS
        .into_iter()
        .fold(Setting::default(), |all, (lever, range)| {
            let value = setting.get(lever).map(|value| match range.step > 0.0 {
                true => (value / range.step).floor() * range.step,
                false => value,
            });
            all.with(lever, value)
        })
}

impl Machine for OncallMachine {
    fn about(&mut self) -> About {
        let mut about = self.machine.about();
        let away = self.link.away.as_ref().filter(|_| self.link.held.is_none());
        let device = Described {
            name: "on-call threads".to_owned(),
            usable: away.is_none(),
            in_use: away.is_none(),
            reason: match (&self.link.held, away) {
                (None, Some(why)) => why.clone(),
                (held, _) => {
                    let pid = held.as_ref().map_or(0, |held| held.wrapped.server);
                    format!("the workers of {}, pid {pid}", self.server.name)
                }
            },
            remedy: match away {
                Some(_) => format!(
                    "start it with `headroom wrap --steered --name {}`",
                    self.server.name
                ),
                None => String::new(),
            },
        };
        about.devices.push(device);
        about.oncall = Some(self.server.clone());
        about
    }

    fn ranges(&mut self) -> Ranges {
        LEVERS
            .into_iter()
            .fold(self.machine.ranges(), |all, (lever, range)| {
                all.with(lever, Ok(range))
            })
    }

    fn apply(&mut self, setting: Setting) -> Result<Vec<String>, MachineError> {
        self.wanted = of_server(setting);
        // What one part refuses keeps the other from nothing; a machine that is paused refuses, and the server's workers go then too.
        let commanded = self.command();
        let others = LEVERS
            .into_iter()
            .fold(setting, |all, (lever, _)| all.with(lever, None));
        let mut notes = self.machine.apply(others)?;
        commanded?;
        if !self.wanted.is_empty()
            && let (None, Some(why)) = (&self.link.held, &self.link.away)
        {
            notes.push(format!("no workers are on call: {why}"));
        }
        Ok(notes)
    }

    fn put_back(&mut self) -> PutBack {
        let before = self
            .link
            .held
            .as_ref()
            .map_or_else(Setting::default, |held| held.device.in_force());
        self.wanted = Setting::default();
        let let_go = self.command();
        let mut done = self.machine.put_back();
        match let_go {
            Ok(()) if before.get(Lever::Concurrency).is_some() => {
                done.notes.push(format!("all workers of {} go", self.server.name));
            }
            Ok(()) => {}
            Err(error) => done.failed.push(error.to_string()),
        }
        done
    }

    fn in_force(&self) -> Setting {
        match &self.link.held {
            Some(held) => held.device.in_force().over(&self.machine.in_force()),
            None => self.machine.in_force(),
        }
    }

    fn read(&mut self) -> Counters {
        let mut counters = self.machine.read();
        counters.oncall = Some(self.look());
        counters
    }

    fn read_within(&self) -> Option<Duration> {
        let own = (!self.wanted.is_empty()).then_some(self.renewed_within);
        own.into_iter().chain(self.machine.read_within()).min()
    }
}

#[cfg(test)]
#[path = "agent_machine_tests.rs"]
mod tests;
