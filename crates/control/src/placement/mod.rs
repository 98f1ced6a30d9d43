//! Which machine serves which requests, by the size of their answers and by what a watt serves there.
//!
//! [`fit`] makes the model of a machine from what was measured of it, [`percentile_at`] and [`limit`] say how busy it may be for a class
//! of requests ([`measured_limit`] where something else than its cores and its link is full first), and [`advisor`] which machines are to be on over a day and what each serves. Of a running service,
//! [`SizesObservation`] is what gateways say of requests by size and backend, [`Routes`] what a law answers: of each class of
//! sizes the share that each backend is sent; [`Placement`] is such a law.

pub mod advisor;
mod fit;
mod latency;
mod law;
mod measured;
mod population;
mod routes;

pub use fit::{
    Baselines, Cell, CostPoint, FitError, Fitted, MAX_CELLS, MachineDescription, NetworkBaseline,
    Unidentified, fit,
};
pub use latency::{MAX_LIMIT, limit, percentile_at};
pub use law::{KindFigures, MAX_BACKENDS, Placement, PlacementTuning};
pub use measured::{FirstFull, first_full, measured_limit};
pub use routes::{BackendObservation, ClassOnBackend, Routes, SizeClass, SizesObservation};
