//! What is commanded: levers, turns and areas.

use crate::layout::{AREAS, CPU_WORDS};
use std::time::Duration;

/// Why a server cannot be divided so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DivisionError {
    /// There is room for so many.
    #[error("{0} areas: at most {AREAS} can be told apart")]
    Areas(usize),
    /// A processor with too high a number.
    #[error("processor {cpu} cannot be in an area: those under {most} can", most = CPU_WORDS * 64)]
    Processor {
        /// Its number.
        cpu: u32,
    },
    /// Nobody could run there.
    #[error("area {0} has no processor: give it 1 or more")]
    None(usize),
}

/// An area of cores.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AreaCores {
    /// Its processors, by the kernel's numbers.
    pub cpus: Vec<u32>,
    /// C of the area alone: at least 1. `None` is that of all areas without one of their own, together.
    pub workers: Option<u32>,
}

impl AreaCores {
    /// Its processors, a bit each.
    pub(super) fn words(&self) -> Result<[u64; CPU_WORDS], u32> {
        let mut words = [0; CPU_WORDS];
        for cpu in &self.cpus {
            let word = words.get_mut(*cpu as usize / 64).ok_or(*cpu)?;
            *word |= 1 << (cpu % 64);
        }
        Ok(words)
    }
}

/// What the workers of a server are let do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Levers {
    /// Whether they are on call at all.
    pub enabled: bool,
    /// C: workers that may run at once; at least 1.
    pub concurrency: u32,
    /// N: queries of one connection in a round; at least 1.
    pub batch: u32,
    /// How long a worker with queries left waits for its next one and keeps its slot.
    pub linger: Duration,
    /// D: from the end of a round to the beginning of the next.
    pub delay: Duration,
}

impl Default for Levers {
    /// Everybody runs, as without us.
    fn default() -> Self {
        Self {
            enabled: false,
            concurrency: u32::MAX,
            batch: 1,
            linger: Duration::ZERO,
            delay: Duration::ZERO,
        }
    }
}

/// How a connection has its turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turns {
    /// Its own batch size: `None` is the common one, 0 no turn but one in twenty seconds.
    pub batch: Option<u32>,
    /// Whether all others go first: those that have a turn in the round, and where there is no delay those that wait for the next, for a second
    /// or so.
    pub yields: bool,
    /// Whether it has no turn in the round after one in which it had one, while others wait.
    pub rests: bool,
    /// How long it asks for no other turn when its queries of one are answered; where it does not yield, only while somebody waits. Less
    /// than a millisecond is not slept: standing in line takes longer.
    pub pause: Duration,
}
