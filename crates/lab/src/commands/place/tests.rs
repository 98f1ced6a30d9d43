use super::*;
use clap::Parser;
use std::fs;
use std::path::Path;

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    place: PlaceArgs,
}

fn args(line: &[&str]) -> Result<PlaceArgs, clap::Error> {
    Line::try_parse_from(["place"].iter().chain(line)).map(|line| line.place)
}

fn example() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/placement/day.csv")
}

fn found(line: &[&str]) -> Result<Found, Failure> {
    let args = args(line).unwrap();
    let fleet = fleet(&args.fleet, &args.profile, StudiedService::Apache, &args.server)?;
    let demand = read(&example(), args.step)?;
    let problem = problem(&fleet, &demand, &args);
    let plan = advisor::plan(&problem).map_err(Failure::usage)?;
    Ok(Found {
        alternatives: advisor::alternatives(&problem).map_err(Failure::usage)?,
        equivalences: advisor::equivalences(&problem),
        consolidation: advisor::consolidation(&problem),
        migrations: advisor::migrations(&problem, &plan),
        plan,
        fleet,
        demand,
        problem,
    })
}

const LINE: [&str; 6] = [
    "--fleet",
    "xeon=2,atom=4,arm=40",
    "--slo",
    "P95=250ms",
    "--demand",
    "x.csv",
];

#[test]
fn the_example_is_planned_for_the_machines_of_the_paper() {
    let found = found(&LINE).ok().unwrap();
    assert_eq!((found.plan.steps.len(), found.problem.classes.len()), (24, 4));
    let all_on = found
        .alternatives
        .iter()
        .find(|one| one.name == "all on, least connections")
        .unwrap();
    assert!(found.plan.energy < all_on.plan.as_ref().unwrap().energy * 0.9);
    let page = sheet(&found, &args(&LINE).unwrap());
    let text = sheet_text(&page);
    for words in ["Step by step", "xeon on", "all on, by size", "equals", "fewest"] {
        assert!(text.contains(words), "{text}");
    }
    let printed = json(&found);
    assert_eq!(printed["steps"].as_array().unwrap().len(), 24);
    assert!((printed["energy_j"].as_f64().unwrap() - found.plan.energy.get()).abs() < 1e-6);
    assert_eq!(printed["source"], "estimated");
}

#[test]
fn what_the_law_is_given_is_what_it_reads() {
    let args = args(&LINE).unwrap();
    let fleet = fleet(&args.fleet, &args.profile, StudiedService::Apache, &args.server)
        .ok()
        .unwrap();
    let text = law(&fleet).ok().unwrap();
    let table: toml::Table = text.parse().unwrap();
    let tuning: headroom_control::placement::PlacementTuning =
        table["law"]["placement"].clone().try_into().unwrap();
    assert_eq!((tuning.machines.len(), tuning.kinds.len()), (46, 3));
    assert_eq!(tuning.kinds["xeon"].cores, 8);
}

#[test]
fn a_mistake_is_named_with_its_remedy() {
    let refused = |line: &[&str]| args(line).unwrap_err().to_string();
    assert!(refused(&["--fleet", "xeon", "--slo", "P95=250ms", "--demand", "x"]).contains("as xeon=4"));
    assert!(refused(&["--fleet", "xeon=1", "--slo", "250ms", "--demand", "x"]).contains("as P95=250ms"));
    assert!(refused(&["--fleet", "xeon=1", "--slo", "P95=250ms"]).contains("--demand"));
    let server = ["--server", "xeon:boot=3"];
    assert!(refused(&[&LINE[..], &server].concat()).contains("boot_s"));
    let failed = |line: &[&str]| match found(line) {
        Err(failure) => format!("{failure:?}"),
        Ok(_) => panic!("{line:?}"),
    };
    let with = |fleet: &'static str| [&["--fleet", fleet][..], &LINE[2..]].concat();
    assert!(failed(&with("xeon=1,vax=2")).contains("--fleet vax"));
    assert!(failed(&with("xeon=1,xeon=2")).contains("names xeon twice"));
    assert!(failed(&with("arm=2")).contains("cannot serve"));
    let unknown = ["--server", "vax:boot_s=3"];
    assert!(failed(&[&LINE[..], &unknown].concat()).contains("--server vax"));
    let late = ["--fleet", "xeon=1,arm=2", "--slo", "P99=0.01ms", "--demand", "x"];
    assert!(failed(&late).contains("no kind of machine serves it"));
}

#[test]
fn a_file_that_is_none_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("demand.csv");
    let error = |step| format!("{:?}", read(&file, step).unwrap_err());
    assert!(error(None).contains("demand.csv"));
    fs::write(&file, "0,1K,x\n").unwrap();
    assert!(
        error(None).contains("demand.csv") && error(None).contains("rate \\\"x\\\"")
            || error(None).contains("line 1")
    );
    let profile = format!(
        "{:?}",
        fleet(
            &[("m".to_owned(), 1)],
            std::slice::from_ref(&file),
            StudiedService::Apache,
            &[]
        )
        .unwrap_err()
    );
    assert!(profile.contains("demand.csv"), "{profile}");
}
