//! A service of three tiers behind a cache and a batcher, used by people who wait for their answers: the world of the batching
//! paper (Cheng, Guo and Zhou, "Self-tuning batching with DVFS for improving performance and energy efficiency in servers",
//! MASCOTS 2013).
//!
//! ```
//! use headroom_control::{Constant, Stack};
//! use headroom_sim::tiers::{TiersScenario, run};
//! use headroom_units::{Lever, Setting};
//!
//! let scenario = TiersScenario { duration_s: 30.0, ..TiersScenario::default() };
//! let plant = scenario.plant()?;
//! let held = Setting::default().with(Lever::BatchInterval, Some(0.1));
//! let law = Constant::new(held).ok_or("a setting that names a lever")?;
//! let mut law = Stack::of(Box::new(law), plant, 5)?;
//! let totals = run(&scenario, &mut law, 1, &mut |_| {})?;
//! assert!(totals.counts.batches > 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The model
//!
//! - **Users.** A closed loop: each thinks, asks, and waits for the answer. How many there are follows a list. Which page a user asks
//!   for, which of its objects, and what that costs, are draws of the user's own stream: no law changes them.
//! - **Batcher.** In front of everything, as in Section III: intervals back to back, requests in groups by what they ask for, the
//!   largest group first. The first request of a group looks in the cache and fetches where it must; the rest is served from what it
//!   fetched. What changes something is never held. Another interval is in force from the next one on.
//! - **Cache.** A bound on its bytes, the least recently used object goes first, objects above a size are not stored, and none is used for longer than it is fresh; a write makes
//!   the objects that it changes unusable. With `collapse`, requests for what is being fetched wait for that fetch, as in this
//!   program's gateway; without it each fetches, as in Apache's `mod_mem_cache`.
//! - **Front, application and database tier.** Each has cores of its own, shared as processor sharing; where the front has a limit on
//!   its workers, requests wait for one in their order, and keep it until they are answered. Then a delay that no frequency changes
//!   (disk, network). An answer from the cache costs the front alone.
//! - **Frequency.** One for all cores, of a list. A share of the work may not depend on it.
//! - **Power.** Core by core by [`headroom_physics`]: busy cores by frequency and voltage, idle states, the package, the rest.
//! - **Control.** At the end of a period, or of a batching interval, the law is given the same observation as live.
//!
//! What it is not: cores are not shared between the tiers (no hypervisor), and the machine that the users run on draws nothing.

mod batcher;
mod cache;
mod check;
mod content;
mod counts;
mod machine;
mod scenario;
mod totals;
mod users;
mod world;

pub use counts::Counts;
pub use scenario::{
    AuctionFigures, BatchFigures, CacheFigures, FrontFigures, PageFigures, TierFigures, TiersScenario,
    UserFigures,
};
pub use totals::{TierTotals, TiersSample, TiersTotals};
pub use world::{TiersStep, run};
