//! Users as SURGE models them (P. Barford, M. Crovella, *Generating Representative Web Workloads for Network and
//! Server Performance Evaluation*, SIGMETRICS 1998): closed loop, heavy-tailed, on a site of its own.
//!
//! A user fetches a page's document, then after an *active OFF* time each the objects embedded in it, one after the
//! other, sleeps for an *inactive OFF* time, and begins again. Nothing here sends anything or reads a clock: a
//! [`User`] is a seeded state machine that says how long to wait and what to fetch, and the [HTTP
//! generator](crate::http) does it.
//!
//! - [`Model`]: the distributions of a user's behaviour.
//! - [`FileSet`]: the site: sizes, popularity, which document embeds what; it can be written to a folder.
//! - [`References`]: the order in which documents are asked for, with temporal locality.
//! - [`UserCurve`]: how many users there are over time.
//!
//! The parameters are those of 1998 as they are remembered in the literature; each is a field, so a site of today
//! can be stated in its place. With a server that answers at once, a user of the default model asks for about 0.53
//! objects a second: two users for each request a second.

mod curve;
mod distribution;
mod files;
mod references;
mod user;

pub use curve::{CurveError, MAX_USERS, UserCurve, parse_duration};
pub use distribution::{Shape, Truncated};
pub use files::{FileSet, FileSetConfig, FileSetError, MAX_FILES};
pub use references::References;
pub use user::{Fetch, Model, Site, User};
