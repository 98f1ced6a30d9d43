//! Physical quantities as types, and where each value came from.
//!
//! A bare `f64` says neither whether it is watts or joules nor whether anybody measured it. Everything that
//! crosses a public boundary in this workspace is one of these types instead. [`quantity`] holds the quantities
//! (watts, joules, cores, hertz, rates, ratios, seconds) and the few products between them that have a meaning;
//! [`lever`] says what can be set and holds a value for each lever; [`comparison`] what a law compared; [`part`] holds what a period of a run says of each node;
//! [`source`] says whether a value was measured, estimated, emulated or simulated, and keeps the four apart; [`status`]
//! names the HTTP statuses with which a request counts as failed.
//!
//! This crate decides nothing.
//!
//! ```
//! use headroom_units::{Reading, Seconds, Source, Watts};
//!
//! let package = Reading::new(Watts::new(60.0), Source::Measured);
//! let memory = Reading::new(Watts::new(8.0), Source::Measured);
//! let guess = Reading::new(Watts::new(30.0), Source::Estimated);
//! assert_eq!(package.plus(memory)?.value * Seconds::new(2.0), headroom_units::Joules::new(136.0));
//! assert!(package.plus(guess).is_err(), "measured and estimated are not added");
//! # Ok::<(), headroom_units::MixedSources>(())
//! ```
#![forbid(unsafe_code)]

pub mod comparison;
mod known;
pub mod lever;
pub mod part;
pub mod quantity;
pub mod source;
pub mod status;

pub use comparison::{Compared, Comparison, Verdict};
pub use known::CapacityKind;
pub use lever::{Gives, Lever, LeverInfo, LeverRange, Setting, Spread};
pub use part::{Fact, Part, Quantity, QuantityInfo, Role, Sensor};
pub use quantity::{Cores, Hertz, Joules, PerSecond, Ratio, Seconds, Watts};
pub use source::{Emulated, Estimated, Measured, MixedSources, Reading, Simulated, Source};
pub use status::{FailedStatus, FailedStatusError, quantile_of_answered, rank_of};
