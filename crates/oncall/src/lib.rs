//! On-call threads (REEF, Sections 3 and 4): the workers of a server with a thread per connection are parked while their clients have
//! nothing to ask, and let go when there is a query and a slot, at most C at once, N queries of a connection in a round, and D
//! between two rounds.
//!
//! Two sides share a region of memory ([`layout`]). Inside the server is the preload library ([`LIBRARY`]), which decides who runs
//! within microseconds and needs nobody else for it. Outside is [`Steering`]: what is commanded, for the length of a lease, and
//! what was counted. A server whose regulator is gone serves as without us as soon as the lease ends.
//!
//! ```no_run
//! use headroom_oncall::{Levers, Steering, VARIABLE};
//! use headroom_units::Seconds;
//! use std::time::Duration;
//!
//! let steering = Steering::create("/run/headroom/oncall".as_ref())?;
//! steering.command(Levers { concurrency: 4, batch: 8, ..Levers::default() }, Some(Duration::from_secs(5)));
//! // A server started with LD_PRELOAD and this variable is on call from its first client on.
//! println!("{VARIABLE}={}", steering.path().display());
//! assert_eq!(steering.totals().queries, 0);
//! # Ok::<(), headroom_oncall::RegionError>(())
//! ```
mod ignored;
mod inherit;
pub mod layout;
#[cfg_attr(
    not(oncall_preload),
    allow(
        dead_code,
        reason = "only the shared object exports the hooks, and only it calls them"
    )
)]
mod preload;
pub mod program;
mod steering;

pub use ignored::ignore_in;
pub use inherit::Inherited;
pub use layout::{DESCRIPTOR_VARIABLE, VARIABLE};
pub use steering::{
    AreaCores, AttachError, ConnectionTotals, DivisionError, Levers, RegionError, Steering, Totals, Turns,
};

/// The preload library, a shared object for this machine.
pub static LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libheadroom_oncall.so"));
