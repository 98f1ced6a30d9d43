//! The file of a profile: what it says of the machine, the service and the measurement; read, written, and gone on with.

use super::agreement::cell_name;
use super::cell::Cell;
use super::check::{check, plain};
use crate::provenance::Provenance;
use headroom_units::Source;
use serde::{Deserialize, Serialize};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::{fmt, fs};

/// Bytes of a file that are read at most.
const MAX_BYTES: u64 = 64 << 20;

/// Why a file is no profile, or cannot be kept.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// It cannot be read.
    #[error("{}: cannot be read: {source}. Name a file that `headroom profile` wrote", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// It is something else.
    #[error("{}: is no profile: {why}. Name a file that `headroom profile` wrote", file.display())]
    NoProfile {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Another version of the program wrote it.
    #[error(
        "{}: is a profile of another layout ({found}, and this program reads {own}): use the program that wrote it, or measure again",
        file.display()
    )]
    OtherVersion {
        /// The file.
        file: PathBuf,
        /// Its layout.
        found: String,
        /// The one that is read.
        own: &'static str,
    },
    /// Another measurement writes it.
    #[error(
        "{}: another `headroom profile` is writing it: wait until that ends, or give another file (--out)",
        file.display()
    )]
    Busy {
        /// The file.
        file: PathBuf,
    },
    /// It cannot be written.
    #[error("{}: cannot be written: {source}. Name another file (--out), or make room on its disk", file.display())]
    Write {
        /// The file.
        file: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

/// A profile.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// [`Profile::SCHEMA`].
    pub schema: String,
    /// What it is called in tables: the machine's name.
    pub name: String,
    /// The command, the program's version and commit, the host that measured, the date.
    pub provenance: Provenance,
    /// The machine that served.
    pub machine: MachineFacts,
    /// What it served with.
    pub service: ServiceFacts,
    /// Where the watts come from; `None` where there is no meter.
    #[serde(default)]
    pub meter: Option<Meter>,
    /// Whether the generator ran on the machine that it measured, and so had a part of its cores.
    pub client_is_local: bool,
    /// What was asked for.
    pub plan: Plan,
    /// What the machine draws without the service's work.
    #[serde(default)]
    pub baselines: Vec<Baseline>,
    /// Its cells, by size and density, as the plan has them.
    pub cells: Vec<Cell>,
    /// What a reader must know.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// The machine that served.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MachineFacts {
    /// The processors' model name; empty where it is not known.
    pub processor: String,
    /// Processors online.
    pub cores: u32,
    /// The kernel's release.
    pub kernel: String,
    /// Its link, by which requests came; `None` where it is not known.
    #[serde(default)]
    pub link: Option<Link>,
    /// The address of the agent that reported of it; `None` of the machine that measured.
    #[serde(default)]
    pub agent: Option<String>,
}

/// A network link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Link {
    /// The interface's name.
    pub name: String,
    /// Its nominal speed, bits a second; `None` where it has none, as the loopback.
    #[serde(default)]
    pub bits_per_s: Option<f64>,
}

/// A protocol that can be profiled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// HTTP/1.1.
    #[default]
    Http,
    /// memcached's.
    Memcached,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Http => "HTTP",
            Self::Memcached => "memcached",
        })
    }
}

/// What served.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServiceFacts {
    /// Its protocol.
    pub protocol: Protocol,
    /// Where it was asked: the URL, with `{size}` where a request has its size.
    pub url: String,
    /// What it says that it is: the header `Server`, memcached's `version`; empty where it says nothing.
    pub software: String,
}

/// Where the watts of a profile come from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Meter {
    /// The meter's name: `rapl`, `model`.
    pub name: String,
    /// Measured, estimated or emulated.
    pub source: Source,
    /// What it counts, in words.
    pub of: String,
}

/// What was asked for: a profile goes on only under the same.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The sizes, bytes.
    pub sizes_bytes: Vec<u64>,
    /// The densities, above 0 to 1.
    pub densities: Vec<f64>,
    /// Connections that ask at once.
    pub concurrency: usize,
    /// The length of a window, seconds.
    pub window_s: f64,
    /// The share of requests that set a value; the others get one.
    pub sets_share: f64,
    /// Whether a connection asks more than once.
    pub keep_alive: bool,
    /// The seed of the order of cells and of keys.
    pub seed: u64,
    /// Threads of the generator.
    #[serde(default)]
    pub threads: usize,
    /// Of a memcached, how many keys; `None` as many as its memory bears.
    #[serde(default)]
    pub keys: Option<usize>,
}

/// What a machine does besides serving, for a baseline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BaselineKind {
    /// Nothing.
    Idle,
    /// An endless loop on every core.
    Cores,
    /// Bytes over its link, as many as pass.
    Network,
}

impl BaselineKind {
    /// All, in the order in which they are measured.
    pub const ALL: [Self; 3] = [Self::Idle, Self::Cores, Self::Network];

    /// In words.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Cores => "all cores busy",
            Self::Network => "network only",
        }
    }
}

/// What a machine drew and did without the service's work (Section 3.1 of the paper).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Baseline {
    /// What it did.
    pub kind: BaselineKind,
    /// For how long, seconds.
    pub length_s: f64,
    /// Mean power, watts; `None` where no meter answered.
    #[serde(default)]
    pub power_w: Option<f64>,
    /// Busy cores, without the generator's.
    #[serde(default)]
    pub busy_cores: Option<f64>,
    /// Of these, in software interrupts.
    #[serde(default)]
    pub softirq_cores: Option<f64>,
    /// What the link carried in its busier direction, bytes a second.
    #[serde(default)]
    pub link_bytes_per_s: Option<f64>,
}

impl Baseline {
    /// One of which nothing is known yet.
    pub const fn new(kind: BaselineKind) -> Self {
        Self {
            kind,
            length_s: 0.0,
            power_w: None,
            busy_cores: None,
            softirq_cores: None,
            link_bytes_per_s: None,
        }
    }
}

/// How the notes begin that say why requests of a cell failed.
fn failures_of(cell: &Cell) -> String {
    format!("{}: requests failed: ", cell_name(cell))
}

impl Profile {
    /// The layout of the file. Keys may be added, and none is renamed under one number.
    pub const SCHEMA: &str = "headroom-profile/1";

    /// One of these cells, none of them measured.
    pub fn new(name: impl Into<String>, plan: Plan) -> Self {
        let cells = plan.sizes_bytes.iter().flat_map(|size| {
            plan.densities
                .iter()
                .map(move |density| Cell::new(*size, *density))
        });
        Self {
            schema: Self::SCHEMA.to_owned(),
            name: name.into(),
            cells: cells.collect(),
            plan,
            ..Self::default()
        }
    }

    /// Reads one.
    ///
    /// # Errors
    /// [`ProfileError`]: it cannot be read, is something else, or of another layout.
    pub fn read(file: &Path) -> Result<Self, ProfileError> {
        let cannot = |source| ProfileError::Read {
            file: file.to_owned(),
            source,
        };
        let no_profile = |why: String| ProfileError::NoProfile {
            file: file.to_owned(),
            why,
        };
        // A device or a pipe has no length, and may have no end.
        let mut text = String::new();
        let opened = fs::File::open(file).map_err(cannot)?;
        opened
            .take(MAX_BYTES + 1)
            .read_to_string(&mut text)
            .map_err(cannot)?;
        if text.len() as u64 > MAX_BYTES {
            return Err(no_profile(format!(
                "it has more than {MAX_BYTES} bytes, which no profile has"
            )));
        }
        let mut value: serde_json::Value =
            serde_json::from_str(&text).map_err(|error| no_profile(error.to_string()))?;
        plain(&mut value);
        let schema = value.get("schema").and_then(serde_json::Value::as_str);
        match schema {
            Some(Self::SCHEMA) => {}
            Some(found) if found.starts_with("headroom-profile/") => {
                return Err(ProfileError::OtherVersion {
                    file: file.to_owned(),
                    found: found.to_owned(),
                    own: Self::SCHEMA,
                });
            }
            _ => {
                return Err(no_profile(format!("its key `schema` is not {:?}", Self::SCHEMA)));
            }
        }
        let profile: Self = serde_json::from_value(value).map_err(|error| no_profile(error.to_string()))?;
        check(&profile).map_err(no_profile)?;
        Ok(profile)
    }

    /// Writes it: whole, or what was there before stays.
    ///
    /// # Errors
    /// [`ProfileError::Write`].
    pub fn write(&self, file: &Path) -> Result<(), ProfileError> {
        let written = || -> std::io::Result<()> {
            let mut text = serde_json::to_vec_pretty(self)?;
            text.push(b'\n');
            let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
            if let Some(folder) = folder {
                fs::create_dir_all(folder)?;
            }
            let mut beside = file.as_os_str().to_owned();
            beside.push(format!(".{}.tmp", std::process::id()));
            let beside = PathBuf::from(beside);
            let result = fs::File::create(&beside).and_then(|mut to| {
                to.write_all(&text)?;
                to.sync_all()
            });
            let result = result.and_then(|()| fs::rename(&beside, file));
            if result.is_err() {
                // What was begun is of no use; where it is not there either, there is nothing to take away.
                let _ = fs::remove_file(&beside);
            }
            result
        };
        written().map_err(|source| ProfileError::Write {
            file: file.to_owned(),
            source,
        })
    }

    /// A baseline.
    pub fn baseline(&self, kind: BaselineKind) -> Option<&Baseline> {
        self.baselines.iter().find(|one| one.kind == kind)
    }

    /// The cell of a size and density.
    pub fn cell(&self, size_bytes: u64, density: f64) -> Option<&Cell> {
        let same = |cell: &&Cell| cell.size_bytes == size_bytes && (cell.density - density).abs() < 1e-9;
        self.cells.iter().find(same)
    }

    /// Whether every cell was measured.
    pub fn is_whole(&self) -> bool {
        self.cells.iter().all(|cell| !cell.windows.is_empty())
    }

    /// Takes away the windows of cells of which failures spoilt at least half, so that a measurement that goes on measures them anew; of how many
    /// cells.
    pub fn forget_failing(&mut self) -> usize {
        let mut count = 0;
        for cell in self.cells.iter_mut().filter(|cell| cell.is_failing()) {
            let said = failures_of(cell);
            self.notes.retain(|note| !note.starts_with(&said));
            *cell = Cell::new(cell.size_bytes, cell.density);
            count += 1;
        }
        count
    }

    /// Notes why requests of a cell failed, once; not where so much is noted that one more says little.
    pub fn note_failures(&mut self, cell: usize, why: &str) {
        const MOST: usize = 50;
        let note = format!("{}{why}", failures_of(&self.cells[cell]));
        if self.notes.len() < MOST && !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// Whether both are of one machine and service.
    pub fn is_of_the_same(&self, other: &Self) -> bool {
        let (one, two) = (&self.service, &other.service);
        self.is_of_the_machine_of(other) && (&one.url, &one.software) == (&two.url, &two.software)
    }

    fn is_of_the_machine_of(&self, other: &Self) -> bool {
        let (one, two) = (&self.machine, &other.machine);
        (&one.processor, one.cores, &one.agent) == (&two.processor, two.cores, &two.agent)
    }

    /// Why what both say cannot be held against each other, in words: what of one is another, but for the order of its windows, which its seed
    /// says.
    pub fn cannot_be_held_against(&self, other: &Self) -> Option<String> {
        let mut other = other.clone();
        other.plan.seed = self.plan.seed;
        self.differs_from(&other)
    }

    /// Why a measurement cannot go on in this one, in words: what of it is another; `None` where it can.
    pub fn differs_from(&self, other: &Self) -> Option<String> {
        let meter = |profile: &Self| {
            profile
                .meter
                .as_ref()
                .map(|meter| (meter.name.clone(), meter.source, meter.of.clone()))
        };
        let facts: [(&str, bool); 6] = [
            (
                "the plan (sizes, densities, concurrency, window, mix, seed, threads, keys)",
                self.plan == other.plan,
            ),
            ("the service's address", self.service.url == other.service.url),
            (
                "the service's software",
                self.service.software == other.service.software,
            ),
            ("the machine", self.is_of_the_machine_of(other)),
            ("the meter", meter(self) == meter(other)),
            (
                "where the generator runs",
                self.client_is_local == other.client_is_local,
            ),
        ];
        let differing: Vec<&str> = facts
            .into_iter()
            .filter_map(|(name, same)| (!same).then_some(name))
            .collect();
        (!differing.is_empty()).then(|| differing.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Window;
    use super::*;

    fn profile() -> Profile {
        let plan = Plan {
            sizes_bytes: vec![1024, 10_240],
            densities: vec![1.0, 0.25],
            concurrency: 100,
            window_s: 5.0,
            keep_alive: true,
            seed: 1,
            ..Plan::default()
        };
        let mut profile = Profile::new("web1", plan);
        profile.cells[0].windows.push(Window {
            length_s: 5.0,
            sending_share: 1.0,
            completed: 10,
            content_bytes: 10_240,
            ..Window::default()
        });
        profile
    }

    #[test]
    fn a_profile_is_read_as_it_was_written_and_has_a_cell_for_each_size_and_density() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("kept/web1.json");
        profile().write(&file).unwrap();
        let read = Profile::read(&file).unwrap();
        assert_eq!(read, profile());
        assert_eq!(read.cells.len(), 4);
        assert!(!read.is_whole() && read.cell(10_240, 0.25).is_some() && read.cell(1, 0.25).is_none());
        let left: Vec<_> = fs::read_dir(file.parent().unwrap()).unwrap().collect();
        assert_eq!(left.len(), 1, "nothing is left beside it");
    }

    #[test]
    fn what_is_no_profile_is_said_with_the_file_and_the_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("x.json");
        let why = |text: &str| {
            fs::write(&file, text).unwrap();
            Profile::read(&file).unwrap_err().to_string()
        };
        let says = |text: &str, word: &str| {
            let why = why(text);
            assert!(why.contains("x.json") && why.contains(word), "{why}");
        };
        says("not json", "is no profile");
        says("{}", "its key `schema` is not \"headroom-profile/1\"");
        says(
            r#"{"schema": "headroom-profile/9"}"#,
            "another layout (headroom-profile/9",
        );
        says(r#"{"schema": "headroom-profile/1"}"#, "missing field");
        let broken = |change: fn(&mut Profile)| {
            let mut bad = profile();
            change(&mut bad);
            serde_json::to_string(&bad).unwrap()
        };
        says(&broken(|bad| bad.cells[1].density = 0.0), "density is 0");
        says(
            &broken(|bad| bad.cells[0].windows[0].length_s = -1.0),
            "is -1 s long",
        );
        says(
            &broken(|bad| bad.cells[0].windows[0].power_w = Some(-2.0)),
            "power_w of -2",
        );
        let missing = Profile::read(&folder.path().join("none.json"))
            .unwrap_err()
            .to_string();
        assert!(
            missing.contains("none.json") && missing.contains("headroom profile"),
            "{missing}"
        );
    }

    #[test]
    fn a_full_disk_leaves_what_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("x.json");
        profile().write(&file).unwrap();
        // A folder in the place of the file beside it: nothing can be written there.
        let beside = folder.path().join(format!("x.json.{}.tmp", std::process::id()));
        fs::create_dir(&beside).unwrap();
        let mut changed = profile();
        changed.name = "other".to_owned();
        assert!(
            changed
                .write(&file)
                .unwrap_err()
                .to_string()
                .contains("cannot be written")
        );
        assert_eq!(Profile::read(&file).unwrap(), profile());
    }

    #[test]
    fn what_failed_is_measured_anew_and_an_outage_among_others_is_kept() {
        let mut failed = profile();
        let good = failed.cells[0].windows[0].clone();
        let away = Window {
            completed: 0,
            failed: 10,
            ..good.clone()
        };
        failed.cells[1].windows = vec![away.clone(); 2];
        failed.cells[1].judge(None);
        failed.cells[2].windows = vec![good.clone(), away, good];
        failed.notes = vec!["of the meter".to_owned()];
        for why in ["no connection", "no connection", "answered with an error"] {
            failed.note_failures(1, why);
        }
        assert_eq!(failed.notes.len(), 3);
        assert_eq!(failed.forget_failing(), 1);
        assert_eq!(failed.notes, ["of the meter"]);
        assert_eq!(failed.cells[1], Cell::new(1024, 0.25));
        assert_eq!(failed.cells[0].windows.len(), 1);
        let kept = &failed.cells[2];
        assert_eq!((kept.windows.len(), kept.set_aside()), (3, 1));
        assert_eq!(failed.forget_failing(), 0);
    }

    #[test]
    fn a_measurement_goes_on_only_in_the_same() {
        assert_eq!(profile().differs_from(&profile()), None);
        let mut other = profile();
        other.plan.concurrency = 50;
        other.machine.cores = 2;
        let metered = |of: &str| Profile {
            meter: Some(Meter {
                name: "model".to_owned(),
                source: Source::Estimated,
                of: of.to_owned(),
            }),
            ..profile()
        };
        let differs = metered("22 W idle").differs_from(&metered("30 W idle"));
        assert_eq!(differs.as_deref(), Some("the meter"));
        let why = profile().differs_from(&other).unwrap();
        assert!(why.contains("the plan") && why.contains("the machine"), "{why}");
    }
}
