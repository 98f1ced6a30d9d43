//! A server on call that another program started (`headroom wrap --steered`), as a part of this run: attached to when it is there, let go
//! when it is not, and attached to again when it is started again.
//!
//! While it is away its telemetry is lost, which is the guardian's matter, and none of its levers is in force. The device looks for it at
//! the end of each period, so that whatever is said of it is of whole periods.

use super::class::Class;
use super::connections::Connections;
use super::costs::{ProgramCounts, ServerCosts, processors};
use super::device::{OncallDevice, OncallOptions};
use super::telemetry::OncallTelemetry;
use super::wrapped::{Wrapped, WrappedAt, WrappedError};
use crate::live::{Device, DevicePeriod, Telemetry, TrafficPeriod};
use headroom_control::Decision;
use headroom_node::Roots;
use headroom_node::cpu::CpuList;
use headroom_oncall::{AttachError, Steering};
use headroom_units::{Part, Role, Seconds, Setting};
use std::cell::{RefCell, RefMut};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// For how long a commander that was killed a moment ago may be seen: a child of it between fork and exec has its lock too.
const PATIENCE: Duration = Duration::from_millis(500);

/// What stays the same of a server whatever process it is.
#[derive(Clone, Debug)]
pub struct AttachOptions {
    /// How long a worker with queries left in the round waits for its client's next one.
    pub linger: Duration,
    /// For how long what is commanded holds where it is not renewed.
    pub lease: Duration,
    /// Its classes of connections.
    pub classes: Vec<Class>,
    /// Whether a policy asks for each connection, also where there are no classes.
    pub each: bool,
    /// The CPUs that its control group may use.
    pub cpus: CpuList,
    /// From so long on an idle period saves energy.
    pub break_even: Seconds,
    /// Who tells of its connections.
    pub connections: Arc<Connections>,
}

/// Why a server is not attached to.
#[derive(Debug, thiserror::Error)]
pub enum AttachFailure {
    /// It is not found.
    #[error(transparent)]
    Wrapped(#[from] WrappedError),
    /// Its region is refused.
    #[error(transparent)]
    Region(#[from] AttachError),
    /// It ends just now.
    #[error("the wrapped server {name} (pid {pid}) is ending: {source:#}")]
    Ending {
        /// Its name.
        name: String,
        /// Its process.
        pid: u32,
        /// What of it is gone.
        source: anyhow::Error,
    },
}

impl AttachFailure {
    /// Whether it passes with the start of a server: else somebody has to mend something.
    pub const fn is_absence(&self) -> bool {
        matches!(
            self,
            Self::Wrapped(WrappedError::Nobody { .. } | WrappedError::Dead { .. }) | Self::Ending { .. }
        )
    }
}

/// A server that is there.
pub(super) struct Held {
    pub(super) wrapped: Wrapped,
    pub(super) device: OncallDevice,
    pub(super) telemetry: OncallTelemetry,
}

/// A server that comes and goes.
pub(super) struct Link {
    at: WrappedAt,
    options: AttachOptions,
    /// As it was found last.
    pub(super) held: Option<Held>,
    /// Why it is not there, as it was said last.
    pub(super) away: Option<String>,
}

/// A wrapped server that this program commands while it is there; its device and its telemetry share it.
#[derive(Clone)]
pub struct Attachment(Rc<RefCell<Link>>);

impl std::fmt::Debug for Attachment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Attachment").field(&self.link().at).finish()
    }
}

impl Attachment {
    /// Attaches to the server at this place, or waits for it where nobody is there yet; with what cannot be had of it, in words.
    ///
    /// # Errors
    /// What no start of the server mends: it is another user's, of another version, or commanded by somebody else.
    pub fn open(at: WrappedAt, options: AttachOptions) -> Result<(Self, Vec<String>), AttachFailure> {
        let (link, notes) = Link::open(at, options)?;
        Ok((Self(Rc::new(RefCell::new(link))), notes))
    }

    /// Its connections, one by one, for the admin port.
    pub fn connections(&self) -> Arc<Connections> {
        Arc::clone(&self.link().options.connections)
    }

    /// Its levers, and what is seen of it.
    pub fn device(&self) -> AttachedDevice {
        AttachedDevice(self.clone())
    }

    /// Its queries.
    pub fn telemetry(&self) -> AttachedTelemetry {
        AttachedTelemetry(self.clone())
    }

    /// All that share it are called by one control loop, one after another.
    fn link(&self) -> RefMut<'_, Link> {
        self.0.borrow_mut()
    }
}

fn said_of(wrapped: &Wrapped) -> String {
    format!(
        "the workers of {} (pid {}, {}) are on call by this run",
        wrapped.name,
        wrapped.server,
        wrapped.program.display()
    )
}

/// Attaches to whoever is there.
fn held(at: &WrappedAt, options: &AttachOptions) -> Result<(Held, Vec<String>), AttachFailure> {
    let wrapped = at.find()?;
    let steering = Arc::new(Steering::attach(&wrapped.region)?);
    // Its process is this kernel's, whatever tree a run's limits are in.
    let roots = Roots::default();
    let ending = |source: anyhow::Error| AttachFailure::Ending {
        name: wrapped.name.clone(),
        pid: wrapped.server,
        source,
    };
    let counts = ProgramCounts::of(&roots, wrapped.server).map_err(|error| ending(error.into()))?;
    let cpus = processors(&roots, wrapped.server)
        .map_err(ending)?
        .intersection(&options.cpus);
    let (costs, mut notes) = ServerCosts::open(&roots, counts, &cpus, options.break_even);
    notes.push(format!(
        "instructions of {} are not counted: it was started by another program",
        wrapped.name
    ));
    let of_device = OncallOptions {
        name: wrapped.name.clone(),
        linger: options.linger,
        lease: options.lease,
        cores: Some(cpus.len() as u64),
        cpus: cpus.iter().collect(),
        classes: options.classes.clone().into(),
        each: options.each,
    };
    options.connections.follow(&steering);
    let held = Held {
        device: OncallDevice::new(Arc::clone(&steering), of_device, Box::new(costs)),
        telemetry: OncallTelemetry::new(steering),
        wrapped,
    };
    Ok((held, notes))
}

impl Link {
    /// As [`Attachment::open`].
    pub(super) fn open(at: WrappedAt, options: AttachOptions) -> Result<(Self, Vec<String>), AttachFailure> {
        let until = Instant::now() + PATIENCE;
        let attached = loop {
            match held(&at, &options) {
                Err(AttachFailure::Region(AttachError::Commanded { .. })) if Instant::now() < until => {
                    std::thread::sleep(PATIENCE / 50);
                }
                attached => break attached,
            }
        };
        let (held, away, notes) = match attached {
            Ok((held, mut notes)) => {
                notes.insert(0, said_of(&held.wrapped));
                (Some(held), None, notes)
            }
            Err(error) if error.is_absence() => {
                let why = error.to_string();
                let note =
                    format!("warning: no server on call yet, and everything is on until it is there: {why}");
                (None, Some(why), vec![note])
            }
            Err(error) => return Err(error),
        };
        let link = Self {
            at,
            options,
            held,
            away,
        };
        Ok((link, notes))
    }

    /// The server, if it is still who it was. One that is gone, or on its way, is let go.
    pub(super) fn held(&mut self) -> Option<&mut Held> {
        let now = self.at.find();
        let is_same = |held: &Held| now.as_ref().is_ok_and(|now| *now == held.wrapped);
        if let Some(gone) = self.held.take_if(|held| !is_same(held)) {
            let why = match now {
                Err(error) => error.to_string(),
                Ok(other) => format!("it was started again, as pid {}", other.server),
            };
            tracing::warn!(server = gone.wrapped.name, "the server on call is gone: {why}");
            self.away = Some(why);
        }
        self.held.as_mut()
    }

    /// Attaches to it where it is there again.
    pub(super) fn seek(&mut self) {
        match held(&self.at, &self.options) {
            Ok((held, _)) => {
                tracing::warn!("{}", said_of(&held.wrapped));
                (self.held, self.away) = (Some(held), None);
            }
            Err(error) => {
                let why = error.to_string();
                if self.away.as_ref() != Some(&why) {
                    tracing::warn!("the server on call is not attached to: {why}");
                    self.away = Some(why);
                }
            }
        }
    }

    /// What it is called, there or not.
    pub(super) fn name(&self) -> String {
        let file = self.at.path().file_stem().unwrap_or_default();
        file.to_string_lossy().into_owned()
    }

    /// What is said of it while it is away.
    fn part(&self) -> Part {
        let mut part = Part::new(self.name(), Role::Node).in_state("away");
        part.trouble.extend(self.away.clone());
        part
    }
}

/// The device of an [`Attachment`].
#[derive(Debug)]
pub struct AttachedDevice(Attachment);

impl Device for AttachedDevice {
    fn observe(&mut self, period: &mut DevicePeriod) {
        let mut link = self.0.link();
        match link.held() {
            Some(held) => held.device.observe(period),
            None => {
                period.add(link.part());
                link.seek();
            }
        }
    }

    fn in_force(&self) -> Setting {
        let link = self.0.link();
        link.held
            .as_ref()
            .map_or_else(Setting::default, |held| held.device.in_force())
    }

    fn apply(&mut self, decision: &mut Decision) -> anyhow::Result<()> {
        match &mut self.0.link().held {
            Some(held) => held.device.apply(decision),
            // It has no lever now: that is what is in force, and is seen by the law.
            None => Ok(()),
        }
    }
}

/// The telemetry of an [`Attachment`].
#[derive(Debug)]
pub struct AttachedTelemetry(Attachment);

impl Telemetry for AttachedTelemetry {
    fn take(&mut self, patience: Duration) -> Option<TrafficPeriod> {
        self.0.link().held()?.telemetry.take(patience)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Wrap, at, options};
    use super::*;
    use headroom_units::Lever;

    fn command(device: &mut AttachedDevice, workers: f64) {
        let setting = Setting::from([(Lever::Concurrency, workers)]);
        device.apply(&mut Decision::of(setting)).unwrap();
    }

    #[test]
    fn a_server_is_commanded_while_it_is_there_and_again_when_it_is_back() {
        let folder = tempfile::tempdir().unwrap();
        let (attachment, notes) = Attachment::open(at(folder.path()), options()).unwrap();
        assert!(notes[0].contains("no server on call yet"), "{notes:?}");
        let (mut device, mut telemetry) = (attachment.device(), attachment.telemetry());
        let mut period = |telemetry: &mut AttachedTelemetry, workers| {
            let is_seen = telemetry.take(Duration::ZERO).is_some();
            let mut seen = DevicePeriod::default();
            device.observe(&mut seen);
            let is_in_force = device.in_force();
            command(&mut device, workers);
            assert_eq!(seen.oncall.is_some(), is_seen, "of whole periods");
            assert!(is_seen || is_in_force.is_empty());
            (is_seen, seen.parts.remove(0))
        };
        let (is_seen, part) = period(&mut telemetry, 3.0);
        assert_eq!(
            (is_seen, part.state.as_deref(), part.name.as_str()),
            (false, Some("away"), "db")
        );
        assert!(part.trouble[0].contains("wrap --steered"), "{part:?}");
        let wrap = Wrap::start(folder.path(), 1);
        // In the first period it is found, and in the next it is seen.
        assert!(!period(&mut telemetry, 3.0).0);
        assert!(period(&mut telemetry, 4.0).0);
        assert_eq!(wrap.workers(), Some(4));
        let Wrap {
            offer,
            region,
            steering,
        } = wrap;
        // At its end the wrap takes the name away first: nobody commands the server while it shuts down.
        drop(offer);
        assert!(!period(&mut telemetry, 5.0).0);
        assert!(!steering.as_ref().unwrap().commanded().enabled);
        drop(steering);
        assert!(!region.exists());
        let again = Wrap::start(folder.path(), 2);
        assert!(!period(&mut telemetry, 6.0).0);
        assert!(period(&mut telemetry, 7.0).0);
        assert_eq!(again.workers(), Some(7));
        drop((device, telemetry, attachment));
        assert_eq!(again.workers(), None);
    }

    #[test]
    fn one_that_is_started_again_within_a_period_is_another() {
        let folder = tempfile::tempdir().unwrap();
        let mut wrap = Wrap::start(folder.path(), 1);
        let (attachment, _) = Attachment::open(at(folder.path()), options()).unwrap();
        let (mut device, mut telemetry) = (attachment.device(), attachment.telemetry());
        assert!(telemetry.take(Duration::ZERO).is_some());
        let region = folder.path().join("region-2");
        let other = Steering::create_for_others(&region).unwrap();
        wrap.offer
            .publish(&Wrapped {
                region,
                ..at(folder.path()).find().unwrap()
            })
            .unwrap();
        assert!(telemetry.take(Duration::ZERO).is_none());
        device.observe(&mut DevicePeriod::default());
        command(&mut device, 2.0);
        assert_eq!((other.commanded().concurrency, wrap.workers()), (2, None));
        assert!(telemetry.take(Duration::ZERO).is_some());
    }

    #[test]
    fn a_second_commander_is_refused_with_the_pid_of_the_first() {
        let folder = tempfile::tempdir().unwrap();
        let _wrap = Wrap::start(folder.path(), 1);
        let first = Attachment::open(at(folder.path()), options()).unwrap();
        let error = Attachment::open(at(folder.path()), options()).unwrap_err();
        let pid = format!("(pid {})", std::process::id());
        assert!(!error.is_absence() && error.to_string().contains(&pid), "{error}");
        drop(first);
        Attachment::open(at(folder.path()), options()).unwrap();
    }
}
