//! Visitors of an auction site, in the manner of RUBiS (C. Amza et al., *Specification and Implementation of Dynamic Web
//! Site Benchmarks*, WWC 2002; E. Cecchet et al., *Performance and Scalability of EJB Applications*, OOPSLA 2002), with
//! which the batching paper's testbed was loaded (its Section VII): closed loop, sessions, a think time before each page.
//!
//! Nothing here sends anything or reads a clock: a [`Visitor`] is a seeded state machine that says how long to think and
//! what to ask for next. The load generator does it, the simulator simulates it, the built-in service serves it. The
//! three agree because all of them take items, categories, sizes and targets from one [`Site`] and one [`Place`].
//!
//! - [`Page`]: the kinds of page, and which of them write.
//! - [`Place`]: one page of the site, with its target (`/item/42/bids`), its key and its marker.
//! - [`Site`]: items, users, categories, regions; the popularity of items, the size of each page.
//! - [`Mix`]: browsing, bidding, selling; each a table of transitions.
//! - [`Visitor`]: who visits.
//!
//! # What is RUBiS' and what is ours
//!
//! Recalled of RUBiS, not read from its sources: the kinds of page and what leads from one to another; *back* and *end of
//! session* as transitions; 20 categories, 62 regions and 20 results on a page of a search; think times with a negative
//! exponential distribution of 7 s in the mean and at most 70 s (TPC-W's, clause 5.3.1.1); a browsing mix that
//! only reads and a bidding mix of which 15 % of the interactions are read-write.
//!
//! Ours: every number in the tables of transitions; that the bidding mix' 15 % are those pages that change the database,
//! forms not counted; the selling mix; that items are visited by Zipf's law (RUBiS draws them evenly) and that sizes are
//! spread from 2 to 50 kB (the range of the batching paper's Figure 12).

mod mix;
mod page;
mod place;
mod site;
mod visitor;

pub use mix::{Mix, Next, Transition};
pub use page::{Page, Subject};
pub use place::{MAX_NUMBER, Place};
pub use site::{MAX_ITEMS, MAX_USERS, RESULTS_PER_PAGE, Site, SiteConfig, SiteError};
pub use visitor::{Behaviour, Change, Visit, Visitor};

#[cfg(test)]
mod tests;
