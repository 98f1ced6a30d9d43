//! `headroom doctor`: which levers and meters this machine has, and what would help where it lacks one.

use crate::args::Trees;
use crate::check::savings;
use clap::Args;
use headroom_console::Failure;
use headroom_console::say;
use headroom_console::terminal::columns;
use headroom_node::order::Word;
use headroom_node::power::MeterKind;
use headroom_node::probe::{Finding, Kind, State, probe};
use serde_json::json;

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
    let roots = args.trees.roots();
    let findings = probe(&roots);
    let savings = savings::of_machine(&roots, &findings);
    if args.json {
        return say::result(json!({ "findings": findings, "savings": savings }));
    }
    let page = Page::of_output();
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
            page.finding(&mut text, finding);
        }
        text.push('\n');
    }
    if !savings.is_empty() {
        let title = "Savings: what each lever can save of the same work, by the figures of a Skylake server with as many cores \
                     (`headroom up --check` goes by [machine])";
        page.paragraph(&mut text, "", title);
        for saving in &savings {
            page.paragraph(&mut text, "  ", saving.lever);
            page.paragraph(&mut text, DETAIL, &savings::words(saving));
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

/// Where details stand: below the names.
const DETAIL: &str = "           ";

/// How the output is written: in a terminal with colours and within its columns, elsewhere a fact a line.
struct Page {
    columns: Option<usize>,
}

impl Page {
    fn of_output() -> Self {
        Self { columns: columns() }
    }

    fn paragraph(&self, text: &mut String, indent: &str, words: &str) {
        let options = textwrap::Options::new(self.columns.unwrap_or(usize::MAX))
            .initial_indent(indent)
            .subsequent_indent(indent);
        text.push_str(&textwrap::fill(words, options));
        text.push('\n');
    }

    fn finding(&self, text: &mut String, finding: &Finding) {
        let (mark, code) = match finding.state {
            State::Usable => ("yes    ", "32"),
            State::Limited => ("limited", "33"),
            State::Unusable => ("no     ", "31"),
        };
        match self.columns {
            Some(_) => text.push_str(&format!("  \x1b[{code}m{mark}\x1b[0m  {}\n", finding.what)),
            None => text.push_str(&format!("  {mark}  {}\n", finding.what)),
        }
        self.paragraph(text, DETAIL, &finding.why);
        if let Some(remedy) = &finding.remedy {
            self.paragraph(text, DETAIL, &format!("remedy: {remedy}"));
        }
        if finding.state != State::Usable {
            self.paragraph(
                text,
                DETAIL,
                &format!("looked at: {}", finding.evidence.display()),
            );
        }
    }
}
