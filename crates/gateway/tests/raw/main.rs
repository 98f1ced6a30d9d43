//! HTTP by the byte: requests and answers that a gateway meets, each with what RFC 9110, 9112 or 9113 asks for.
//!
//! The cases are in [`rooms`], by section. Each goes over a raw socket to our gateway, in front of a backend that records what
//! it is sent and reads it as one that forgives nothing; and, in the same run, to HAProxy and nginx where they are installed.
//! Ours must be right in all of them. What came of them is in `docs/http-cases.md`, which this test writes with
//! `HEADROOM_WRITE_HTTP_CASES=1` and otherwise compares, in what is ours.

mod case;
#[path = "../common/mod.rs"]
mod common;
mod frames;
mod judge;
mod products;
mod rooms;
mod strict;
mod table;
mod wire;

use case::{Case, Right};
use judge::{Verdict, judge, told};
use products::Product;

/// What came of all cases at one product.
pub struct Run {
    /// The product.
    pub name: &'static str,
    /// The version that it says it has.
    pub version: String,
    /// Of each case, with what happened.
    pub verdicts: Vec<(Verdict, String)>,
}

/// Puts every case to a product, one after another.
fn run(product: &Product, rooms: &[(&'static str, Vec<Case>)]) -> Run {
    let cases = rooms.iter().flat_map(|(_, cases)| cases);
    let verdicts = cases.map(|case| {
        product.recorder.set(&case.backend);
        let address = if case.http2 { product.http2 } else { product.http1 };
        let answers = case.right.iter().map(|right| match right {
            Right::Answered(reply) => reply.answers,
            _ => 1,
        });
        let got = wire::play(case, address, answers.max().unwrap_or(1));
        let recorded = product.recorder.take();
        (judge(case, &got, &recorded), told(&got, &recorded))
    });
    Run {
        name: product.name,
        version: product.version.clone(),
        verdicts: verdicts.collect(),
    }
}

#[test]
fn none_of_ours_is_wrong() {
    let rooms = rooms::all();
    let count: usize = rooms.iter().map(|(_, cases)| cases.len()).sum();
    assert!(count >= 250, "{count} cases");
    let mut products = vec![products::ours()];
    for (name, product) in [("haproxy", products::haproxy()), ("nginx", products::nginx())] {
        match product {
            Some(product) => products.push(product),
            None => println!("skipped: {name} is not installed"),
        }
    }
    // Each has its own backend, so that they can go on at the same time.
    let runs: Vec<Run> = std::thread::scope(|scope| {
        let rooms = &rooms;
        let runs: Vec<_> = products
            .iter()
            .map(|product| scope.spawn(move || run(product, rooms)))
            .collect();
        runs.into_iter().map(|run| run.join().unwrap()).collect()
    });
    println!("{}", table::summary(&runs));
    let names = rooms
        .iter()
        .flat_map(|(room, cases)| cases.iter().map(move |case| format!("{room}: {}", case.name)));
    let all: Vec<String> = names.collect();
    for run in &runs {
        for (name, (verdict, happened)) in all.iter().zip(&run.verdicts) {
            match verdict {
                Verdict::Wrong(why) => println!("{} wrong: {name}: {why}", run.name),
                verdict if run.name == "headroom" => println!("headroom {verdict:?}: {name}: {happened}"),
                _ => {}
            }
        }
    }
    let wrong: Vec<&String> = all
        .iter()
        .zip(&runs[0].verdicts)
        .filter_map(|(name, (verdict, _))| matches!(verdict, Verdict::Wrong(_)).then_some(name))
        .collect();
    assert!(wrong.is_empty(), "{} of ours are wrong: {wrong:#?}", wrong.len());
    table::keep(&rooms, &runs);
}

#[test]
fn a_case_has_a_name_of_its_own_and_something_right() {
    let mut names = std::collections::HashSet::new();
    for (room, cases) in rooms::all() {
        for case in cases {
            assert!(!case.right.is_empty(), "{}", case.name);
            assert!(names.insert((room, case.name)), "{room}: {} twice", case.name);
        }
    }
}
