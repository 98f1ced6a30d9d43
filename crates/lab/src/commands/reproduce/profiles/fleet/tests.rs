use super::super::ProfilesPaperArgs;
use super::*;

/// What holds of a day so short that a law has six periods for each hour's mix; the SLO's share of late periods is for longer ones.
const OF_ENERGY: [&str; 6] = [
    "all on: routing by size takes less than round robin",
    "all on: routing by size takes less than least connections",
    "all on: most of what is drawn is idle, which no routing changes",
    "switching machines off saves more than routing by size alone",
    "with machines switched, routing by size takes less than least connections with a plan of its own",
    "the plan by size takes less than what a controller of a fixed capacity switches",
];

#[test]
fn a_short_day_bears_out_what_is_said_of_energy() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("fleet.html");
    let args = ProfilesPaperArgs {
        windows: 1,
        seed: 1,
        fleet: true,
        seeds: 1,
        hour: 6.0,
        jobs: None,
        out: None,
        json: false,
    };
    let measured = all(&args).unwrap();
    let concluded = conclusions::conclusions(&measured);
    for says in OF_ENERGY {
        let one = concluded.iter().find(|one| one.says == says).unwrap();
        assert!(one.holds, "{one:?}");
    }
    // The same requests came whatever was done with them, and all of them were answered but for those on their way at the end.
    let completed: Vec<u64> = measured
        .days
        .iter()
        .map(|day| day[0].run().unwrap().completed)
        .collect();
    let most = completed.iter().copied().max().unwrap();
    assert!(
        completed.iter().all(|one| *one + most / 1_000 > most),
        "{completed:?}"
    );
    let round_robin = &measured.loads[Way::RoundRobin as usize];
    assert!(
        round_robin[SCALES.len() - 1][0].run().is_none(),
        "four times the load"
    );
    let sheet = page::sheet(&measured, &concluded, &args).unwrap();
    write_sheet(&sheet, None, &out).unwrap();
    let html = std::fs::read_to_string(&out).unwrap();
    for part in [
        "What follows",
        "plan by size, placement",
        "overloaded",
        "Power by hour",
    ] {
        assert!(html.contains(part), "{part}");
    }
}
