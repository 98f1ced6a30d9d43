//! Idle periods by an eBPF program, which keeps each CPU's record in the kernel; reading stops nobody.

use super::PeriodError;
use super::account::{Between, CpuReading};
use super::sample::{LengthClass, LongIdle, PeriodSample, PeriodSource};
use crate::bpf::{innermost, remedy};
use crate::cpu::CpuList;
use crate::{Roots, file};
use aya::maps::{Array, MapData, PerCpuArray};
use aya::programs::{ProgramError, RawTracePoint};
use aya::{Btf, Ebpf, EbpfLoader};
use headroom_queue_bpf::idle::{self as program, CLASSES, MAX_THRESHOLDS, Record, class_from_ns, field};
use headroom_units::Seconds;
use rustix::thread::CpuSet;
use rustix::time::{ClockId, clock_gettime};
use std::error::Error;
use std::thread;
use std::time::Duration;

/// How often records are read again because one was being written: a write takes well under a microsecond.
const TRIES: usize = 8;
/// Where no CPU had an event for so long after all were woken, and some were idle for a third of it, there are no events.
const PATIENCE: Duration = Duration::from_millis(100);
const IDLE_MEANWHILE: Duration = Duration::from_millis(30);

/// Measures by an eBPF program, which is in the kernel as long as this lives.
pub(super) struct KernelPeriods {
    source: PeriodSource,
    /// Each CPU's place among the values of a per-CPU map.
    places: Vec<usize>,
    /// From when on it is known of each CPU whether it was idle.
    since: Vec<Option<u64>>,
    thresholds: Vec<Seconds>,
    thresholds_ns: [u64; MAX_THRESHOLDS],
    records: PerCpuArray<MapData, Record>,
    epochs: Array<MapData, u64>,
    epoch: u64,
    at: u64,
    before: Vec<CpuReading>,
    /// Holds the program: dropping it takes the program out of the kernel.
    _program: Ebpf,
}

impl KernelPeriods {
    /// Loads the program of this source, the first two of which are this kind, and takes the first reading.
    pub(super) fn open(
        roots: &Roots,
        source: PeriodSource,
        cpus: &CpuList,
        thresholds: &[Seconds],
    ) -> Result<Self, PeriodError> {
        if !roots.is_this_kernel() {
            return Err(PeriodError::Refused {
                doing: "measure idle periods by eBPF".into(),
                cause: format!("{} is not the running kernel's", roots.sys.display()),
                remedy: "run on that machine".into(),
            });
        }
        let mut thresholds_ns = [u64::MAX; MAX_THRESHOLDS];
        for (ns, threshold) in thresholds_ns.iter_mut().zip(thresholds) {
            *ns = u64::try_from(threshold.to_duration().as_nanos()).unwrap_or(u64::MAX);
        }
        let possible: CpuList = file::read(&roots.sys("devices/system/cpu/possible"))?
            .parse()
            .map_err(|_| PeriodError::NoCpus {
                asked: cpus.to_string(),
            })?;
        // A per-CPU map has a value for each possible CPU, in ascending order.
        let places: Vec<usize> = possible
            .iter()
            .enumerate()
            .filter(|(_, cpu)| cpus.contains(*cpu))
            .map(|(place, _)| place)
            .collect();
        let mut loaded = load(roots, source, &thresholds_ns)?;
        let mut map = |name: &str| {
            loaded.take_map(name).ok_or_else(|| PeriodError::Refused {
                doing: "set up the eBPF program".into(),
                cause: "the compiled program lacks one of its maps".into(),
                remedy: headroom_queue_bpf::REMEDY.into(),
            })
        };
        let (records, epochs) = (map(program::RECORDS)?, map(program::EPOCHS)?);
        let mut meter = Self {
            source,
            since: wake(cpus),
            places,
            thresholds: thresholds.to_vec(),
            thresholds_ns,
            records: PerCpuArray::try_from(records).map_err(map_error)?,
            epochs: Array::try_from(epochs).map_err(map_error)?,
            epoch: 0,
            at: 0,
            before: Vec::new(),
            _program: loaded,
        };
        meter.expect_events(roots, cpus)?;
        (meter.at, meter.before) = meter.read()?;
        Ok(meter)
    }

    /// Waits for the first event: all CPUs were just woken, so that those that have nothing to do are idle again.
    fn expect_events(&self, roots: &Roots, cpus: &CpuList) -> Result<(), PeriodError> {
        let idle_before = super::coarse::idle_of(roots, cpus).ok();
        let mut waited = Duration::ZERO;
        while waited < PATIENCE {
            if self.records()?.iter().any(|record| record[field::FIRST] != 0) {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(5));
            waited += Duration::from_millis(5);
        }
        let idle_after = super::coarse::idle_of(roots, cpus).ok();
        let was_idle = idle_before.zip(idle_after).is_some_and(|(before, after)| {
            let each = after
                .iter()
                .filter_map(|(cpu, idle)| Some((idle, before.get(cpu)?)));
            each.map(|(after, before)| *after - *before)
                .any(|idle| idle.to_duration() >= IDLE_MEANWHILE)
        });
        // Otherwise they are all busy, and the events come when they are not.
        match was_idle {
            true => Err(PeriodError::Refused {
                doing: format!(
                    "measure idle periods by the tracepoint {}",
                    tracepoint(self.source)
                ),
                cause: "CPUs were idle and it did not fire: this kernel idles by another way".into(),
                remedy: "use the next source".into(),
            }),
            false => Ok(()),
        }
    }

    fn records(&self) -> Result<Vec<Record>, PeriodError> {
        let all = self.records.get(&0, 0).map_err(map_error)?;
        Ok(self
            .places
            .iter()
            .filter_map(|place| all.get(*place).copied())
            .collect())
    }

    /// When, and every CPU's record.
    fn read(&mut self) -> Result<(u64, Vec<CpuReading>), PeriodError> {
        // Before the time is taken: a period that is running then ends in another epoch than it began in.
        self.epoch += 1;
        self.epochs.set(0, self.epoch, 0).map_err(map_error)?;
        let mut at = now();
        let mut records = self.records()?;
        for _ in 1..TRIES {
            if records
                .iter()
                .all(|record| record[field::WRITTEN] == record[field::WRITING])
            {
                break;
            }
            at = now();
            records = self.records()?;
        }
        let readings = records
            .into_iter()
            .zip(&self.since)
            .map(|(record, since)| CpuReading::new(record, at, *since))
            .collect();
        Ok((at, readings))
    }

    pub(super) fn sample(&mut self) -> Result<PeriodSample, PeriodError> {
        let (at, readings) = self.read()?;
        let each: Vec<Between> = readings
            .iter()
            .zip(&self.before)
            .map(|(now, before)| now.since(before, &self.thresholds_ns))
            .collect();
        let elapsed = at.saturating_sub(self.at);
        (self.at, self.before) = (at, readings);
        let sum = |of: &dyn Fn(&Between) -> u64| each.iter().map(of).sum::<u64>();
        let lengths: Vec<LengthClass> = (0..CLASSES)
            .map(|class| LengthClass {
                from: seconds(class_from_ns(class)),
                to: (class + 1 < CLASSES).then(|| seconds(class_from_ns(class + 1))),
                periods: sum(&|between| between.periods[class]),
                time: seconds(sum(&|between| between.time[class])),
            })
            .filter(|class| class.periods > 0)
            .collect();
        let long = self.thresholds.iter().enumerate().map(|(index, over)| LongIdle {
            over: *over,
            time: seconds(sum(&|between| between.longer[index])),
        });
        Ok(PeriodSample {
            source: self.source,
            elapsed: seconds(elapsed),
            cpus: each.iter().filter(|between| between.observed > 0).count(),
            observed: seconds(sum(&|between| between.observed)),
            idle: seconds(sum(&|between| between.idle)),
            periods: Some(lengths.iter().map(|class| class.periods).sum()),
            long: long.collect(),
            lengths,
        })
    }
}

fn seconds(ns: u64) -> Seconds {
    Seconds::new(ns as f64 / 1e9)
}

/// The clock of `bpf_ktime_get_ns`.
fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// Wakes every CPU, so that one that sleeps already ends that period and begins one that is seen whole; when each was, of
/// those that could be. A CPU outside the CPUs that this process may use is not: it is known from its first event on.
fn wake(cpus: &CpuList) -> Vec<Option<u64>> {
    let visit = |cpu: u32| {
        let mut only = CpuSet::new();
        if cpu as usize >= CpuSet::MAX_CPU {
            return None;
        }
        only.set(cpu as usize);
        rustix::thread::sched_setaffinity(None, &only).ok()?;
        Some(now())
    };
    // On a thread of its own, which leaves this one's CPUs as they are.
    thread::scope(|scope| {
        let visits = scope.spawn(|| cpus.iter().map(visit).collect());
        visits.join().unwrap_or_else(|_| vec![None; cpus.len()])
    })
}

fn tracepoint(source: PeriodSource) -> &'static str {
    match source {
        PeriodSource::SchedSwitch => program::SCHED_SWITCH,
        _ => program::CPU_IDLE,
    }
}

/// Puts the program in the kernel.
fn load(
    roots: &Roots,
    source: PeriodSource,
    thresholds: &[u64; MAX_THRESHOLDS],
) -> Result<Ebpf, PeriodError> {
    const DOING: &str = "load the eBPF program of idle periods";
    let object = program::object().map_err(|reason| PeriodError::Refused {
        doing: DOING.into(),
        cause: format!("this build of Headroom has none: {reason}"),
        remedy: headroom_queue_bpf::REMEDY.into(),
    })?;
    // Only the program on sched_switch reads a structure of the kernel, whose fields its BTF places.
    let types = match source {
        PeriodSource::SchedSwitch => {
            let path = roots.sys("kernel/btf/vmlinux");
            let types = Btf::parse_file(&path, aya::Endianness::default());
            Some(types.map_err(|error| PeriodError::Refused {
                doing: format!("fit the eBPF program to this kernel by {}", path.display()),
                cause: innermost(&error),
                remedy: "use a kernel with CONFIG_DEBUG_INFO_BTF".into(),
            })?)
        }
        _ => None,
    };
    let name = tracepoint(source);
    let mut loaded = EbpfLoader::new()
        .btf(types.as_ref())
        .override_global(program::THRESHOLDS, thresholds, true)
        .load(object)
        .map_err(|error| refused(DOING, &error))?;
    let found = loaded
        .program_mut(name)
        .ok_or_else(|| refused(DOING, &std::io::Error::other("the compiled object lacks it")))?;
    let program: &mut RawTracePoint = found
        .try_into()
        .map_err(|error: ProgramError| refused(DOING, &error))?;
    program.load().map_err(|error| refused(DOING, &error))?;
    program
        .attach(name)
        .map_err(|error| refused(&format!("attach it to the raw tracepoint {name}"), &error))?;
    Ok(loaded)
}

fn map_error(error: aya::maps::MapError) -> PeriodError {
    refused("read what the eBPF program counted", &error)
}

fn refused(doing: &str, error: &(dyn Error + 'static)) -> PeriodError {
    PeriodError::Refused {
        doing: doing.into(),
        cause: innermost(error),
        remedy: remedy(error, "use a kernel with this tracepoint").into(),
    }
}
