//! `headroom tune`: the parameters of a law that need the least energy for a service and a trace.

use crate::args::{WorldArgs, jobs_at_once, law_names, seeds};
use crate::simulate::{Setting, jobs};
use crate::tuning::{Outcome, Search};
use clap::Args;
use headroom_console::Failure;
use headroom_console::say;
use headroom_control::LawName;
use headroom_record::statistics::Estimate;
use std::time::Instant;

/// `headroom tune`.
#[derive(Debug, Args)]
pub struct TuneArgs {
    /// The world.
    #[command(flatten)]
    pub world: WorldArgs,
    /// The law whose parameters are searched.
    #[arg(long, value_parser = law_names(), value_name = "LAW", default_value_t = LawName::SLO_POWER)]
    pub law: LawName,
    /// The trace, as for `headroom sim`.
    #[arg(long, value_name = "NAME|FILE")]
    pub trace: Option<String>,
    /// How many sets of parameters are tried.
    #[arg(long, default_value_t = 60, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub budget: u64,
    /// How many seeds each set is tried on; as many others, not used by the search, judge the winner.
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = seeds)]
    pub seeds: u64,
    /// Seed of the search.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// The share of periods that may be over the target, percent; by default what the defaults reach, and at least 1.
    #[arg(long, value_name = "PERCENT")]
    pub max_over: Option<f64>,
    /// Runs at once; by default as many as there are processors.
    #[arg(long, value_name = "N", value_parser = jobs_at_once)]
    pub jobs: Option<usize>,
    /// Print the result as JSON on standard output, and nothing else there.
    #[arg(long)]
    pub json: bool,
}

/// Searches, judges the winner on fresh seeds, and prints both.
///
/// # Errors
/// A law without parameters, a scenario or a trace that is wrong, a run that does not end.
pub fn run(args: &TuneArgs) -> Result<(), Failure> {
    let file = Setting::read(args.world.scenario.as_deref())?;
    let started = Instant::now();
    let outcome = Search {
        file: &file,
        law: args.law,
        world: &|seed| file.with_trace(args.trace.as_deref(), &args.world, seed),
        budget: args.budget,
        seeds: args.seeds,
        seed: args.seed,
        max_over_percent: args.max_over,
        threads: jobs(args.jobs),
    }
    .run()?;
    say::note!(
        "{} sets of parameters in {:.1} s",
        outcome.tried,
        started.elapsed().as_secs_f64()
    );
    if args.json {
        return say::result(serde_json::to_string(&outcome)?);
    }
    say::result(text(&outcome))
}

fn text(outcome: &Outcome) -> String {
    let written = |over: Option<Estimate>| over.map_or("-".to_owned(), |over| over.written(2));
    let verdict = match outcome.recommended {
        true => {
            "They are worth it: the saving is none of chance's, and the SLO is kept as often as was asked."
        }
        false => {
            "Keep the defaults: on seeds that the search never saw, the saving could be chance's, or the SLO is broken \
             more often than was asked. A larger --budget or more --seeds may find more."
        }
    };
    format!(
        "{}\n# {} sets of parameters on {}, {} seeds; judged on {} other seeds, with 95 % confidence:\n\
         #   energy            {} % against the defaults ({} J, {} J)\n\
         #   over the bound    {} %, the defaults {} %\n\
         #   periods over      {} %, the defaults {} %, at most {:.2} % asked\n# {verdict}",
        outcome.toml,
        outcome.tried,
        outcome.trace,
        outcome.seeds,
        outcome.seeds,
        outcome.energy_percent.written(2),
        outcome.tuned_j.written(0),
        outcome.default_j.written(0),
        written(outcome.tuned_over_bound_percent),
        written(outcome.default_over_bound_percent),
        outcome.tuned_over_percent.written(2),
        outcome.default_over_percent.written(2),
        outcome.allowed_over_percent,
    )
}
