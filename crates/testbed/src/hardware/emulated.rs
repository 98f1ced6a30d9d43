//! The emulated machine as a running thing: mounted, ticking, unmounted in the end.

use super::backing::{Backing, Paper};
use super::config::HardwareConfig;
use super::error::HardwareError;
use super::fault::{Command, Fault};
use super::fuse::Shell;
use super::real::RealGroups;
use super::record::Recovered;
use super::shared::Shared;
use super::tree::OWN_DIR;
use super::world::{Snapshot, World};
use fuser::{BackgroundSession, MountOption, SessionACL};
use headroom_units::{Cores, Seconds};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The share of the real cores that stands for the emulated ones, where the configuration does not say.
const REAL_SHARE: f64 = 0.6;
/// Dead mounts may lie on one another; so many are cleared.
const MAX_DEAD_MOUNTS: usize = 16;
/// How long the end of the FUSE session is waited for; an agent that keeps a file open can delay it for ever.
const MAX_WAIT: Duration = Duration::from_millis(500);

/// Where real control groups are made, so that limits and caps slow real processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RealOptions {
    /// The name of the group that holds the emulated ones, unique on the real machine.
    pub name: String,
    /// The real group it is made in, relative to the hierarchy: `/`, or a group given to us.
    pub parent: String,
    /// The undo record: a file that outlives the process.
    pub record: PathBuf,
}

/// A handle on the machine behind the tree: the truth, faults, and time where it is moved by hand. Clones are the same
/// machine.
#[derive(Clone)]
pub struct Control {
    shared: Arc<Shared>,
}

impl Control {
    /// What is true now.
    pub fn snapshot(&self) -> Snapshot {
        self.shared.world().snapshot()
    }

    /// Switches a fault on.
    ///
    /// # Errors
    /// [`HardwareError`]: it names something that this machine has not, or 64 are on already.
    pub fn inject(&self, fault: Fault) -> Result<(), HardwareError> {
        self.command(Command::Set(fault))
    }

    /// Switches a fault off; one that is not on need not be.
    ///
    /// # Errors
    /// As [`Control::inject`].
    pub fn clear(&self, fault: Fault) -> Result<(), HardwareError> {
        self.command(Command::Clear(fault))
    }

    /// Switches all faults off.
    ///
    /// # Errors
    /// As [`Control::inject`].
    pub fn clear_all(&self) -> Result<(), HardwareError> {
        self.command(Command::ClearAll)
    }

    /// Does what a line of the control file says.
    ///
    /// # Errors
    /// [`HardwareError`]: it names something that this machine has not, or 64 faults are on already.
    pub fn command(&self, command: Command) -> Result<(), HardwareError> {
        self.shared.world().command(command)?;
        self.shared.wake();
        Ok(())
    }

    /// Puts the energy counter of a zone so many microjoules before its range, so that it wraps soon.
    ///
    /// # Errors
    /// [`HardwareError::NoSuch`]: no such zone.
    pub fn wrap_soon(&self, zone: &str, microjoules: u64) -> Result<(), HardwareError> {
        let range = {
            let world = self.shared.world();
            let zone = world.machine.zones.iter().find(|known| known.id == zone);
            zone.map_or(0, super::rapl::Zone::max_energy_range_uj)
        };
        self.command(Command::Counter {
            zone: zone.into(),
            microjoules: range.saturating_sub(microjoules),
        })
    }

    /// Makes a control group busy on so many emulated cores, as far as it may, without a real process.
    ///
    /// # Errors
    /// [`HardwareError::NoSuch`]: no such group.
    pub fn set_load(&self, group: &str, cores: Cores) -> Result<(), HardwareError> {
        self.command(Command::Load {
            group: group.into(),
            cores: cores.get(),
        })
    }

    /// Lets time pass, for a machine whose configuration says tick = 0.
    pub fn advance(&self, length: Seconds) {
        self.shared.world().tick(length);
    }
}

/// A mounted emulated machine. Dropping it unmounts the tree and puts every real control group back. On SIGTERM, call
/// [`Emulated::unmount`].
pub struct Emulated {
    mountpoint: PathBuf,
    shared: Arc<Shared>,
    session: Option<BackgroundSession>,
    clock: Option<JoinHandle<()>>,
    /// Whether everything real was put back.
    ended: bool,
}

impl Emulated {
    /// Mounts a machine at a directory, which is made where it is missing. A mount that a killed emulator left there is
    /// detached first. With `real`, control groups of the machine are real ones and its limits slow real processes; what a
    /// killed emulator with the same record left is put back first, and groups in which processes still live are taken
    /// over, without a limit.
    ///
    /// # Errors
    /// [`HardwareError`]: the configuration is no machine, the directory is in use or cannot be used, the kernel refuses
    /// the mount, or real control groups cannot be made.
    pub fn mount(
        config: HardwareConfig,
        real: Option<&RealOptions>,
        mountpoint: &Path,
    ) -> Result<Self, HardwareError> {
        config.validate()?;
        prepare(mountpoint)?;
        let real_cores = config.real_cores.unwrap_or_else(default_real_cores).get();
        let tick = config.tick.to_duration();
        let mut adopted = Vec::new();
        let backing: Box<dyn Backing> = match real {
            None => Box::new(Paper::default()),
            Some(options) => {
                let groups = RealGroups::open(&options.parent, &options.name, &options.record)?;
                adopted = groups.names();
                Box::new(groups)
            }
        };
        let mut world = World::new(config, backing, real_cores);
        for name in adopted {
            // A name or depth that the emulated kernel would not have made stays a real group without a limit.
            if let Err(error) = world.adopt(&name) {
                tracing::warn!(%name, %error, "a group of the last emulator is not taken over");
            }
        }
        // From here on, dropping undoes what was done so far.
        let mut emulated = Self {
            mountpoint: mountpoint.to_path_buf(),
            shared: Arc::new(Shared::new(world)),
            session: None,
            clock: None,
            ended: false,
        };
        let mut options = fuser::Config::default();
        options.mount_options = vec![
            MountOption::FSName("headroom-testbed".into()),
            MountOption::Subtype("headroom".into()),
            MountOption::NoSuid,
            MountOption::NoDev,
            MountOption::NoExec,
        ];
        options.acl = SessionACL::All;
        let session = fuser::spawn_mount(Shell::new(emulated.shared.clone()), mountpoint, &options).map_err(
            |cause| HardwareError::Io {
                action: "mount the emulated hardware at",
                path: mountpoint.to_path_buf(),
                cause,
                remedy: "it needs /dev/fuse (modprobe fuse; in a container --device /dev/fuse --cap-add SYS_ADMIN) and \
                         root, or for another user fusermount3 (apt install fuse3) with user_allow_other in \
                         /etc/fuse.conf",
            },
        )?;
        emulated.session = Some(session);
        if !tick.is_zero() {
            let shared = emulated.shared.clone();
            let clock = std::thread::Builder::new()
                .name("emulated-clock".into())
                .spawn(move || shared.run(tick))
                .map_err(HardwareError::Thread)?;
            emulated.clock = Some(clock);
        }
        Ok(emulated)
    }

    /// What to give an agent in the place of `/sys`.
    pub fn root(&self) -> &Path {
        &self.mountpoint
    }

    /// What to give an agent in the place of `/proc`: mountinfo and the control groups of processes.
    pub fn proc_root(&self) -> PathBuf {
        self.mountpoint.join(OWN_DIR).join("proc")
    }

    /// The machine behind the tree.
    pub fn machine(&self) -> Control {
        Control {
            shared: self.shared.clone(),
        }
    }

    /// Whether the tree is served still: not after somebody unmounted it.
    pub fn is_served(&self) -> bool {
        self.session
            .as_ref()
            .is_some_and(|session| !session.guard.is_finished())
    }

    /// Unmounts the tree and puts every real control group back, saying what was done.
    ///
    /// # Errors
    /// [`HardwareError`]: the kernel refuses; the undo record then stays for [`super::recover`].
    pub fn unmount(mut self) -> Result<Recovered, HardwareError> {
        self.end()
    }

    /// Real limits first: a service must not stay slow because an agent keeps a file open.
    fn end(&mut self) -> Result<Recovered, HardwareError> {
        self.shared.stop();
        if let Some(clock) = self.clock.take() {
            // A clock that panicked has stopped as well.
            let _ = clock.join();
        }
        let recovered = match std::mem::replace(&mut self.ended, true) {
            true => Ok(Recovered::default()),
            false => self.shared.world().backing.close(),
        };
        if let Some(session) = self.session.take() {
            let unmounted = rustix::mount::unmount(&self.mountpoint, UnmountFlags::DETACH);
            let deadline = Instant::now() + MAX_WAIT;
            while !session.guard.is_finished() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(2));
            }
            if session.guard.is_finished() {
                // It has nothing to say but that the mount is gone.
                let _ = session.join();
            } else {
                // Somebody holds a file open. They are answered ENODEV from now on, until they close it.
                std::mem::forget(session);
            }
            match unmounted {
                // Not mounted any more: somebody was faster.
                Ok(()) | Err(Errno::INVAL | Errno::NOENT) => {}
                Err(errno) => {
                    return Err(HardwareError::Io {
                        action: "unmount",
                        path: self.mountpoint.clone(),
                        cause: errno.into(),
                        remedy: "try umount -l on it",
                    });
                }
            }
        }
        recovered
    }
}

impl Drop for Emulated {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            tracing::error!(%error, "the emulated hardware could not be taken away cleanly");
        }
    }
}

/// 60 % of the CPUs that this process may use.
fn default_real_cores() -> Cores {
    let cpus = std::thread::available_parallelism().map_or(1.0, |cpus| cpus.get() as f64);
    Cores::new(cpus * REAL_SHARE)
}

/// Whether a mount there is one whose server died.
fn is_dead(mountpoint: &Path) -> bool {
    matches!(fs::metadata(mountpoint), Err(error) if Errno::from_io_error(&error) == Some(Errno::NOTCONN))
}

/// Takes away the mount of an emulator that was killed, so that its directory is an empty one again; whether there was
/// one. A mount whose emulator runs is left alone.
///
/// # Errors
/// [`HardwareError::Io`]: the kernel refuses.
pub fn detach_dead(mountpoint: &Path) -> Result<bool, HardwareError> {
    let mut was_dead = false;
    for _ in 0..MAX_DEAD_MOUNTS {
        if !is_dead(mountpoint) {
            break;
        }
        match rustix::mount::unmount(mountpoint, UnmountFlags::DETACH) {
            Ok(()) => was_dead = true,
            // Not mounted any more: somebody was faster.
            Err(Errno::INVAL | Errno::NOENT) => {}
            Err(errno) => {
                return Err(bad_mount_point(mountpoint, errno.into()));
            }
        }
    }
    Ok(was_dead)
}

/// Makes a directory ready to be mounted on.
fn prepare(mountpoint: &Path) -> Result<(), HardwareError> {
    let fail = |cause| bad_mount_point(mountpoint, cause);
    detach_dead(mountpoint)?;
    fs::create_dir_all(mountpoint).map_err(fail)?;
    if mountpoint.join(OWN_DIR).join("emulated").exists() {
        return Err(HardwareError::AlreadyMounted {
            path: mountpoint.to_path_buf(),
        });
    }
    match fs::read_dir(mountpoint).map_err(fail)?.next() {
        None => Ok(()),
        Some(_) => Err(fail(Errno::NOTEMPTY.into())),
    }
}

fn bad_mount_point(path: &Path, cause: io::Error) -> HardwareError {
    HardwareError::Io {
        action: "use as mount point",
        path: path.to_path_buf(),
        cause,
        remedy: "give an empty directory that you may write",
    }
}
