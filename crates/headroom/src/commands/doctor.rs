//! `headroom doctor`: which levers and meters this machine has, and what would help where it lacks one.

use crate::args::Trees;
use clap::Args;
use headroom_console::Failure;
use headroom_console::say;
use headroom_node::order::Word;
use headroom_node::power::MeterKind;
use headroom_node::probe::{Finding, Kind, State, probe};
use std::io::IsTerminal;

/// `headroom doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Print the findings as JSON.
    #[arg(long)]
    pub json: bool,
    /// Where the kernel's files are.
    #[command(flatten)]
    pub trees: Trees,
}

/// Prints the findings.
///
/// # Errors
/// Standard output that cannot be written.
pub fn run(args: &DoctorArgs) -> Result<(), Failure> {
    let findings = probe(&args.trees.roots());
    if args.json {
        return say::result(serde_json::to_string(&findings)?);
    }
    let colour = std::io::stdout().is_terminal();
    let width = findings
        .iter()
        .map(|finding| finding.what.len())
        .max()
        .unwrap_or(0);
    let mut text = String::new();
    for (kind, title) in [
        (Kind::Lever, "Levers: what can be turned to save power"),
        (
            Kind::Meter,
            "Meters: what says how much is drawn, how busy the machine is, and what waits",
        ),
        (Kind::Tool, "Tools: what some meters, the demo and the tests use"),
    ] {
        text.push_str(&format!("{title}\n"));
        for finding in findings.iter().filter(|finding| finding.kind == kind) {
            text.push_str(&paragraph(finding, width, colour));
        }
        text.push('\n');
    }
    let usable = |finding: &&Finding| finding.state != State::Unusable;
    let mut usable = findings.iter().filter(usable);
    let lever = usable.clone().any(|finding| finding.kind == Kind::Lever);
    let power = usable.any(|finding| MeterKind::ALL.iter().any(|kind| kind.finding() == finding.what));
    text.push_str(verdict(lever, power));
    say::result(text)
}

fn verdict(lever: bool, power: bool) -> &'static str {
    match (lever, power) {
        (true, true) => "Headroom can run here: `headroom demo` shows it.",
        (true, false) => "Headroom can save here but not say how much: no meter of power can be used.",
        (false, _) => {
            "Headroom can only watch here: no lever can be used. The remedies above say what would help."
        }
    }
}

fn paragraph(finding: &Finding, width: usize, colour: bool) -> String {
    let (mark, code) = match finding.state {
        State::Usable => ("yes    ", "32"),
        State::Limited => ("limited", "33"),
        State::Unusable => ("no     ", "31"),
    };
    let mark = if colour {
        format!("\x1b[{code}m{mark}\x1b[0m")
    } else {
        mark.to_owned()
    };
    let mut text = format!("  {mark}  {:<width$} {}\n", finding.what, finding.why);
    if let Some(remedy) = &finding.remedy {
        text.push_str(&format!("           {:<width$} remedy: {remedy}\n", ""));
    }
    if finding.state != State::Usable {
        text.push_str(&format!(
            "           {:<width$} looked at: {}\n",
            "",
            finding.evidence.display()
        ));
    }
    text
}
