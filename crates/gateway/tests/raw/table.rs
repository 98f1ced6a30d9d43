//! The table of what came of the cases, as a page.

use std::fmt::Write;
use std::path::Path;

use crate::Run;
use crate::case::{Case, Right};
use crate::judge::Verdict;

const VARIABLE: &str = "HEADROOM_WRITE_HTTP_CASES";

fn counts(run: &Run) -> [usize; 3] {
    let mut counts = [0; 3];
    for (verdict, _) in &run.verdicts {
        counts[match verdict {
            Verdict::Right => 0,
            Verdict::Differs => 1,
            Verdict::Wrong(_) => 2,
        }] += 1;
    }
    counts
}

/// How many of each product are right, differ, are wrong.
pub fn summary(runs: &[Run]) -> String {
    let mut text = String::new();
    for run in runs {
        let [right, differs, wrong] = counts(run);
        let _ = writeln!(
            text,
            "{} {}: {right} right, {differs} differ, {wrong} wrong",
            run.name, run.version
        );
    }
    text
}

/// What is right, in a few words.
fn wanted(case: &Case) -> String {
    let words: Vec<String> = case
        .right
        .iter()
        .map(|right| match right {
            Right::Refused(statuses) => {
                let statuses: Vec<String> = statuses.iter().map(u16::to_string).collect();
                format!("refused, {}", statuses.join(" or "))
            }
            Right::Forwarded(meaning) => {
                let start: String = meaning.start.chars().take(60).collect();
                let rest = if start.len() < meaning.start.len() {
                    "..."
                } else {
                    ""
                };
                format!("`{start}{rest}`")
            }
            Right::Answered(reply) => {
                let broken = if reply.is_whole { "" } else { ", broken off" };
                let interims = reply
                    .interims
                    .iter()
                    .flatten()
                    .map(|status| format!("{status}, "));
                format!("{}{}{broken}", interims.collect::<String>(), reply.status)
            }
        })
        .collect();
    words.join("; or ").replace('|', "\\|")
}

fn word(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Right => "right",
        Verdict::Differs => "differs",
        Verdict::Wrong(_) => "**wrong**",
    }
}

fn page(rooms: &[(&'static str, Vec<Case>)], runs: &[Run]) -> String {
    let mut text = String::from(
        "# HTTP by the byte\n\nRequests and answers that a gateway meets, each with its section of RFC 9110, 9112 or 9113 and what \
         is right by it, put over raw sockets to our gateway, to HAProxy and to nginx in one run, in front of a backend that forgives \
         nothing. *right*: what the section asks for (MUST, SHOULD); *differs*: something else that it allows, also a connection that \
         is closed without a status; *wrong*: neither. The cases are in `crates/gateway/tests/raw/rooms`; how the others are \
         configured is in `products.rs` beside them. The page is written by\n\n```sh\nHEADROOM_WRITE_HTTP_CASES=1 cargo test -p \
         headroom-gateway --test raw\n```\n\nand the same test without the variable fails where the part of it that is ours has \
         changed.\n\nTwo things are not among the cases, for the HTTP/2 server library gives the gateway no way to do them: interim \
         answers are not sent over HTTP/2 (RFC 9110 section 15.2), and a pseudo-field among trailers is dropped where RFC 9113 section \
         8.1 has the request refused.\n\n| | cases | right | differs | wrong |\n|---|---|---|---|---|\n",
    );
    for run in runs {
        let [right, differs, wrong] = counts(run);
        let _ = writeln!(
            text,
            "| {} {} | {} | {right} | {differs} | {wrong} |",
            run.name,
            run.version,
            run.verdicts.len()
        );
    }
    let mut number = 0;
    for (room, cases) in rooms {
        let _ = write!(text, "\n## {room}\n\n| case | RFC | right is |");
        for run in runs {
            let _ = write!(text, " {} |", run.name);
        }
        let _ = writeln!(text, "\n|---|---|---|{}", "---|".repeat(runs.len()));
        for case in cases {
            let _ = write!(
                text,
                "| {} | {} | {} |",
                case.name.replace('|', "\\|"),
                case.section,
                wanted(case)
            );
            for run in runs {
                let _ = write!(text, " {} |", word(&run.verdicts[number].0));
            }
            text.push('\n');
            number += 1;
        }
    }
    text
}

/// The part of a page that does not depend on what else is installed.
fn of_ours(page: &str) -> Vec<String> {
    let rows = page
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| case"));
    // Case, section, what is right, and ours.
    let cells = rows.map(|row| row.split(" | ").take(4).collect::<Vec<_>>());
    cells
        .filter(|cells| cells.len() == 4 && cells[0] != "| ")
        .filter(|cells| cells[1].starts_with(['3', '9']))
        .map(|cells| cells.join(" | ").trim_end_matches(" |").to_owned())
        .collect()
}

/// Writes the page where that is asked for; otherwise compares it.
pub fn keep(rooms: &[(&'static str, Vec<Case>)], runs: &[Run]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/http-cases.md");
    let page = page(rooms, runs);
    if std::env::var_os(VARIABLE).is_some() {
        assert_eq!(
            runs.len(),
            3,
            "the page is written where haproxy and nginx are installed"
        );
        std::fs::write(&path, page).unwrap();
        return;
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    let (kept, is) = (of_ours(&kept), of_ours(&page));
    let changed: Vec<&String> = is.iter().filter(|row| !kept.contains(row)).take(5).collect();
    assert!(
        changed.is_empty() && kept.len() == is.len(),
        "docs/http-cases.md has {} cases of {}, and lacks {changed:#?}: write it again with {VARIABLE}=1",
        kept.len(),
        is.len()
    );
}
