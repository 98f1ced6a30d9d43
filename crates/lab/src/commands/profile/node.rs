//! A node that is read through its agent: samples of its counters, put on this machine's time.

use super::machine::{Energy, Machine, Reading};
use headroom_console::Failure;
use headroom_node::Roots;
use headroom_node::probe::CPU_TIME;
use headroom_node::work::LinkWork;
use headroom_record::profile::{MachineFacts, Meter};
use headroom_units::Source;
use headroom_wire::Address;
use headroom_wire::client::{CallError, Client, ClientOptions};
use headroom_wire::message::{self, Description, Sample};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::runtime::Builder;

/// The time between two samples that is asked for; an agent that has none so short is asked for its shortest.
const PERIOD: Duration = Duration::from_millis(100);
/// A sample after the moment that is asked about is waited for at most so long.
const PATIENCE: Duration = Duration::from_secs(3);
/// Samples that are kept: two minutes of them.
const MAX_KEPT: usize = 1200;
/// Between two attempts to reach an agent that was lost.
const AGAIN: Duration = Duration::from_millis(500);

/// A node by its agent.
pub struct Node {
    address: Address,
    description: Description,
    is_this_machine: bool,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    over: bool,
    samples: VecDeque<Kept>,
    /// Differences that no meter vouched for, and agents that began anew.
    gaps: u64,
    run: Option<u64>,
}

/// A sample, when it came, and the gaps up to it.
struct Kept {
    came: Instant,
    gaps: u64,
    sample: Sample,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn push(&mut self, sample: Sample, came: Instant) {
        if self.run.replace(sample.agent_run) != Some(sample.agent_run) {
            // Its counters began anew: nothing before is of the same row.
            self.samples.clear();
            self.gaps += 1;
        }
        let known = sample
            .energy
            .as_ref()
            .is_some_and(|energy| energy.power.is_some());
        self.gaps += u64::from(!known);
        if self.samples.len() == MAX_KEPT {
            self.samples.pop_front();
        }
        let gaps = self.gaps;
        self.samples.push_back(Kept { came, gaps, sample });
    }

    /// The counters at a moment; `None` while no sample after it is there.
    fn at(&self, moment: Instant) -> Option<Reading> {
        // What its clock shows at a moment of ours: by the sample that took the least time to come.
        let behind = |kept: &Kept| kept.came.checked_sub(kept.sample.uptime);
        let began = self.samples.iter().filter_map(behind).min()?;
        let uptime = moment.checked_duration_since(began)?;
        let after = self
            .samples
            .iter()
            .position(|kept| kept.sample.uptime >= uptime)?;
        let (before, after) = (self.samples.get(after.checked_sub(1)?)?, self.samples.get(after)?);
        let energy = |kept: &Kept| kept.sample.energy.map(|energy| energy.accumulated);
        let between = energy(before).zip(energy(after)).map(|(then, now)| {
            let share = part(before.sample.uptime, after.sample.uptime, uptime);
            Energy {
                joules: mix(then.value.0, now.value.0, share) / 1e6,
                source: now.source,
                gaps: after.gaps,
            }
        });
        let work = self.work_at(uptime);
        Some(Reading {
            at: moment,
            busy_s: work.as_ref().map(|work| work.busy.as_secs_f64()),
            softirq_s: work.as_ref().map(|work| work.softirq.as_secs_f64()),
            links: work
                .map(|work| work.links.iter().map(link).collect())
                .unwrap_or_default(),
            energy: between,
        })
    }

    /// What the machine did until a moment of its agent's clock: read less often than samples come.
    fn work_at(&self, uptime: Duration) -> Option<message::MachineWork> {
        let works = || self.samples.iter().filter_map(|kept| kept.sample.work.as_ref());
        let after = works().find(|work| work.at >= uptime);
        let before = works().rfind(|work| work.at <= uptime)?;
        let Some(after) = after else {
            // The newest, where the time since is too short for another.
            return (uptime - before.at <= PERIOD * 2).then(|| before.clone());
        };
        let share = part(before.at, after.at, uptime);
        let time = |one: Duration, two: Duration| {
            Duration::from_micros(mix(one.as_micros() as u64, two.as_micros() as u64, share) as u64)
        };
        let links = after.links.iter().filter_map(|now| {
            let then = before.links.iter().find(|one| one.name == now.name)?;
            Some(message::LinkWork {
                received: mix(then.received, now.received, share) as u64,
                sent: mix(then.sent, now.sent, share) as u64,
                ..now.clone()
            })
        });
        Some(message::MachineWork {
            at: uptime,
            busy: time(before.busy, after.busy),
            softirq: time(before.softirq, after.softirq),
            links: links.collect(),
        })
    }
}

/// Where a moment lies between two, 0 to 1.
fn part(from: Duration, to: Duration, at: Duration) -> f64 {
    let whole = to.saturating_sub(from).as_secs_f64();
    match whole > 0.0 {
        true => (at.saturating_sub(from).as_secs_f64() / whole).min(1.0),
        false => 1.0,
    }
}

fn mix(one: u64, two: u64, share: f64) -> f64 {
    one as f64 + (two as f64 - one as f64) * share
}

fn link(link: &message::LinkWork) -> LinkWork {
    LinkWork {
        name: link.name.clone(),
        received: link.received,
        sent: link.sent,
        bits_per_s: link.bits_per_s,
    }
}

impl Node {
    /// Connects to an agent, and follows it until it is dropped.
    ///
    /// # Errors
    /// It cannot be reached, or lets nobody observe.
    pub fn connect(address: Address, options: ClientOptions) -> Result<Self, Failure> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let client = runtime
            .block_on(Client::connect(&address, &options))
            .map_err(Failure::usage)?;
        let description = client.agent().clone();
        let here = std::fs::read_to_string(Roots::default().proc_("sys/kernel/random/boot_id"));
        let is_this_machine = here.is_ok_and(|id| id.trim() == description.node.boot_id.trim());
        let shared = Arc::new(Shared::default());
        let (theirs, of_thread) = (Arc::clone(&shared), address.clone());
        std::thread::Builder::new()
            .name("headroom-node".to_owned())
            .spawn(move || {
                runtime.block_on(async {
                    let mut client = Some(client);
                    while !theirs.lock().over {
                        if let Err(error) = follow(&mut client, &of_thread, &options, &theirs).await {
                            tracing::warn!("{error}: its figures are missing until it is back");
                        }
                        tokio::time::sleep(AGAIN).await;
                    }
                });
            })?;
        shared.wait_for_the_first();
        Ok(Self {
            address,
            description,
            is_this_machine,
            shared,
        })
    }
}

impl Shared {
    /// What is read at a moment lies between two samples: waits until one is there, of an agent that says what its machine does one that has
    /// that; for [`PATIENCE`] at most.
    fn wait_for_the_first(&self) {
        let until = Instant::now() + PATIENCE;
        let mut state = self.lock();
        while !state.samples.iter().any(|kept| kept.sample.work.is_some()) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

async fn follow(
    client: &mut Option<Client>,
    address: &Address,
    options: &ClientOptions,
    shared: &Shared,
) -> Result<(), CallError> {
    let connected = match client.take() {
        Some(client) => client,
        None => Client::connect(address, options).await?,
    };
    let shortest = Duration::from_secs_f64(connected.agent().observe_period_ms.minimum.max(0.0) / 1e3);
    let mut samples = connected.observe(PERIOD.max(shortest)).await?;
    while let Some(sample) = samples.next().await? {
        let mut state = shared.lock();
        if state.over {
            return Ok(());
        }
        state.push(sample, Instant::now());
        drop(state);
        shared.changed.notify_all();
    }
    Ok(())
}

impl Machine for Node {
    fn facts(&self) -> MachineFacts {
        let node = &self.description.node;
        MachineFacts {
            processor: node.processor.clone(),
            cores: node.cores_online,
            kernel: node.kernel.clone(),
            link: None,
            agent: Some(self.address.to_string()),
        }
    }

    fn meter(&self) -> Option<Meter> {
        // What counts the service's CPU time is in use too, and tells no watts.
        let mut meters = self.description.meters.iter();
        let meter = meters.find(|meter| meter.in_use && meter.name != CPU_TIME)?;
        Some(Meter {
            name: meter.name.clone(),
            source: match self.description.source {
                Source::Emulated => Source::Emulated,
                source => match &*meter.source {
                    "measured" => Source::Measured,
                    "estimated" => Source::Estimated,
                    "emulated" => Source::Emulated,
                    _ => source,
                },
            },
            of: meter.reason.clone(),
        })
    }

    fn has_client(&self) -> bool {
        self.is_this_machine
    }

    fn read(&mut self) -> Reading {
        let moment = Instant::now();
        let until = moment + PATIENCE;
        let mut state = self.shared.lock();
        loop {
            if let Some(reading) = state.at(moment) {
                return reading;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Reading {
                    at: moment,
                    ..Reading::nothing()
                };
            }
            state = self
                .shared
                .changed
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // The thread ends with the next sample, or with the program.
        self.shared.lock().over = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_units::{Setting, Watts};
    use headroom_wire::message::{EnergySample, MachineWork, Microjoules};

    fn sample(run: u64, ms: u64, joules: u64, power: Option<f64>, busy_ms: u64) -> Sample {
        let uptime = Duration::from_millis(ms);
        Sample {
            number: 1,
            agent_run: run,
            uptime,
            period: PERIOD,
            cpu: None,
            machine_utilisation: None,
            zones: Vec::new(),
            energy: Some(EnergySample::new(
                Source::Measured,
                Microjoules(joules * 1_000_000),
                power.map(Watts::new),
            )),
            frequency: None,
            in_force: Setting::default(),
            lease: None,
            troubles: Vec::new(),
            usable: None,
            refused: None,
            oncall: None,
            work: Some(MachineWork {
                at: uptime,
                busy: Duration::from_millis(busy_ms),
                softirq: Duration::from_millis(busy_ms / 10),
                links: vec![message::LinkWork {
                    name: "eth0".to_owned(),
                    received: busy_ms,
                    sent: 1_000 * busy_ms,
                    bits_per_s: Some(1e9),
                }],
            }),
        }
    }

    #[test]
    fn a_moment_between_two_samples_is_read_between_them() {
        let mut state = State::default();
        let began = Instant::now();
        // The first was 40 ms late: the second says how the clocks stand.
        state.push(
            sample(1, 1_000, 10, Some(50.0), 500),
            began + Duration::from_millis(1_045),
        );
        state.push(
            sample(1, 1_100, 20, Some(100.0), 700),
            began + Duration::from_millis(1_105),
        );
        let at = |ms| state.at(began + Duration::from_millis(ms));
        let reading = at(1_055).unwrap();
        let energy = reading.energy.unwrap();
        assert!((energy.joules - 15.0).abs() < 1e-6, "{energy:?}");
        assert!((reading.busy_s.unwrap() - 0.6).abs() < 1e-6);
        assert_eq!(
            (reading.links[0].sent, reading.links[0].bits_per_s),
            (600_000, Some(1e9))
        );
        assert!(at(1_200).is_none(), "no sample is after it yet");
        assert!(at(900).is_none(), "nothing is known of before");
    }

    #[test]
    fn an_agent_that_began_anew_and_a_meter_that_vouches_for_nothing_are_gaps() {
        let mut state = State::default();
        let began = Instant::now();
        let mut push = |run, ms, joules, power| {
            state.push(
                sample(run, ms, joules, power, ms),
                began + Duration::from_millis(ms),
            );
            state.gaps
        };
        assert_eq!(push(1, 100, 10, Some(50.0)), 1);
        assert_eq!(push(1, 200, 10, Some(50.0)), 1);
        assert_eq!(push(1, 300, 10, None), 2);
        assert_eq!(push(2, 20, 0, Some(50.0)), 3);
        assert_eq!(state.samples.len(), 1);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut state = State::default();
        for number in 0..MAX_KEPT as u64 + 50 {
            state.push(sample(1, number, number, Some(1.0), number), Instant::now());
        }
        assert_eq!(state.samples.len(), MAX_KEPT);
    }
}
