//! Arguments that several commands have.

use clap::Args;
use clap::builder::TypedValueParser;
use headroom_console::one_of;
use headroom_control::{LawName, LawNames};
use headroom_node::Roots;
use std::path::PathBuf;

/// The names of the laws, with what help says of each.
pub fn law_names() -> impl TypedValueParser<Value = LawName> {
    one_of(LawName::all().map(|law| (law.as_str(), law.about(), law)))
}

/// A run of a law on live traffic.
#[derive(Clone, Debug, Args)]
pub struct RunArgs {
    /// Run this law instead of the configuration's; its parameters are still the configuration's. Several, each with levers of its
    /// own, are joined by commas: slo-power,dynamic.
    #[arg(long, value_parser = law_names(), value_name = "LAW", value_delimiter = ',')]
    pub law: Vec<LawName>,
    /// Stop after this many seconds; by default at SIGINT or SIGTERM.
    #[arg(long, value_name = "SECONDS", value_parser = headroom_console::args::seconds)]
    pub duration: Option<f64>,
    /// The name of the run in the record, in the report and in `headroom runs`; by default the command's.
    #[arg(long, value_name = "NAME", value_parser = headroom_console::args::name)]
    pub name: Option<String>,
    /// Print the run summary as JSON on standard output, and nothing else there.
    #[arg(long)]
    pub json: bool,
    /// Log one line a period instead of the live view (the default where standard error is no terminal).
    #[arg(long)]
    pub no_view: bool,
}

impl RunArgs {
    /// The laws that are to run: those of the command line, else those of the configuration.
    pub fn laws(&self, configured: LawNames) -> LawNames {
        LawNames::new(self.law.clone()).unwrap_or(configured)
    }
}

/// Who lifts the limits when this program is killed.
#[derive(Debug, Args)]
pub struct GuardChoice {
    /// In a PID namespace (a container), accept a guard that is killed with it: if the container is killed, limits stay in
    /// force until the next start. Otherwise `headroom guard --serve` must run outside.
    #[arg(long, env = "HEADROOM_ALLOW_GUARD_INSIDE", value_parser = clap::builder::FalseyValueParser::new())]
    pub allow_guard_inside: bool,
}

/// Where the kernel's files are.
#[derive(Debug, Args)]
pub struct Trees {
    /// Use this tree instead of /sys, such as the one of `headroom emulate`.
    #[arg(long, default_value = "/sys", value_name = "DIR")]
    pub sys: PathBuf,
    /// Use this tree instead of /proc.
    #[arg(long, default_value = "/proc", value_name = "DIR")]
    pub proc: PathBuf,
}

impl Trees {
    /// As the node's parts take them: absolute, for what is undone later, and by others, is undone from another folder.
    pub fn roots(&self) -> Roots {
        let absolute = |tree: &PathBuf| std::path::absolute(tree).unwrap_or_else(|_| tree.clone());
        Roots::at(absolute(&self.sys), absolute(&self.proc))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trees_are_absolute_so_that_others_can_undo_what_is_written_there() {
        let trees = Trees {
            sys: "emu".into(),
            proc: "emu/proc".into(),
        };
        let here = std::env::current_dir().unwrap();
        let roots = trees.roots();
        assert_eq!(
            (roots.sys, roots.proc_),
            (here.join("emu"), here.join("emu/proc"))
        );
    }
}
