//! The kinds of machines of a fleet: what each is, from a profile or built in, and how many there are.

use anyhow::anyhow;
use headroom_console::Failure;
use headroom_control::placement::{
    Baselines, Cell, FirstFull, Fitted, KindFigures, MachineDescription, NetworkBaseline, Unidentified,
    first_full, fit,
};
use headroom_physics::serving::{
    RequestCost, ServiceCost, ServingKind, ServingMachine, StudiedCost, StudiedService,
};
use headroom_record::profile::{BaselineKind, Profile, Protocol, compare, size_text};
use headroom_units::{Cores, PerSecond, Ratio, Seconds, Source, Watts};
use std::path::PathBuf;

/// The sizes at which built-in machines were measured, KB.
const STUDIED_KB: [f64; 4] = [1.0, 10.0, 100.0, 999.0];
/// A line that is off by more than this is said.
const OFF_PERCENT: f64 = 10.0;

/// A kind of machines.
#[derive(Debug)]
pub struct FleetKind {
    /// What each is.
    pub machine: ServingMachine,
    /// How many there are.
    pub count: u32,
    /// Where its watts come from.
    pub source: Source,
    /// What it serves.
    pub protocol: Protocol,
    /// What a reader must know of the model.
    pub notes: Vec<String>,
    cost: Cost,
}

#[derive(Debug)]
enum Cost {
    Fitted(Box<Fitted>),
    Studied(StudiedCost),
}

impl FleetKind {
    /// What a request of this size takes.
    pub fn cost_of(&self, size_bytes: f64) -> RequestCost {
        match &self.cost {
            Cost::Fitted(fitted) => fitted.cost_of(size_bytes),
            Cost::Studied(cost) => cost.of(size_bytes),
        }
    }

    /// The most requests of this size that it was measured to serve; `None` of a machine that nobody measured.
    pub fn most_of(&self, size_bytes: f64) -> Option<PerSecond> {
        match &self.cost {
            Cost::Fitted(fitted) => fitted.most_of(size_bytes),
            Cost::Studied(_) => None,
        }
    }

    /// What is full first where it serves this size alone.
    pub fn full_first(&self, size_bytes: f64) -> FirstFull {
        let full = first_full(&self.machine, self.cost_of(size_bytes), self.most_of(size_bytes));
        match &self.cost {
            // Where nobody knows what its link carries, the most that was seen stands for it, and says nothing of what was full.
            Cost::Fitted(fitted)
                if full == FirstFull::Link && fitted.unidentified.contains(&Unidentified::LinkCapacity) =>
            {
                FirstFull::Other
            }
            _ => full,
        }
    }

    /// What is to be said of the sizes at which something was full before its cores and its link were; `None` where there are none.
    pub fn full_early(&self) -> Option<String> {
        let Cost::Fitted(fitted) = &self.cost else {
            return None;
        };
        let early = fitted
            .points
            .iter()
            .filter(|point| self.full_first(point.size_bytes) == FirstFull::Other);
        let sizes = early.map(|point| {
            format!(
                "{:.0}/s of {}",
                point.throughput.get(),
                size_text(point.size_bytes.round() as u64)
            )
        });
        let sizes: Vec<String> = sizes.collect();
        (!sizes.is_empty()).then(|| {
            format!(
                "{} was measured to serve at most {}, with neither its cores nor its link known to be full: threads, locks or a generator on the same \
                 machine bound it",
                self.machine.name,
                sizes.join(", ")
            )
        })
    }

    /// At which sizes the line that a law is given is off what a plan reckons with by more than a tenth.
    pub fn off_the_line(&self) -> Option<String> {
        let line = self.figures().service();
        let sizes: Vec<f64> = match &self.cost {
            Cost::Fitted(fitted) => fitted.points.iter().map(|point| point.size_bytes).collect(),
            Cost::Studied(_) => STUDIED_KB.map(|kb| kb * 1024.0).to_vec(),
        };
        let percent = |plan: f64, law: f64| match plan > 0.0 {
            true => (law / plan - 1.0) * 100.0,
            false => 0.0,
        };
        let off = sizes.into_iter().filter_map(|size| {
            let (plan, law) = (self.cost_of(size), line.of(size));
            let cores = percent(plan.cpu.get(), law.cpu.get());
            let link = percent(plan.bytes, law.bytes);
            (cores.abs().max(link.abs()) > OFF_PERCENT).then(|| {
                format!(
                    "{} ({cores:+.0} % of the cores' time, {link:+.0} % of the link's)",
                    size_text(size.round() as u64)
                )
            })
        });
        let off: Vec<String> = off.collect();
        (!off.is_empty()).then(|| {
            format!(
                "the figures of {} are one line over all sizes, and off what a plan reckons with at {}",
                self.machine.name,
                off.join(", ")
            )
        })
    }

    /// The same as a law is given it: one line over all sizes.
    pub fn figures(&self) -> KindFigures {
        let line: &ServiceCost = match &self.cost {
            Cost::Fitted(fitted) => &fitted.service,
            Cost::Studied(cost) => &cost.base,
        };
        KindFigures::of(&self.machine, line)
    }
}

/// `xeon=4`: a kind and how many there are.
///
/// # Errors
/// What it must be, for clap to say.
pub fn counted(text: &str) -> Result<(String, u32), String> {
    let wrong = || format!("{text:?}: give a kind and how many there are, as xeon=4");
    let (name, count) = text.split_once('=').ok_or_else(wrong)?;
    let (name, count) = (name.trim(), count.trim().parse().map_err(|_| wrong())?);
    match count {
        0 => Err(format!("{text:?}: give one {name} or more, or leave {name} out")),
        _ => Ok((name.to_owned(), count)),
    }
}

/// `arm:boot_s=30,booting_w=7`: a kind and what switching it takes.
///
/// # Errors
/// What it must be, for clap to say.
pub fn server(text: &str) -> Result<(String, Vec<(String, f64)>), String> {
    let wrong = || {
        format!(
            "{text:?}: give a kind and figures of {}, as arm:boot_s=30,booting_w=7",
            SERVER_KEYS.join(", ")
        )
    };
    let (name, figures) = text.split_once(':').ok_or_else(wrong)?;
    let figures = figures.split(',').map(|figure| {
        let (key, value) = figure.split_once('=').ok_or_else(wrong)?;
        let key = key.trim();
        let value: f64 = value.trim().parse().map_err(|_| wrong())?;
        SERVER_KEYS
            .contains(&key)
            .then(|| (key.to_owned(), value))
            .ok_or_else(wrong)
    });
    Ok((name.trim().to_owned(), figures.collect::<Result<_, String>>()?))
}

const SERVER_KEYS: [&str; 5] = ["off_w", "booting_w", "boot_s", "shutting_down_w", "shutdown_s"];

/// The fleet that is asked for.
///
/// # Errors
/// A profile that cannot be read or fitted, a kind that is neither a profile's nor built in, watts of several sources.
pub fn fleet(
    counts: &[(String, u32)],
    profiles: &[PathBuf],
    service: StudiedService,
    servers: &[(String, Vec<(String, f64)>)],
) -> Result<Vec<FleetKind>, Failure> {
    let read = profiles
        .iter()
        .map(|file| Ok((file, Profile::read(file).map_err(Failure::usage)?)));
    let read = read.collect::<Result<Vec<_>, Failure>>()?;
    let mut kinds: Vec<FleetKind> = Vec::new();
    for (name, count) in counts {
        if kinds.iter().any(|kind| kind.machine.name == *name) {
            return Err(Failure::usage(anyhow!(
                "--fleet names {name} twice: give each kind once, as {name}={count}"
            )));
        }
        let mut of_name = read.iter().filter(|(_, profile)| profile.name == *name);
        let mut kind = match (of_name.next(), of_name.next()) {
            (Some((file, _)), Some((other, _))) => {
                return Err(Failure::usage(anyhow!(
                    "{} and {} are both profiles of {name}: name one of them",
                    file.display(),
                    other.display()
                )));
            }
            (Some((file, profile)), None) => {
                profiled(profile).map_err(|error| Failure::usage(error.context(format!("{}", file.display()))))?
            }
            (None, _) => built_in(name, service).ok_or_else(|| {
                let known = read.iter().map(|(_, profile)| profile.name.as_str());
                let known: Vec<&str> = known.chain(ServingKind::ALL.map(ServingKind::name)).collect();
                Failure::usage(anyhow!("--fleet {name}: no profile is of such a machine and none is built in: choose of {}, or name its \
                                        profile (--profile)", known.join(", ")))
            })?,
        };
        kind.count = *count;
        kinds.push(kind);
    }
    if let Some((file, unused)) = read
        .iter()
        .find(|(_, profile)| kinds.iter().all(|kind| kind.machine.name != profile.name))
    {
        return Err(Failure::usage(anyhow!(
            "{} is of {}, of which --fleet has none: say how many there are (--fleet {}=N), or leave the profile out",
            file.display(),
            unused.name,
            unused.name
        )));
    }
    for (name, figures) in servers {
        let kind = kinds.iter_mut().find(|kind| kind.machine.name == *name);
        let kind =
            kind.ok_or_else(|| Failure::usage(anyhow!("--server {name}: --fleet has no such kind")))?;
        for (key, value) in figures {
            let server = &mut kind.machine.server;
            match key.as_str() {
                "off_w" => server.off = Watts::new(*value),
                "booting_w" => server.booting = Watts::new(*value),
                "boot_s" => server.boot = Seconds::new(*value),
                "shutting_down_w" => server.shutting_down = Watts::new(*value),
                _ => server.shutdown = Seconds::new(*value),
            }
        }
        let is_right = kind.machine.check();
        is_right.map_err(|error| Failure::usage(anyhow!("--server {name}: {error}")))?;
    }
    if let [first, ..] = &*kinds
        && let Some(other) = kinds.iter().find(|kind| kind.protocol != first.protocol)
    {
        let [one, two] = [first, other].map(|kind| format!("{} serves {}", kind.machine.name, kind.protocol));
        return Err(Failure::usage(anyhow!(
            "{one} and {two}: a demand is of one of them, and requests of one are not costed by what those of the other take. Plan each \
             protocol by itself (of built-in machines --service says which)"
        )));
    }
    if let [first, ..] = &*kinds
        && let Some(other) = kinds.iter().find(|kind| kind.source != first.source)
    {
        return Err(Failure::usage(anyhow!(
            "the watts of {} are {}, those of {} are {}: they are not compared. Profile both by the same kind of meter",
            first.machine.name,
            first.source,
            other.machine.name,
            other.source
        )));
    }
    Ok(kinds)
}

/// A machine of the paper.
fn built_in(name: &str, service: StudiedService) -> Option<FleetKind> {
    let kind = ServingKind::ALL.into_iter().find(|kind| kind.name() == name)?;
    Some(FleetKind {
        machine: kind.machine(),
        count: 0,
        source: Source::Estimated,
        protocol: match service {
            StudiedService::Apache => Protocol::Http,
            StudiedService::Memcached => Protocol::Memcached,
        },
        notes: vec![format!(
            "{name}: a model of the paper's machine under {}; what switching takes is not in the paper (--server sets it)",
            service.name()
        )],
        cost: Cost::Studied(kind.cost(service)),
    })
}

/// A machine as it was profiled.
fn profiled(profile: &Profile) -> Result<FleetKind, anyhow::Error> {
    let name = &profile.name;
    let meter = profile.meter.as_ref();
    let meter = meter.ok_or_else(|| {
        anyhow!("has no watts: profile {name} where a meter answers, or give its [machine]")
    })?;
    let mut unread = 0;
    // What else runs on the machine is no work of the requests.
    let idle = profile.baseline(BaselineKind::Idle);
    let others = idle.and_then(|idle| idle.busy_cores).unwrap_or(0.0);
    let passes = idle.and_then(|idle| idle.link_bytes_per_s).unwrap_or(0.0);
    if let Some(busy) = profile.others_at_work() {
        anyhow::bail!(
            "other programs kept {busy:.2} of {} cores busy while the machine was to be idle, so that its service's use and watts are not known: \
             measure {name} again on a quiet machine (`headroom profile` with --fresh)",
            profile.machine.cores
        );
    }
    // A real meter counts what a generator on the same machine draws; a model does not.
    let has_generator = profile.client_is_local && meter.source == Source::Measured;
    let generator = |cell: &headroom_record::profile::Cell| match has_generator {
        true => cell.client_cores().map(|cores| Cores::new(cores.mean)),
        false => Some(Cores::ZERO),
    };
    if has_generator {
        let answered = |cell: &&headroom_record::profile::Cell| {
            cell.requests_per_s().is_some_and(|rate| rate.mean > 0.0)
        };
        let mut answered = profile.cells.iter().filter(answered);
        anyhow::ensure!(
            answered.all(|cell| generator(cell).is_some_and(|cores| cores > Cores::ZERO)),
            "its watts are a real meter's and have in them what the generator drew, which ran on the same machine, and it does not say how many \
             cores that used: measure {name} from another machine (--agent)"
        );
    }
    let cells = profile.cells.iter().filter_map(|cell| {
        let read = || {
            Some(Cell {
                size_bytes: cell.size_bytes as f64,
                density: Ratio::new(cell.sending_share()?.clamp(0.01, 1.0)),
                throughput: PerSecond::new(cell.requests_per_s()?.mean),
                busy_cores: Cores::new((cell.busy_cores()?.mean - others).max(0.0)),
                generator_cores: generator(cell)?,
                link_bytes_per_s: (cell.link_bytes_per_s()?.mean - passes).max(0.0),
                power: Watts::new(cell.power_w()?.mean),
                // In whose pauses something else was at work: what it used is not known.
                marked: !cell.is_true() || !cell.is_known() || profile.is_disturbed(cell),
            })
        };
        let read = read();
        unread += usize::from(read.is_none());
        read
    });
    let cells: Vec<Cell> = cells.collect();
    let power = |kind| {
        profile
            .baseline(kind)
            .and_then(|baseline| baseline.power_w)
            .map(Watts::new)
    };
    // What the generator took to read that stream is in its watts too, and in no figure.
    let network = profile.baseline(BaselineKind::Network).filter(|_| !has_generator);
    let network = network.and_then(|baseline| {
        Some(NetworkBaseline {
            power: Watts::new(baseline.power_w?),
            link_bytes_per_s: baseline.link_bytes_per_s?,
            busy_cores: Cores::new(baseline.busy_cores?),
        })
    });
    let baselines = Baselines {
        idle: power(BaselineKind::Idle),
        // An endless loop draws other watts than a service with all cores busy; its cells say those.
        busy: None,
        network,
    };
    let machine = MachineDescription {
        name: name.clone(),
        cores: profile.machine.cores as usize,
        link_bytes_per_s: profile.link_limit_bytes_per_s(),
    };
    let fitted = fit(&machine, &cells, &baselines)?;
    let mut notes = compare::warnings(profile);
    notes.push(format!(
        "{name}: fitted to {} cells, watts to within {:.1} %, a law's line of processor time to within {:.1} %",
        fitted.used,
        fitted.largest_power_error.as_percent(),
        fitted.largest_service_error.as_percent()
    ));
    if has_generator {
        let sum = |of: fn(&Cell) -> Cores| cells.iter().map(|cell| of(cell).get()).sum::<f64>();
        let (generator, service) = (sum(|cell| cell.generator_cores), sum(|cell| cell.busy_cores));
        notes.push(format!(
            "{name}: its watts are a real meter's, and the generator ran on the same machine: what it drew is taken off by its cores ({:.0} % of those \
             that were busy), as if each drew what the service's do; measure from another machine (--agent) to be sure",
            generator / (generator + service) * 100.0
        ));
    }
    if fitted.left_out + unread > 0 {
        notes.push(format!(
            "{name}: {} cells are left out: marked, or without watts, cores or link",
            fitted.left_out + unread
        ));
    }
    notes.extend(
        fitted
            .unidentified
            .iter()
            .map(|what| format!("{name}: not determined is {what}")),
    );
    if fitted.machine.busy + fitted.machine.link <= Watts::ZERO {
        notes.push(format!(
            "{name}: its watts do not rise with its work, as where other programs kept it busy while it was profiled: profile it when it is quiet"
        ));
    }
    notes.push(format!("{name}: what switching takes is not in a profile, and taken as of a server of 100 W unless --server says it"));
    Ok(FleetKind {
        machine: fitted.machine.clone(),
        count: 0,
        source: meter.source,
        protocol: profile.service.protocol,
        notes,
        cost: Cost::Fitted(Box::new(fitted)),
    })
}
