//! What demos left that were killed: only a program that can run demos knows what that may be.

#[cfg(feature = "lab")]
pub use headroom_lab::emulator::{has_demos, take_and_sweep};
#[cfg(not(feature = "lab"))]
pub use without::{has_demos, take_and_sweep};

#[cfg(not(feature = "lab"))]
mod without {
    use headroom_node::restore::{LedgerError, RunDir};
    use std::path::Path;

    /// What was taken away: nothing.
    #[derive(Debug, Default)]
    pub struct Swept {
        pub done: Vec<String>,
        pub failed: Vec<anyhow::Error>,
    }

    /// Takes a run folder.
    pub fn take_and_sweep(run_dir: &Path) -> Result<(RunDir, Swept), LedgerError> {
        Ok((RunDir::take(run_dir)?, Swept::default()))
    }

    /// Whether something of a demo is to be taken away.
    pub const fn has_demos(_: &Path) -> bool {
        false
    }
}
