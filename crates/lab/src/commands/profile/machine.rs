//! The machine that serves, as it is read before and after each window: this one, or a node by its agent.

use anyhow::{Context, anyhow};
use headroom_console::Failure;
use headroom_node::Roots;
use headroom_node::cpu::{CpuError, UsageSample};
use headroom_node::power::{self, Choice, MeterPreference, ModelledMeter, PowerModel, Usage};
use headroom_node::work::{LinkWork, MachineWork};
use headroom_record::profile::{MachineFacts, Meter};
use headroom_units::{Cores, Ratio, Seconds, Source};
use std::net::{IpAddr, UdpSocket};
use std::time::Instant;

/// A machine's counters at a moment. What could not be read is absent.
#[derive(Clone, Debug)]
pub struct Reading {
    pub at: Instant,
    /// Processor time that was not idle, seconds.
    pub busy_s: Option<f64>,
    /// Of it, software interrupts.
    pub softirq_s: Option<f64>,
    /// Empty where they could not be read.
    pub links: Vec<LinkWork>,
    pub energy: Option<Energy>,
}

/// An energy counter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Energy {
    pub joules: f64,
    pub source: Source,
    /// Grows with every difference that the meter discarded: over such a one no power is known.
    pub gaps: u64,
}

/// What a machine did between two readings.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Used {
    pub length_s: f64,
    pub power_w: Option<f64>,
    pub busy_cores: Option<f64>,
    pub softirq_cores: Option<f64>,
    /// Bytes a second received and sent by each link.
    pub links: Vec<(String, f64, f64)>,
}

/// A machine that can be read.
pub trait Machine {
    /// What it is.
    fn facts(&self) -> MachineFacts;

    /// Where its watts come from; `None` where there is no meter.
    fn meter(&self) -> Option<Meter>;

    /// Whether the generator, in this process, takes a part of its processors.
    fn has_client(&self) -> bool;

    /// Its counters now.
    fn read(&mut self) -> Reading;
}

impl Reading {
    /// Nothing but the time.
    pub fn nothing() -> Self {
        Self {
            at: Instant::now(),
            busy_s: None,
            softirq_s: None,
            links: Vec::new(),
            energy: None,
        }
    }

    /// What was done since an earlier reading, by `source`'s watts alone.
    pub fn since(&self, before: &Self, source: Option<Source>) -> Used {
        let length_s = (self.at - before.at).as_secs_f64();
        let rate = |now: f64, then: f64| (now >= then && length_s > 0.0).then(|| (now - then) / length_s);
        let both = |one: Option<f64>, two: Option<f64>| rate(one?, two?);
        let power = self.energy.zip(before.energy).and_then(|(now, then)| {
            let holds = now.gaps == then.gaps && now.source == then.source && Some(now.source) == source;
            rate(now.joules, then.joules).filter(|_| holds)
        });
        let links = self.links.iter().filter_map(|link| {
            let then = before.links.iter().find(|one| one.name == link.name)?;
            let received = rate(link.received as f64, then.received as f64)?;
            Some((
                link.name.clone(),
                received,
                rate(link.sent as f64, then.sent as f64)?,
            ))
        });
        Used {
            length_s,
            power_w: power,
            busy_cores: both(self.busy_s, before.busy_s),
            softirq_cores: both(self.softirq_s, before.softirq_s),
            links: links.collect(),
        }
    }
}

/// This machine.
pub struct Local {
    roots: Roots,
    meter: Option<(Box<dyn power::Meter>, Choice)>,
    /// What the modelled meter reckons with.
    model: PowerModel,
}

/// What the whole machine used but for this process, which is the generator.
#[derive(Debug)]
struct Others {
    roots: Roots,
    is_ours: bool,
    begin: (Instant, Seconds),
    before: (Instant, Seconds),
}

impl Others {
    fn new(roots: Roots) -> Self {
        let is_ours = roots.is_this_kernel();
        let now = Self::used(&roots, is_ours).unwrap_or_default();
        let begin = (Instant::now(), now);
        Self {
            roots,
            is_ours,
            begin,
            before: begin,
        }
    }

    fn used(roots: &Roots, is_ours: bool) -> Option<Seconds> {
        let all = MachineWork::read(roots).ok()?.busy;
        Some(match is_ours {
            true => all - own_cpu(),
            false => all,
        })
    }
}

impl Usage for Others {
    fn sample(&mut self) -> Result<UsageSample, CpuError> {
        // What cannot be read counts for nothing until it can be read again: its time is then in the next difference.
        let now = Self::used(&self.roots, self.is_ours).unwrap_or(self.before.1);
        let at = Instant::now();
        let (then, before) = std::mem::replace(&mut self.before, (at, now));
        let elapsed = Seconds::from(at - then);
        // The kernel's ticks are coarser than this process' own clock.
        let used = (now - before).max(Seconds::ZERO);
        Ok(UsageSample {
            elapsed,
            used,
            busy: Cores::new(if elapsed > Seconds::ZERO {
                used / elapsed
            } else {
                0.0
            }),
            used_total: (now - self.begin.1).max(Seconds::ZERO),
            ..UsageSample::default()
        })
    }
}

/// CPU time that this process has used.
pub fn own_cpu() -> Seconds {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Seconds::new(time.tv_sec as f64 + time.tv_nsec as f64 / 1e9)
}

impl Local {
    /// Opens its meter by the preference; the model, where that is taken, is of the whole machine without the generator.
    ///
    /// # Errors
    /// None of the preference's order works; `/proc/stat` cannot be read.
    pub fn open(roots: Roots, preference: MeterPreference, model: &PowerModel) -> Result<Self, Failure> {
        MachineWork::read(&roots).context("the machine's counters")?;
        let (of, of_machine) = (roots.clone(), model.clone());
        let meter = power::choose_of(preference, &roots, move || {
            let usage = Box::new(Others::new(of.clone()));
            Ok(Box::new(ModelledMeter::by_periods(
                &of,
                usage,
                of_machine.clone(),
            )))
        })
        .map_err(Failure::usage)?;
        Ok(Self {
            roots,
            meter: Some(meter),
            model: model.clone(),
        })
    }
}

impl Machine for Local {
    fn facts(&self) -> MachineFacts {
        let read = |path: std::path::PathBuf| std::fs::read_to_string(path).unwrap_or_default();
        let processor = read(self.roots.proc_("cpuinfo"))
            .lines()
            .find_map(|line| {
                Some(
                    line.strip_prefix("model name")?
                        .split_once(':')?
                        .1
                        .trim()
                        .to_owned(),
                )
            })
            .unwrap_or_default();
        let uname = rustix::system::uname();
        MachineFacts {
            processor,
            cores: headroom_node::cpu::online(&self.roots).map_or(0, |online| online.len() as u32),
            kernel: uname.release().to_string_lossy().into_owned(),
            link: None,
            agent: None,
        }
    }

    fn meter(&self) -> Option<Meter> {
        let (meter, choice) = self.meter.as_ref()?;
        Some(Meter {
            name: choice.chosen.to_string(),
            source: choice.source,
            of: match choice.chosen {
                power::MeterKind::Model => format!(
                    "a model of the whole machine by its busy cores, without the generator's: {:.1} W with none busy and awake, {:.1} W with all",
                    self.model.idle(Ratio::new(1.0)).get(),
                    self.model.limit(self.model.cores()).get()
                ),
                _ => meter.describe(),
            },
        })
    }

    fn has_client(&self) -> bool {
        self.roots.is_this_kernel()
    }

    fn read(&mut self) -> Reading {
        let sample = self.meter.as_mut().and_then(|(meter, _)| meter.sample().ok());
        let work = MachineWork::read(&self.roots).ok();
        Reading {
            at: Instant::now(),
            busy_s: work.as_ref().map(|work| work.busy.get()),
            softirq_s: work.as_ref().map(|work| work.softirq.get()),
            links: work.map(|work| work.links).unwrap_or_default(),
            energy: sample.map(|sample| Energy {
                joules: sample.energy.value.get(),
                // What emulated hardware says is emulated, whatever the meter's kind.
                source: match self.roots.source() {
                    Source::Emulated => Source::Emulated,
                    _ => sample.energy.source,
                },
                gaps: sample.rebases,
            }),
        }
    }
}

/// A machine of which nothing can be read: a server elsewhere without an agent.
pub struct Unknown;

impl Machine for Unknown {
    fn facts(&self) -> MachineFacts {
        MachineFacts::default()
    }

    fn meter(&self) -> Option<Meter> {
        None
    }

    fn has_client(&self) -> bool {
        false
    }

    fn read(&mut self) -> Reading {
        Reading::nothing()
    }
}

/// Whether an address is one of this machine's own.
pub fn is_local(address: IpAddr) -> bool {
    // Only an address of one's own can be bound; no packet is sent.
    address.is_loopback() || UdpSocket::bind((address, 0)).is_ok()
}

/// The addresses of a URL's host.
///
/// # Errors
/// It has none.
pub fn addresses(host: &str, port: u16) -> Result<Vec<IpAddr>, Failure> {
    use std::net::ToSocketAddrs;
    let found = (host, port)
        .to_socket_addrs()
        .map_err(|error| Failure::usage(anyhow!("`{host}` has no address ({error}): check the name")))?;
    Ok(found.map(|address| address.ip()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn reading(after_ms: u64, busy_s: f64, joules: f64, gaps: u64) -> Reading {
        Reading {
            at: Instant::now() + Duration::from_millis(after_ms),
            busy_s: Some(busy_s),
            softirq_s: Some(busy_s / 10.0),
            links: vec![LinkWork {
                name: "eth0".to_owned(),
                received: (busy_s * 1e3) as u64,
                sent: (busy_s * 1e6) as u64,
                bits_per_s: None,
            }],
            energy: Some(Energy {
                joules,
                source: Source::Measured,
                gaps,
            }),
        }
    }

    #[test]
    fn a_window_is_the_difference_of_two_readings() {
        let (before, after) = (reading(0, 10.0, 100.0, 0), reading(5_000, 20.0, 350.0, 0));
        let used = after.since(&before, Some(Source::Measured));
        assert!((used.length_s - 5.0).abs() < 0.01);
        assert!((used.power_w.unwrap() - 50.0).abs() < 0.1 && (used.busy_cores.unwrap() - 2.0).abs() < 0.01);
        assert!((used.softirq_cores.unwrap() - 0.2).abs() < 0.01);
        let (name, received, sent) = &used.links[0];
        assert!(name == "eth0" && (received - 2e3).abs() < 10.0 && (sent - 2e6).abs() < 1e4);
    }

    #[test]
    fn over_a_gap_or_another_source_no_power_is_known() {
        let before = reading(0, 10.0, 100.0, 0);
        let power = |after: Reading, source| after.since(&before, source).power_w;
        let measured = Some(Source::Measured);
        assert_eq!(power(reading(5_000, 20.0, 350.0, 1), measured), None);
        assert_eq!(
            power(reading(5_000, 20.0, 90.0, 0), measured),
            None,
            "a counter that fell"
        );
        assert_eq!(
            power(reading(5_000, 20.0, 350.0, 0), Some(Source::Estimated)),
            None
        );
        let mut away = reading(5_000, 20.0, 350.0, 0);
        away.energy = None;
        assert_eq!(power(away, measured), None);
        assert_eq!(Reading::nothing().since(&before, measured).busy_cores, None);
    }

    #[test]
    fn this_machine_is_read_and_its_own_addresses_are_known() {
        assert!(is_local("127.0.0.1".parse().unwrap()) && is_local("::1".parse().unwrap()));
        // A documentation address (RFC 5737) is nobody's.
        assert!(!is_local("192.0.2.1".parse().unwrap()));
        let model = PowerModel::default_for(Cores::new(4.0)).unwrap();
        let mut local = Local::open(Roots::default(), "model".parse().unwrap(), &model).unwrap();
        let facts = local.facts();
        assert!(facts.cores >= 1 && !facts.kernel.is_empty());
        assert_eq!(local.meter().unwrap().source, Source::Estimated);
        let before = local.read();
        std::thread::sleep(Duration::from_millis(300));
        let used = local.read().since(&before, Some(Source::Estimated));
        assert!(used.power_w.unwrap() > 0.0, "{used:?}");
        assert!(used.links.iter().any(|(name, ..)| name == "lo"));
    }

    #[test]
    fn the_generators_own_time_is_not_the_machines() {
        let mut others = Others::new(Roots::default());
        let until = Instant::now() + Duration::from_millis(400);
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        let spun = own_cpu();
        let used = others.sample().unwrap();
        let all = MachineWork::read(&Roots::default()).unwrap().busy;
        // Whatever else runs here, this process' own time was taken off.
        assert!(used.used_total < all && spun >= Seconds::new(0.05));
    }
}
