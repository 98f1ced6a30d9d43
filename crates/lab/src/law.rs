//! The laws, by name, and their parameters.

#[path = "../../headroom/src/config/law.rs"]
mod config;
#[path = "../../headroom/src/cli/law.rs"]
mod name;

pub use config::LawConfig;
pub use name::LawName;
