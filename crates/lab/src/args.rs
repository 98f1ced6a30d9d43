//! Arguments that several commands have.

use anyhow::anyhow;
use clap::builder::TypedValueParser;
use clap::{Args, ValueEnum};
use headroom_console::Failure;
use headroom_console::args::seconds;
use headroom_console::one_of;
use headroom_control::LawName;
use headroom_workload::auction::SiteConfig;
use std::path::PathBuf;

/// How many seeds a figure is the mean of.
///
/// # Errors
/// What it must be, for clap to say.
pub fn seeds(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(seeds @ 2..=1_000) => Ok(seeds),
        Ok(1) => Err(
            "one run shows no spread, and every figure is printed with its own: give 2 or more, as --seeds 3"
                .to_owned(),
        ),
        _ => Err("give a number from 2 to 1000, as --seeds 3".to_owned()),
    }
}

/// The world of a simulation.
#[derive(Clone, Debug, Args)]
pub struct WorldArgs {
    /// The scenario; by default the three servers of the SLO-Power paper. `headroom sim --example` prints one that
    /// explains every key. In a world of `compare --worlds` its service, delays, telemetry and laws count; servers, load and faults
    /// are the world's.
    #[arg(long, value_name = "FILE")]
    pub scenario: Option<PathBuf>,
    /// How long each value of a trace is held, in seconds.
    #[arg(long, default_value_t = 10.0, value_name = "SECONDS", value_parser = seconds)]
    pub step: f64,
    /// How the requests of a trace are spaced.
    #[arg(long, value_enum, default_value_t = Spacing::Poisson)]
    pub arrivals: Spacing,
    /// Stop after this many simulated seconds, whatever is left of the trace.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub duration: Option<f64>,
    /// In a world (`--world`, `--worlds`) that has none on record: an earlier stretch of the same kind of load is, as of a service that
    /// was observed before.
    #[arg(long)]
    pub recalled: bool,
}

/// The figures of the auction site: what the service serves and what the load visits must agree in them.
#[derive(Clone, Debug, Args)]
pub struct SiteArgs {
    /// Items for sale.
    #[arg(long, default_value_t = 10_000, value_name = "N")]
    pub items: u32,
    /// Users of the site who sell, bid and comment (not those of the load at a time).
    #[arg(long, default_value_t = 10_000, value_name = "N")]
    pub registered_users: u32,
    /// Mean length of a page, in kB; pages are from 2 to 50 kB long.
    #[arg(long, default_value_t = 10.0, value_name = "KB")]
    pub page_kb: f64,
    /// Zipf's exponent of the items' popularity; 0 is even.
    #[arg(long, default_value_t = 0.8, value_name = "EXPONENT")]
    pub popularity: f64,
    /// Seed of the site: which item is popular, who sells it, how long its page is.
    #[arg(long, default_value_t = 1, value_name = "SEED")]
    pub site_seed: u64,
}

impl SiteArgs {
    /// As the site takes them.
    ///
    /// # Errors
    /// A mean length that no site has; other figures are checked where the site is made.
    pub fn config(&self) -> Result<SiteConfig, Failure> {
        let shape = SiteConfig::default();
        let mean_bytes = self.page_kb * 1e3;
        let range = f64::from(shape.least_bytes)..=f64::from(shape.most_bytes);
        if !range.contains(&mean_bytes) {
            return Err(Failure::Usage(anyhow!(
                "--page-kb {}: give from 2 to 50 kB",
                self.page_kb
            )));
        }
        Ok(SiteConfig {
            items: self.items,
            users: self.registered_users,
            mean_bytes: mean_bytes as u32,
            popularity_exponent: self.popularity,
            seed: self.site_seed,
            ..shape
        })
    }
}

/// How requests are spaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Spacing {
    /// A Poisson process of the trace's rate.
    Poisson,
    /// Even gaps.
    Even,
}

impl From<Spacing> for headroom_workload::Spacing {
    fn from(spacing: Spacing) -> Self {
        match spacing {
            Spacing::Poisson => Self::Poisson,
            Spacing::Even => Self::Even,
        }
    }
}

/// The names of the laws, with what help says of each.
pub fn law_names() -> impl TypedValueParser<Value = LawName> {
    one_of(LawName::of_machines().map(|law| (law.as_str(), law.about(), law)))
}

/// How many runs at once.
///
/// # Errors
/// What is no number from 1 to 1024.
pub(crate) fn jobs_at_once(text: &str) -> Result<usize, String> {
    let jobs = text.parse().ok().filter(|jobs| (1..=1024).contains(jobs));
    jobs.ok_or_else(|| "give a number of runs at once, 1 to 1024".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_is_refused_with_the_reason() {
        assert_eq!((seeds("2"), seeds("1000")), (Ok(2), Ok(1000)));
        assert!(seeds("1").unwrap_err().contains("shows no spread"));
        for text in ["0", "1001", "many", "-3"] {
            assert!(seeds(text).unwrap_err().contains("--seeds 3"), "{text}");
        }
    }
}
