use super::*;
use crate::simulate::sheet_text;
use clap::Parser;
use headroom_control::placement::FirstFull;
use headroom_record::profile::{Baseline, BaselineKind, Link, Meter, Profile, Protocol, Window};
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
    find(fleet, demand, &args)
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
    for words in [
        "Step by step",
        "xeon on",
        "all on, by size",
        "equals",
        "fewest",
        "standby",
        "full first",
    ] {
        assert!(text.contains(words), "{text}");
    }
    let printed = json(&found);
    let bare = &printed["without_margin"];
    assert!(
        bare["energy_j"].as_f64().unwrap() < found.plan.energy.get(),
        "{bare}"
    );
    assert!(text.contains("Without that margin"), "{text}");
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
    let text = law(&fleet, 1.0).ok().unwrap();
    // Long answers take less of the Arm's link by the line than by the plan's figures.
    assert!(
        text.contains("# The law does not know: the figures of arm are one line") && text.contains("999 KB"),
        "{text}"
    );
    let table: toml::Table = text.parse().unwrap();
    let tuning: headroom_control::placement::PlacementTuning =
        table["law"]["placement"].clone().try_into().unwrap();
    assert_eq!((tuning.machines.len(), tuning.kinds.len()), (46, 3));
    assert_eq!(tuning.kinds["xeon"].cores, 8);
    // At a share of the speed cores and link are slower, and the watts the same.
    let slow = law(&fleet, 0.02).ok().unwrap();
    assert!(
        text.contains("give --speed") && slow.contains("emulated at 0.02"),
        "{slow}"
    );
    let slow: toml::Table = slow.parse().unwrap();
    let slow: headroom_control::placement::PlacementTuning =
        slow["law"]["placement"].clone().try_into().unwrap();
    let (own, slow) = (&tuning.kinds["arm"], &slow.kinds["arm"]);
    let ratios = [
        slow.link_bytes_per_s / own.link_bytes_per_s,
        own.request_us / slow.request_us,
        own.kilobyte_us / slow.kilobyte_us,
    ];
    assert!(
        ratios.iter().all(|ratio| (ratio - 0.02).abs() < 1e-9),
        "{ratios:?}"
    );
    assert_eq!((slow.busy_w, slow.cores), (own.busy_w, own.cores));
}

#[test]
fn a_mistake_is_named_with_its_remedy() {
    let refused = |line: &[&str]| args(line).unwrap_err().to_string();
    assert!(refused(&["--fleet", "xeon", "--slo", "P95=250ms", "--demand", "x"]).contains("as xeon=4"));
    assert!(refused(&["--fleet", "xeon=1", "--slo", "250ms", "--demand", "x"]).contains("as P95=250ms"));
    assert!(refused(&["--fleet", "xeon=1", "--slo", "P95=250ms"]).contains("--demand"));
    assert!(
        refused(&["--fleet", "xeon=0", "--slo", "P95=250ms", "--demand", "x"]).contains("leave xeon out")
    );
    for margin in ["-0.1", "nan", "1e9", "x"] {
        let margin = format!("--margin={margin}");
        assert!(refused(&[&LINE[..], &[&margin]].concat()).contains("share of the mean"));
    }
    assert!(refused(&[&LINE[..], &["--speed", "0.02"]].concat()).contains("--law"));
    assert!(refused(&[&LINE[..], &["--law", "--speed", "0"]].concat()).contains("share of the speed"));
    assert!(
        args(&["--fleet", "xeon=1", "--slo", "P95=250ms", "--law"]).is_ok(),
        "the law needs no demand"
    );
    let both = args(&[&LINE[..], &["--law"]].concat()).unwrap();
    assert!(format!("{:?}", law_alone(&both)).contains("leave --demand out"));
    let server = ["--server", "xeon:boot=3"];
    assert!(refused(&[&LINE[..], &server].concat()).contains("boot_s"));
    let failed = |line: &[&str]| match found(line) {
        Err(failure) => format!("{failure:?}"),
        Ok(_) => panic!("{line:?}"),
    };
    let with = |fleet: &'static str| [&["--fleet", fleet][..], &LINE[2..]].concat();
    assert!(failed(&with("xeon=1,vax=2")).contains("--fleet vax"));
    assert!(failed(&with("xeon=1,xeon=2")).contains("names xeon twice"));
    let unmet = failed(&with("arm=2"));
    assert!(
        unmet.contains("cannot serve") && unmet.contains("--margin"),
        "{unmet}"
    );
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

#[test]
fn the_plan_is_set_beside_the_best_way_that_keeps_the_slo_and_saves_nothing_on_others() {
    let line = [&["--fleet", "xeon=2,atom=2,arm=2"][..], &LINE[2..]].concat();
    let found = found(&line).ok().unwrap();
    let page = sheet(&found, &args(&line).unwrap());
    let kept = found.alternatives.iter().filter(|one| one.late.is_empty());
    let kept = kept.filter_map(|one| Some((one, one.plan.as_ref().ok()?.energy.get())));
    let (best, energy) = kept.min_by(|one, two| one.1.total_cmp(&two.1)).unwrap();
    let percent = (1.0 - found.plan.energy.get() / energy) * 100.0;
    let words = format!(
        "{percent:.1} % less than the best other way that keeps the SLO ({})",
        best.name
    );
    assert!(page.lead.contains(&words), "{}", page.lead);
    let rows = &page.sections[1].tables[0].rows;
    assert_eq!(rows.len(), found.alternatives.len() + 1);
    let missing: Vec<_> = found
        .alternatives
        .iter()
        .filter(|one| !one.late.is_empty())
        .collect();
    assert!(!missing.is_empty(), "round robin fills the small machines");
    for one in missing {
        let row = rows.iter().find(|row| row[0] == one.name).unwrap();
        assert_eq!(row[4], "misses the SLO");
    }
    let printed = json(&found);
    for one in printed["alternatives"].as_array().unwrap() {
        let is_late = !one["late_steps"].as_array().unwrap().is_empty();
        assert_eq!(
            one["plan_saves_percent"].is_null(),
            is_late || !one["error"].is_null(),
            "{one}"
        );
    }
    assert_eq!(
        printed["standby_j"].as_f64(),
        Some(found.plan.standby(&found.problem).get())
    );
}

#[test]
fn a_margin_asks_for_more_machines() {
    let line = [&["--fleet", "xeon=2,atom=2,arm=2"][..], &LINE[2..]].concat();
    let with = |margin: &'static str| {
        found(&[&line[..], &["--margin", margin]].concat())
            .ok()
            .unwrap()
            .plan
            .energy
    };
    let (none, half) = (with("0"), with("0.5"));
    let assumed = found(&line).ok().unwrap();
    assert!(none < assumed.plan.energy && none < half, "{none} {half}");
    let page = sheet_text(&sheet(&assumed, &args(&line).unwrap()));
    assert!(
        page.contains("assumed: 25 % above the course") && page.contains("x mean"),
        "{page}"
    );
}

/// A profile of a server of one thread on eight cores.
fn one_thread(name: &str, protocol: Protocol, link: Option<f64>) -> Profile {
    let mut profile = Profile {
        schema: Profile::SCHEMA.to_owned(),
        name: name.to_owned(),
        meter: Some(Meter {
            name: "plug".to_owned(),
            source: headroom_units::Source::Estimated,
            of: "the machine".to_owned(),
        }),
        ..Profile::default()
    };
    profile.machine.cores = 8;
    profile.machine.link = link.map(|bits_per_s| Link {
        name: "eth0".to_owned(),
        bits_per_s: Some(bits_per_s),
    });
    profile.service.protocol = protocol;
    profile.baselines = vec![Baseline {
        power_w: Some(20.0),
        busy_cores: Some(0.0),
        link_bytes_per_s: Some(0.0),
        ..Baseline::new(BaselineKind::Idle)
    }];
    profile.cells = [(1024, 1000), (102_400, 400)]
        .map(|(size, rate)| {
            let window = Window {
                length_s: 5.0,
                sending_share: 1.0,
                completed: 5 * rate,
                content_bytes: 5 * rate * size,
                power_w: Some(25.0),
                busy_cores: Some(1.0),
                received_per_s: Some(1.0),
                sent_per_s: Some((rate * size) as f64),
                ..Window::default()
            };
            let mut cell = headroom_record::profile::Cell::new(size, 1.0);
            cell.windows = vec![window; 5];
            cell
        })
        .to_vec();
    profile
}

#[test]
fn no_plan_counts_on_more_than_a_profile_measured() {
    let folder = tempfile::tempdir().unwrap();
    let [file, other, demand] = ["m.json", "cache.json", "day.csv"].map(|name| folder.path().join(name));
    one_thread("m", Protocol::Http, Some(1e9)).write(&file).unwrap();
    one_thread("cache", Protocol::Memcached, None)
        .write(&other)
        .unwrap();
    fs::write(&demand, "size,step,requests_per_s\n1K,0,1500\n100K,0,200\n").unwrap();
    let profile = file.display().to_string();
    let line = [
        "--fleet",
        "m=9",
        "--slo",
        "P95=250ms",
        "--demand",
        "x",
        "--profile",
        &profile,
        "--margin",
        "0",
    ];
    let args = args(&line).unwrap();
    let kinds = |names: &[&str], profiles: &[PathBuf]| {
        let counts: Vec<(String, u32)> = names.iter().map(|name| ((*name).to_owned(), 9)).collect();
        fleet(&counts, profiles, StudiedService::Apache, &[])
    };
    let unused = kinds(&["m"], &[file.clone(), other.clone()]).err().unwrap();
    assert!(unused.to_string().contains("cache.json is of cache"), "{unused}");
    let fleet = kinds(&["m"], std::slice::from_ref(&file)).ok().unwrap();
    let found = find(fleet, read(&demand, None).ok().unwrap(), &args)
        .ok()
        .unwrap();
    // Shares of the maxima: 1.5 + 0.5 machines; by its cores a quarter of one would do.
    let planned = &found.plan.steps[0];
    let limit = planned
        .groups
        .iter()
        .map(|group| group.limit.get())
        .fold(0.0, f64::max);
    assert_eq!(planned.on[0], (2.0 / limit).ceil() as u32, "{planned:?}");
    assert!(planned.on[0] > 2);
    let page = sheet_text(&sheet(&found, &args));
    assert!(
        page.contains("other, as measured") && page.contains("at most 1000/s of 1 KB, 400/s of 100 KB"),
        "{page}"
    );
    let law = law(&found.fleet, 1.0).ok().unwrap();
    assert!(
        law.contains("# The law does not know: m was measured to serve at most 1000/s"),
        "{law}"
    );
    // Without a link's speed its share is not known, and neither is whether it was full.
    one_thread("m", Protocol::Http, None).write(&file).unwrap();
    let unknown = kinds(&["m"], std::slice::from_ref(&file)).ok().unwrap();
    assert_eq!(unknown[0].full_first(102_400.0), FirstFull::Other);
    assert_eq!(
        unknown[0].most_of(102_400.0).map(|most| most.get().round()),
        Some(400.0)
    );
    let mixed = kinds(&["m", "cache"], &[file, other]).unwrap_err();
    assert!(
        format!("{mixed:?}").contains("m serves HTTP and cache serves memcached"),
        "{mixed:?}"
    );
}

#[test]
fn what_a_generator_on_the_same_machine_drew_is_taken_off_a_real_meters_watts_or_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("m.json");
    let counts = [("m".to_owned(), 1)];
    let planned = |profile: &Profile| {
        profile.write(&file).unwrap();
        let kinds = fleet(&counts, std::slice::from_ref(&file), StudiedService::Apache, &[]);
        kinds.map(|mut kinds| kinds.remove(0))
    };
    let mut local = one_thread("m", Protocol::Http, Some(1e9));
    // 20 W idle and 5 W a core: the service's, and half as much of the generator's.
    local.client_is_local = true;
    local.meter.as_mut().unwrap().source = headroom_units::Source::Measured;
    for (cell, cores) in local.cells.iter_mut().zip([1.0, 3.0]) {
        for window in &mut cell.windows {
            window.busy_cores = Some(cores);
            window.client_cores = cores / 2.0;
            window.power_w = Some(20.0 + 5.0 * 1.5 * cores);
        }
    }
    let kind = planned(&local).ok().unwrap();
    let busy = kind.machine.busy.get();
    assert!(
        (busy - 40.0).abs() < 0.1 && (kind.machine.idle.get() - 20.0).abs() < 0.1,
        "{kind:?}"
    );
    let notes = kind.notes.join("\n");
    assert!(notes.contains("taken off by its cores (33 % of"), "{notes}");
    // A model's watts have no generator in them.
    local.meter.as_mut().unwrap().source = headroom_units::Source::Estimated;
    let modelled = planned(&local).ok().unwrap();
    assert!((modelled.machine.busy.get() - 60.0).abs() < 0.1, "{modelled:?}");
    assert!(!modelled.notes.join("\n").contains("taken off"));
    local.meter.as_mut().unwrap().source = headroom_units::Source::Measured;
    for window in local.cells.iter_mut().flat_map(|cell| &mut cell.windows) {
        window.client_cores = 0.0;
    }
    let refused = format!("{:?}", planned(&local).err().unwrap());
    assert!(
        refused.contains("m.json") && refused.contains("from another machine"),
        "{refused}"
    );
}

#[test]
fn a_class_of_mixed_sizes_is_in_time_at_its_large_answers() {
    let line = [
        "--fleet",
        "arm=40",
        "--slo",
        "P95=250ms",
        "--demand",
        "x",
        "--margin",
        "0",
    ];
    let args = args(&line).unwrap();
    // 30 MB take an idle Arm about a second; the mean of the class a tenth of that.
    let planned = |late_bytes| {
        let demand = Demand {
            step: Seconds::new(3600.0),
            classes: vec![demand::DemandClass {
                size_bytes: 3e6,
                late_bytes,
                rates: vec![PerSecond::new(5.0)],
            }],
            ..Demand::default()
        };
        let fleet = fleet(&args.fleet, &[], StudiedService::Apache, &[]).ok().unwrap();
        find(fleet, demand, &args).map(|found| found.problem.classes)
    };
    assert_eq!(planned(3e6).ok().unwrap(), ["2.9 MB"]);
    let refused = planned(3e7).err().unwrap().to_string();
    assert!(
        refused.contains("2.9 MB (to 28.6 MB)") && refused.contains("within the SLO"),
        "{refused}"
    );
}

#[test]
fn a_profile_beside_other_programs_is_refused_or_its_cells_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("m.json");
    let of = |profile: &Profile| {
        profile.write(&file).unwrap();
        fleet(
            &[("m".to_owned(), 1)],
            std::slice::from_ref(&file),
            StudiedService::Apache,
            &[],
        )
    };
    let mut busy = one_thread("m", Protocol::Http, Some(1e9));
    busy.baselines[0].busy_cores = Some(3.0);
    let why = of(&busy).err().unwrap().to_string();
    assert!(
        why.contains("m.json") && why.contains("3.00 of 8 cores") && why.contains("--fresh"),
        "{why}"
    );
    // In a tenth of the time 24 cores of 8: a cell that says so is none of the service's.
    let mut disturbed = one_thread("m", Protocol::Http, Some(1e9));
    for cell in &mut disturbed.cells {
        for window in &mut cell.windows {
            (window.sending_share, window.busy_cores) = (0.1, Some(2.4));
        }
    }
    let why = of(&disturbed).err().unwrap().to_string();
    assert!(why.contains("none of 2 cells can be used"), "{why}");
}
