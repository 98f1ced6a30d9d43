//! Users as SURGE models them (P. Barford, M. Crovella, *Generating Representative Web Workloads for Network and
//! Server Performance Evaluation*, SIGMETRICS 1998): closed loop, heavy-tailed, on a site of its own.
//!
//! A user fetches a page's document, then after an *active OFF* time each the objects embedded in it, one after the
//! other, sleeps for an *inactive OFF* time, and begins again. Nothing here sends anything or reads a clock: a
//! [`User`] is a seeded state machine that says how long to wait and what to fetch; the load generator does it, and the
//! simulator simulates it.
//!
//! - [`Model`]: the distributions of a user's behaviour.
//! - [`FileSet`]: the site: sizes, popularity, which document embeds what; it can be written to a folder.
//! - [`References`]: the order in which documents are asked for, with temporal locality.
//! - [`UserCurve`]: how many users there are over time.
//! - [`Browsing`]: users of a simulated cluster, as its configuration file states them.
//!
//! The parameters are those of 1998 as they are remembered in the literature; each is a field, so a site of today
//! can be stated in its place. With a server that answers at once, a user of the default model asks for about 0.53
//! objects a second: two users for each request a second.
//!
//! # Two statements of SURGE's parameters
//!
//! [`Model::default`] states them as the literature does, by scale and exponent; [`Browsing`] by their means, to three
//! digits, so that a file may scale them. Both are the same model but for rounding and an edge, and the published figures
//! of each depend on its digits:
//!
//! | | [`Model::default`] | [`Browsing::default`] |
//! |---|---|---|
//! | active OFF | scale 0.382 s, given at most 30 s | mean 0.346 s: scale 0.38195 s |
//! | inactive OFF | from 1 s, given at most 1,000 s: mean 2.9052 s | mean 2.905 s: from 0.99992 s |
//! | embedded objects | given at most 150 | cut at 150, which changes 5 pages in a million that embed any |
//! | who comes waits | a part of an inactive OFF time ([`User::next`]) | a whole one ([`User::off`]) |

mod browsing;
mod curve;
mod files;
mod references;
mod user;

pub use browsing::Browsing;
pub use curve::{CurveError, MAX_USERS, UserCurve};
pub use files::{FileSet, FileSetConfig, FileSetError, MAX_FILES};
pub use references::References;
pub use user::{Fetch, MAX_EMBEDDED, Model, Site, User};
