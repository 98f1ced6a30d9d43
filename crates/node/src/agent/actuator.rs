//! What sets one lever of a machine, for levers that act on no other.
//!
//! Cores, cap and frequency are not among them: a cap is held by the quota or by the frequency where no hardware holds it, so
//! that [`Limiter`](crate::cap::Limiter) sets the three together.

use crate::restore::Outcome;
use headroom_units::{Lever, LeverRange};
use headroom_wire::message::NoLever;
use std::fmt;

/// Sets one lever. It remembers what it finds before its first write, reads back what it wrote, and puts back what it found
/// when it is dropped; where it cannot, the ledger has it for the guard and the next start.
pub trait Actuator: fmt::Debug + Send {
    /// The lever.
    fn lever(&self) -> Lever;

    /// What sets it, as `headroom doctor` has it.
    fn device(&self) -> &str;

    /// What can be commanded of it now.
    ///
    /// # Errors
    /// Why the machine lacks it.
    fn range(&self) -> Result<LeverRange, NoLever>;

    /// What is in force by its doing; `None` while what was found stands.
    fn in_force(&self) -> Option<f64>;

    /// Puts a value in force.
    ///
    /// # Errors
    /// Why it is not in force. What is then is [`Actuator::in_force`].
    fn set(&mut self, value: f64) -> Result<(), String>;

    /// Puts back what was found; nothing where nothing was written.
    fn put_back(&mut self) -> Vec<Outcome>;
}
