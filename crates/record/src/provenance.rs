//! Where figures come from: what a reader needs to make them again.

use crate::clock::{unix_ms, utc_text};
use crate::offered::OfferedLoad;
use serde::{Deserialize, Serialize};
use std::sync::OnceLock;
use std::time::SystemTime;

/// Which commit this program was built from, where that is known.
static COMMIT: OnceLock<String> = OnceLock::new();

/// Says once, at a program's start, which commit it was built from; an empty text that it is not known. What is said later does nothing.
pub fn built_from(commit: &str) {
    if !commit.is_empty() {
        COMMIT.get_or_init(|| commit.to_owned());
    }
}

/// Bytes kept of a command line.
const MAX_COMMAND_BYTES: usize = 4 << 10;

/// Where a run, or a table of many simulated ones, comes from. An empty text and `None` say that it is not known.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Provenance {
    /// The command line that made it.
    pub command: String,
    /// The version of the program.
    pub version: String,
    /// The commit that the program was built from, where its build was given one.
    pub commit: Option<String>,
    /// The machine.
    pub host: String,
    /// When it began, UTC.
    pub date: String,
    /// The machine's processors and kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// The SHA-256 of the text of the configuration or scenario, which is in the record: of a file, as `sha256sum` prints it.
    pub configuration: Option<String>,
    /// [`fingerprint`] of what was offered: the rates of the traces, or the instants of the requests, with their seeds.
    /// `None` where that is live traffic.
    pub load: Option<String>,
    /// What is known of the load in words, where it is not known by a fingerprint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load_note: Option<String>,
    /// What the generator of live traffic says that it sent, where its file was given to a report.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offered_load: Option<Box<OfferedLoad>>,
    /// The meter of its energy at its start, with the zones that count (`rapl: dram-0, package-0`); of many nodes that of
    /// each, after its name. `None` where there is no meter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meter: Option<String>,
    /// What the runs of a table have in common and a summary has in keys of its own; absent of a single run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub experiment: Option<Experiment>,
}

/// What the runs of a table have in common.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Experiment {
    /// The scenario's name, or the paper's.
    pub scenario: String,
    /// What drove the load.
    pub traces: Vec<String>,
    /// The seeds, the first and the last.
    pub seeds: (u64, u64),
    /// How long each run lasts; `None` where that differs.
    pub duration_s: Option<f64>,
    /// The SLO in words; `None` where that differs.
    pub slo: Option<String>,
}

impl Provenance {
    /// That of this process, begun now, with its own command line and the commit that it was [`built_from`].
    pub fn of_this_process(version: &str) -> Self {
        let mut words = std::env::args();
        // The program's folder is of no interest, and its name is.
        let program = words.next().unwrap_or_default();
        let name = std::path::Path::new(&program).file_name();
        let mut command = name.map_or(program.clone(), |name| name.to_string_lossy().into_owned());
        for word in words {
            command.push(' ');
            command.push_str(&quoted(&word));
        }
        Self {
            command: crate::rows::cut(&command, MAX_COMMAND_BYTES),
            version: version.to_owned(),
            commit: COMMIT.get().cloned(),
            host: host(),
            date: utc_text(unix_ms(SystemTime::now())),
            machine: machine(),
            configuration: None,
            load: None,
            load_note: None,
            offered_load: None,
            meter: None,
            experiment: None,
        }
    }

    /// With what the runs of a table have in common.
    #[must_use]
    pub fn of_experiment(mut self, experiment: Experiment) -> Self {
        self.experiment = Some(experiment);
        self
    }

    /// With the hash of the configuration or scenario; without any where there is no text.
    #[must_use]
    pub fn configured_by(mut self, text: &str) -> Self {
        self.configuration = (!text.is_empty()).then(|| sha256(text.as_bytes()));
        self
    }

    /// With the fingerprint of what was offered.
    #[must_use]
    pub fn with_load(mut self, load: Option<String>) -> Self {
        self.load = load;
        self
    }

    /// As that of a run on live traffic: what is offered to it is for its generator to say.
    #[must_use]
    pub fn on_live_traffic(mut self) -> Self {
        let note = "live traffic: what was offered is not known to this run. Where `headroom load --json` sent it, keep what that printed, \
                    and give it to `headroom report RUN --load FILE`";
        self.load_note = Some(note.to_owned());
        self
    }

    /// With what the generator says that it sent.
    #[must_use]
    pub fn with_offered_load(mut self, offered: OfferedLoad) -> Self {
        self.load_note = None;
        self.offered_load = Some(Box::new(offered));
        self
    }

    /// The program and what it was built from.
    pub(crate) fn program(&self) -> String {
        match &self.commit {
            Some(commit) => format!("headroom {} (commit {commit})", self.version),
            None => format!("headroom {}", self.version),
        }
    }

    /// With the meter of its energy.
    #[must_use]
    pub fn with_meter(mut self, meter: Option<String>) -> Self {
        self.meter = meter;
        self
    }

    /// What is known, each with its name, for a page.
    pub fn lines(&self) -> Vec<(&'static str, String)> {
        let hash = |hash: &Option<String>| hash.as_ref().map(|hash| format!("SHA-256 {hash}"));
        let experiment = self.experiment.as_ref();
        let seeds = |(first, last): (u64, u64)| format!("{first} to {last}");
        let lines = [
            ("scenario", experiment.map(|of| of.scenario.clone())),
            ("traces", experiment.map(|of| of.traces.join(", "))),
            ("seeds", experiment.map(|of| seeds(of.seeds))),
            (
                "duration",
                experiment.and_then(|of| Some(format!("{} s", of.duration_s?))),
            ),
            ("SLO", experiment.and_then(|of| of.slo.clone())),
            ("command", Some(self.command.clone())),
            ("program", Some(self.program())),
            ("date", Some(self.date.clone())),
            ("host", Some(self.host.clone())),
            ("machine", self.machine.clone()),
            ("configuration", hash(&self.configuration)),
            ("load", hash(&self.load).or_else(|| self.load_note.clone())),
            ("meter", self.meter.clone()),
        ];
        let known = lines.into_iter().filter_map(|(name, value)| Some((name, value?)));
        let offered = self.offered_load.iter().flat_map(|offered| offered.lines());
        known
            .chain(offered)
            .filter(|(_, value)| !value.is_empty())
            .collect()
    }
}

/// The name of this machine.
pub fn host() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map_or("unknown".to_owned(), |name| name.trim().to_owned())
}

/// The processors and the kernel of this machine; `None` where /proc does not say.
fn machine() -> Option<String> {
    let cpus = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").ok()?;
    let count = cpus.lines().filter(|line| line.starts_with("processor")).count();
    let model = cpus.lines().find(|line| line.starts_with("model name"));
    let model = model
        .and_then(|line| line.split_once(':'))
        .map_or("", |(_, name)| name.trim());
    let each = [count.to_string(), model.to_owned()].join(" x ");
    Some(format!(
        "{}, Linux {}, {}",
        each.trim_end_matches(" x "),
        release.trim(),
        std::env::consts::ARCH
    ))
}

/// The SHA-256 of some bytes, in hexadecimal digits.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    hexadecimal(ring::digest::digest(&ring::digest::SHA256, bytes))
}

fn hexadecimal(digest: ring::digest::Digest) -> String {
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The SHA-256 of some parts one after the other, each with its length before it, in hexadecimal digits.
pub fn fingerprint<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut context = ring::digest::Context::new(&ring::digest::SHA256);
    for part in parts {
        context.update(&(part.len() as u64).to_le_bytes());
        context.update(part);
    }
    hexadecimal(context.finish())
}

/// The [`fingerprint`] of numbers, as of a trace: its step, its rates, its seed.
pub fn fingerprint_of_numbers(numbers: impl IntoIterator<Item = f64>) -> String {
    let bytes: Vec<u8> = numbers.into_iter().flat_map(f64::to_le_bytes).collect();
    fingerprint([bytes.as_slice()])
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=+,./:@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_is_that_of_the_parts_and_their_bounds() {
        // The SHA-256 of eight zero bytes: of one empty part.
        let empty = "af5570f5a1810b7af78caf4bc70a660f0df51e42baf91d4de5b2328de0e83dfc";
        assert_eq!(fingerprint([&b""[..]]), empty);
        assert_ne!(fingerprint([&b"ab"[..], b"c"]), fingerprint([&b"a"[..], b"bc"]));
        assert_eq!(
            fingerprint_of_numbers([1.0, 2.0]),
            fingerprint_of_numbers([1.0, 2.0])
        );
        assert_ne!(
            fingerprint_of_numbers([1.0, 2.0]),
            fingerprint_of_numbers([1.0, 2.5])
        );
    }

    #[test]
    fn a_command_can_be_given_to_a_shell_again() {
        assert_eq!(quoted("--laws=fixed,headroom"), "--laws=fixed,headroom");
        assert_eq!(quoted("it's $HOME"), "'it'\\''s $HOME'");
        assert_eq!(quoted(""), "''");
        let own = Provenance::of_this_process("0.1.0");
        assert_eq!(own.clone().configured_by("").configuration, None);
        let named = own.configured_by("a = 1").lines();
        let names: Vec<&str> = named.iter().map(|(name, _)| *name).collect();
        let wanted = ["command", "program", "date", "host", "machine", "configuration"];
        assert_eq!(names, wanted);
        // `printf 'a = 1' | sha256sum`.
        let hash = "b5bc1ffd90912fb18bef6e7d80909192c7a6492896320156d67fbaf104c6544a";
        assert!(named[5].1.ends_with(hash), "{named:?}");
    }
}
