//! The law that moves every lever, on an emulated machine and on the workers of a real server at once.

use crate::both::alone;
use crate::common::{Config, Database, Emulator, Program, fuse_or_skipped, metrics_at, until};
use crate::joint::machine_that_boots_in;
use crate::parts::status;
use rustix::process::Signal;
use std::path::Path;

#[test]
fn the_joint_law_commands_the_frequency_and_the_workers_of_a_wrapped_database() {
    if !fuse_or_skipped("emulated hardware") {
        return;
    }
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let emulator = Emulator::start(dir.path(), "headroom-oncall-up", 0.5);
    let config = Config::attached(Path::new("/web"))
        .with(
            "name = [\"slo-power\", \"on-call\"]",
            "name = \"joint\"\n\n[law.joint]\nlate = 0.05\n\n[law.on-call]\nmax_rounds = 3",
        )
        .with("target_ms = 500", "target_ms = 2000")
        .with("requests_per_core_s = 4000.0", "requests_per_core_s = 60.0")
        .with("meter = \"model\"", "meter = \"auto\"")
        .with("[control]", &format!("{}\n[control]", machine_that_boots_in(1.0)));
    let words = format!("--name db --run-dir {}", config.run_dir().display());
    let group = [emulator.sys().join("fs/cgroup/web")];
    let Some(mut database) = Database::start_steered(&words, &group) else {
        return;
    };
    database.prepare();
    let mut command = config.command();
    emulator.trees(&mut command);
    let mut up = Program::start(&mut command);
    let admin = metrics_at(&mut up);
    let load = Program::start(&mut database.sysbench("--threads=8 --rate=300 --time=120 run"));
    // While settings are compared the machine's levers go down no further, and once it is done nobody may be on call: with so little to do that is less
    // work.
    until("workers are commanded", || {
        let setting = &status(admin)?["observation"]["in_force"];
        setting["concurrency"].as_f64().filter(|workers| *workers >= 1.0)
    });
    let (machine, sleep) = until("frequency and workers are commanded by one law", || {
        let status = status(admin)?;
        let setting = &status["observation"]["in_force"];
        setting["frequency"].as_f64().filter(|hertz| *hertz < 2.0e9)?;
        // Each with a reason of its own.
        let reasons = status["decided"]["reasons"].as_array()?;
        let of = |lever: &str| {
            let speaks = |reason: &&serde_json::Value| {
                let levers = reason["levers"].as_array();
                levers.is_some_and(|levers| levers.iter().any(|one| one == lever))
            };
            reasons.iter().find(speaks)?["rule"].as_str().map(str::to_owned)
        };
        Some((of("frequency")?, of("concurrency")?))
    });
    assert!(
        sleep.starts_with("oncall") && !machine.starts_with("oncall"),
        "{machine}, {sleep}"
    );
    drop(load);
    up.signal(Signal::TERM);
    assert!(up.wait().success(), "{}", up.err());
    database.program.ends_well();
}
