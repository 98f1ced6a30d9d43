//! RAPL power limits by powercap: `long_term` and `short_term` of every package, found by their names.
//!
//! What the interface is like decides how it is used: a value is cut to the hardware's unit and 15 bits, not refused, so
//! it is bounded first and read back with a tolerance; `enabled` is the enable bit of `long_term` alone, so it is set
//! with it; a limit that the firmware locked answers ENODATA (the driver's EACCES, translated), and ENOSYS on enabling.
//! Time windows are left as they are. Limits of the memory-mapped interface hold beside these, the stricter of both.

use super::split::{Share, bounds, comparable, split};
use super::{CapBounds, CapInForce, HardwareCap, LeverKind, PowerLimitError, ZoneLimit, check};
use crate::Roots;
use crate::file::{self, FileError};
use crate::panel::{Change, Definition, ForeignWrite, Panel, PanelError, first_number, in_order};
use crate::powercap::{self, ZoneKind};
use crate::restore::{Outcome, Registry};
use headroom_units::{Seconds, Watts};
use rustix::io::Errno;
use std::path::{Path, PathBuf};

/// The unit of a limit is at most this on every processor with RAPL (an eighth of a watt on servers), microwatts.
const TOLERANCE_UW: u64 = 1_000_000;
/// The most that 15 bits of eighths of a watt can hold.
const MAX_UW: u64 = 32_767 * 125_000;
/// A limit that bursts are held to settles at once; the other one over its window.
const QUICK_S: f64 = 2.0;
/// Where a limit names no window: Intel's default for `long_term`.
const USUAL_WINDOW_S: f64 = 28.0;

/// Sets the limits of all packages.
#[derive(Debug)]
pub struct RaplLimits {
    panel: Panel,
    zones: Vec<Zone>,
    settles: Seconds,
    /// The memory-mapped interface's limits on the same packages.
    duplicates: Vec<(String, PathBuf)>,
}

#[derive(Debug)]
struct Zone {
    name: String,
    share: Share,
    /// The hardware's maximum.
    max: Option<Watts>,
    /// Whether the panel's files end with `enabled`.
    switched: bool,
}

impl RaplLimits {
    /// Reads what is in force and checks that it may be changed. Writes nothing: that a limit is locked shows when it is
    /// first set.
    ///
    /// # Errors
    /// [`PowerLimitError::NoLimits`]: no package, or one without limits (AMD). [`PowerLimitError::File`]: the files may
    /// not be written.
    pub fn open(roots: &Roots, registry: &Registry) -> Result<Self, PowerLimitError> {
        let found = powercap::zones(roots);
        let packages: Vec<&powercap::Zone> = found
            .iter()
            .filter(|zone| zone.kind == ZoneKind::Package)
            .collect();
        if packages.is_empty() {
            let why = powercap::why_none(roots, &found).0.to_owned();
            return Err(PowerLimitError::NoLimits { why });
        }
        let mut zones = Vec::new();
        let mut definitions = Vec::new();
        let mut settles = Seconds::new(QUICK_S);
        let mut duplicates = Vec::new();
        for package in packages {
            let constraints = powercap::constraints(&package.dir);
            let named = |name: &str| constraints.iter().find(|limit| limit.name == name);
            let long = named("long_term").ok_or_else(|| PowerLimitError::NoLimits {
                why: format!(
                    "{} counts energy only, as on AMD processors, whose limits HSMP sets",
                    package.name
                ),
            })?;
            let short = named("short_term");
            let mut paths = vec![long.limit.clone()];
            paths.extend(short.map(|short| short.limit.clone()));
            let enabled = package.dir.join("enabled");
            let switched = file::read_if_there(&enabled)?.is_some();
            if switched {
                paths.push(enabled);
            }
            if short.is_none() {
                let window = long.window.unwrap_or(Seconds::new(USUAL_WINDOW_S));
                settles = settles.max(window * 3.0);
            }
            definitions.push(Definition {
                what: format!("the power limit of {} ({})", package.name, package.dir.display()),
                paths,
                // The limits, then the switch: a limit is in force with its value from the first moment.
                sequence: in_order,
                tolerance: TOLERANCE_UW,
                joint: false,
                room: first_number,
            });
            zones.push(Zone {
                name: package.name.clone(),
                share: Share::of(&package.name, long.watts, long.min, long.max)?,
                max: long.max,
                switched,
            });
            duplicates.extend(
                package
                    .duplicates
                    .iter()
                    .map(|dir| (package.name.clone(), dir.clone())),
            );
        }
        comparable(zones.iter_mut().map(|zone| &mut zone.share));
        let panel = Panel::open(registry, "the power limits of the packages".into(), definitions)?;
        Ok(Self {
            panel,
            zones,
            settles,
            duplicates,
        })
    }

    /// The limits of the memory-mapped interface that are stricter than a limit set here: whatever is set, the package
    /// does not exceed them.
    pub fn stricter_elsewhere(&self) -> Vec<ZoneLimit> {
        let mut all = Vec::new();
        for (zone, dir) in &self.duplicates {
            let Some(at) = self.zones.iter().position(|known| known.name == *zone) else {
                continue;
            };
            let ours = limit_of(&self.panel.last(at)[0]);
            for constraint in powercap::constraints(dir) {
                if let Some(watts) = constraint
                    .watts
                    .filter(|watts| *watts < ours && watts.get() > 0.0)
                {
                    all.push(ZoneLimit {
                        zone: format!("{zone} ({} {})", dir.display(), constraint.name),
                        limit: watts,
                    });
                }
            }
        }
        all
    }

    /// The change of a package to a limit. A burst is held to it as well, where there is a limit on bursts: a cap that
    /// the package may exceed for half a minute is none for a controller that acts every second.
    fn change(&self, at: usize, limit: Watts) -> Change {
        let value = microwatts(limit);
        let found = self.panel.found(at);
        let mut values = found.to_vec();
        values[0] = value.to_string();
        let switch = usize::from(self.zones[at].switched);
        if found.len() - switch > 1 {
            let before: u64 = found[1].parse().unwrap_or(u64::MAX);
            values[1] = before.min(value).max(1).to_string();
        }
        if let Some(last) = values.last_mut().filter(|_| switch > 0) {
            *last = "1".into();
        }
        self.panel.change(at, values)
    }

    fn in_force(&self, bounded: Option<CapBounds>, foreign: Vec<ForeignWrite>) -> CapInForce {
        let zones: Vec<ZoneLimit> = self
            .zones
            .iter()
            .enumerate()
            .map(|(at, zone)| ZoneLimit {
                zone: zone.name.clone(),
                limit: limit_of(&self.panel.last(at)[0]),
            })
            .collect();
        CapInForce {
            limit: zones.iter().map(|zone| zone.limit).sum(),
            held: (0..zones.len()).any(|at| self.panel.is_held(at)),
            zones,
            bounded,
            foreign,
        }
    }

    /// Carries changes out; where one fails, all go back to what was in force before.
    fn write(&mut self, changes: Vec<Change>) -> Result<(), PowerLimitError> {
        let changes: Vec<Change> = changes
            .into_iter()
            .filter(|change| change.values != self.panel.last(change.at) && !self.panel.is_held(change.at))
            .collect();
        if changes.is_empty() {
            return Ok(());
        }
        let before: Vec<Change> = changes
            .iter()
            .map(|change| self.panel.change(change.at, self.panel.last(change.at).to_vec()))
            .collect();
        let answers = self.panel.write(&changes)?;
        let failed = changes
            .iter()
            .zip(answers)
            .find_map(|(change, answer)| Some((change.at, answer.err()?)));
        let Some((at, error)) = failed else { return Ok(()) };
        let back: Vec<Change> = before
            .into_iter()
            .filter(|change| change.values != self.panel.last(change.at))
            .collect();
        for answer in self.panel.write(&back)? {
            if let Err(error) = answer {
                tracing::warn!("a power limit could not be taken back: {error}");
            }
        }
        Err(self.in_words(at, error))
    }

    fn in_words(&self, at: usize, error: PanelError) -> PowerLimitError {
        match error {
            PanelError::File(FileError { path, cause, .. }) if is_locked(&cause, &path) => {
                PowerLimitError::Locked {
                    zone: self.zones[at].name.clone(),
                    path,
                    cause,
                }
            }
            other => other.into(),
        }
    }
}

/// What the kernel answers for a limit that the firmware locked.
pub(crate) fn is_locked(cause: &std::io::Error, path: &Path) -> bool {
    let switch = path.file_name().is_some_and(|name| name == "enabled");
    match cause.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NODATA) => true,
        Some(Errno::NOSYS) => switch,
        _ => false,
    }
}

fn microwatts(limit: Watts) -> u64 {
    ((limit.get() * 1e6).round() as u64).min(MAX_UW)
}

fn limit_of(text: &str) -> Watts {
    powercap::watts(text.parse().unwrap_or(0))
}

impl HardwareCap for RaplLimits {
    fn kind(&self) -> LeverKind {
        LeverKind::Rapl
    }

    fn bounds(&self) -> CapBounds {
        let shares: Vec<Share> = self.zones.iter().map(|zone| zone.share).collect();
        bounds(&shares)
    }

    fn settles(&self) -> Seconds {
        self.settles
    }

    fn set(&mut self, cap: Option<Watts>) -> Result<CapInForce, PowerLimitError> {
        let cap = cap.map(check).transpose()?;
        let foreign = self.foreign_writes()?;
        let Some(cap) = cap else {
            let back = (0..self.zones.len())
                .map(|at| self.panel.change(at, self.panel.found(at).to_vec()))
                .collect();
            self.write(back)?;
            return Ok(self.in_force(None, foreign));
        };
        let shares: Vec<Share> = self.zones.iter().map(|zone| zone.share).collect();
        let parts = split(cap, &shares);
        let changes = parts
            .into_iter()
            .enumerate()
            .map(|(at, part)| self.change(at, part))
            .collect();
        self.write(changes)?;
        let bounds = bounds(&shares);
        let beyond = cap < bounds.smallest || cap > bounds.largest;
        Ok(self.in_force(beyond.then_some(bounds), foreign))
    }

    fn foreign_writes(&mut self) -> Result<Vec<ForeignWrite>, PowerLimitError> {
        let mut all = Vec::new();
        for at in 0..self.zones.len() {
            all.extend(self.panel.foreign_writes(at)?);
            let zone = &mut self.zones[at];
            let found = Some(limit_of(&self.panel.found(at)[0])).filter(|found| found.get() > 0.0);
            // What was found is somebody's decision, and after a pause it may be another.
            if let Some(largest) = found.map(|found| zone.max.map_or(found, |max| found.min(max))) {
                zone.share.largest = largest;
                zone.share.smallest = zone.share.smallest.min(largest);
            }
        }
        Ok(all)
    }

    fn restore(&mut self) -> Vec<Outcome> {
        self.panel.restore().into_iter().collect()
    }
}
