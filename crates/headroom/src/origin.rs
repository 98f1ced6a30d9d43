//! Where this process's figures come from.

use headroom_record::Provenance;

/// Of this process: its command line, its version, the commit where the build was given one (`make build` tells it), this
/// machine and now.
pub fn provenance() -> Provenance {
    let commit = option_env!("HEADROOM_COMMIT").filter(|commit| !commit.is_empty());
    Provenance::of_this_process(env!("CARGO_PKG_VERSION"), commit)
}
