//! `headroom profile compare`: profiles beside each other.

use crate::origin;
use crate::simulate::{narrow_text, write_sheet};
use clap::Args;
use headroom_console::{Failure, say, terminal};
use headroom_record::profile::{Comparison, Profile, compare};
use headroom_record::report::Sheet;
use std::path::PathBuf;

/// `headroom profile compare`.
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// The profiles.
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// The report to write.
    #[arg(long, value_name = "FILE", default_value = "out/profiles.html")]
    pub out: PathBuf,
    /// Print the comparison as JSON on standard output, and nothing else there.
    #[arg(long)]
    pub json: bool,
}

/// Reads them, and prints and draws the comparison.
///
/// # Errors
/// A file that is no profile, a report that cannot be written.
pub fn run(args: &CompareArgs) -> Result<(), Failure> {
    let profiles = args.files.iter().map(|file| Profile::read(file));
    let profiles = profiles.collect::<Result<Vec<_>, _>>().map_err(Failure::usage)?;
    let all: Vec<&Profile> = profiles.iter().collect();
    let sheet = Sheet {
        provenance: Some(origin::provenance()),
        ..compare::sheet(&all)
    };
    write_sheet(&sheet, None, &args.out)?;
    if args.json {
        return say::result(serde_json::to_string(&Comparison::of(&all))?);
    }
    say::result(format_args!(
        "{}report: {}",
        narrow_text(&sheet, terminal::columns()),
        args.out.display()
    ))
}
