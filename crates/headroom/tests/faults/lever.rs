//! The files in which limits stand, and whether what stands there is tighter than it was.

use crate::common::Group;
use std::fs;
use std::path::{Path, PathBuf};

/// One limit.
#[derive(Clone, Debug)]
pub enum Lever {
    /// A CPU quota of version 1: the group's directory, and the CPUs that are all.
    QuotaV1(PathBuf, f64),
    /// A CPU quota of version 2: the same.
    QuotaV2(PathBuf, f64),
    /// A list of CPUs.
    Cpuset(PathBuf),
    /// A file with one number, of which more is looser.
    Number(PathBuf),
}

impl Lever {
    /// What stands there, as text; nothing where there is no such file.
    pub fn text(&self) -> Option<String> {
        let read = |path: &Path| {
            let text = fs::read_to_string(path).ok()?;
            Some(text.trim().to_owned())
        };
        match self {
            Self::QuotaV1(dir, _) => Some(format!(
                "{} of {}",
                read(&dir.join("cpu.cfs_quota_us"))?,
                read(&dir.join("cpu.cfs_period_us"))?
            )),
            Self::QuotaV2(dir, _) => read(&dir.join("cpu.max")),
            Self::Cpuset(path) | Self::Number(path) => read(path),
        }
    }

    /// How much a text of [`Self::text`] gives: cores, CPUs, or the number itself.
    pub fn amount(&self, text: &str) -> Option<f64> {
        match self {
            Self::QuotaV1(_, all) | Self::QuotaV2(_, all) => {
                let (quota, period) = text.split_once(" of ").or_else(|| text.split_once(' '))?;
                match quota {
                    "-1" | "max" => Some(*all),
                    quota => Some((quota.parse::<f64>().ok()? / period.parse::<f64>().ok()?).min(*all)),
                }
            }
            Self::Cpuset(_) => text
                .split(',')
                .map(|part| match part.split_once('-') {
                    Some((first, last)) => Some(last.parse::<f64>().ok()? - first.parse::<f64>().ok()? + 1.0),
                    None => part.parse::<f64>().ok().map(|_| 1.0),
                })
                .sum(),
            Self::Number(_) => text.parse().ok(),
        }
    }

    /// Writes another value, as an operator would; what was written, as [`Self::text`] reads it.
    pub fn interfere(&self, seed: u64) -> anyhow::Result<String> {
        let wrong = || anyhow::anyhow!("{self:?} cannot be read");
        let text = self.text().ok_or_else(wrong)?;
        match self {
            Self::QuotaV1(dir, _) => fs::write(dir.join("cpu.cfs_quota_us"), (2_000 + seed).to_string())?,
            Self::QuotaV2(dir, _) => {
                let (_, period) = text.split_once(' ').ok_or_else(wrong)?;
                fs::write(dir.join("cpu.max"), format!("{} {period}", 2_000 + seed))?;
            }
            Self::Cpuset(path) => fs::write(path, if text == "1" { "0" } else { "1" })?,
            // A step of 100 MHz more, since it may be at its lowest.
            Self::Number(path) if path.ends_with("scaling_max_freq") => {
                let now = self.amount(&text).ok_or_else(wrong)?;
                fs::write(path, format!("{:.0}", now + 1e5))?;
            }
            // Whole watts of a power limit.
            Self::Number(path) => {
                let now = self.amount(&text).ok_or_else(wrong)?;
                fs::write(path, format!("{:.0}", (now * 0.8 / 1e6).floor() * 1e6))?;
            }
        }
        let written = self.text().ok_or_else(wrong)?;
        anyhow::ensure!(written != text, "{self:?} holds {text:?} as before");
        Ok(written)
    }

    /// Where it stands, for messages.
    pub fn name(&self) -> String {
        match self {
            Self::QuotaV1(dir, _) => dir.join("cpu.cfs_quota_us").display().to_string(),
            Self::QuotaV2(dir, _) => dir.join("cpu.max").display().to_string(),
            Self::Cpuset(path) | Self::Number(path) => path.display().to_string(),
        }
    }
}

/// A limit, and what stood there before the run or what another wrote last.
#[derive(Clone, Debug)]
pub struct Watched {
    /// The limit.
    pub lever: Lever,
    /// What is to stand there at the end; nothing where the file is to be gone.
    pub expected: Option<String>,
}

impl Watched {
    /// A limit as it is now.
    pub fn now(lever: Lever) -> Self {
        let expected = lever.text();
        Self { lever, expected }
    }

    /// What it gives as a share of what it is to give; nothing where either cannot be read.
    fn share(&self) -> Option<f64> {
        let amount = |text: &str| self.lever.amount(text);
        Some(amount(&self.lever.text()?)? / amount(self.expected.as_deref()?)?)
    }

    /// Whether it is tighter than it is to be: a limit of ours is in force.
    pub fn is_tighter(&self) -> bool {
        self.share().is_some_and(|share| share < 0.999)
    }

    /// Whether much was taken.
    pub fn is_low(&self) -> bool {
        self.share().is_some_and(|share| share < 0.9)
    }

    /// What is wrong with it at the end; nothing where it is as it is to be.
    pub fn wrong(&self) -> Option<String> {
        let now = self.lever.text();
        (now != self.expected).then(|| {
            let told = |text: &Option<String>| text.clone().unwrap_or_else(|| "no such file".to_owned());
            format!(
                "{} holds {:?}, not {:?}",
                self.lever.name(),
                told(&now),
                told(&self.expected)
            )
        })
    }
}

/// What can be limited in a group.
pub fn levers(group: &Group) -> Vec<Lever> {
    let all = std::thread::available_parallelism().map_or(1.0, |cpus| cpus.get() as f64);
    let dir = group.dir().to_owned();
    let v2 = dir.join("cpu.max").exists();
    let mut levers = vec![if v2 {
        Lever::QuotaV2(dir, all)
    } else {
        Lever::QuotaV1(dir, all)
    }];
    let sets = group.left().into_iter().map(|dir| dir.join("cpuset.cpus"));
    levers.extend(sets.filter(|path| path.exists()).map(Lever::Cpuset));
    levers
}
