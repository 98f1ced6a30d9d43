use super::*;
use crate::clock::fake::FakeClock;
use crate::testing::says;
use headroom_units::Joules;
use std::fs;
use std::path::Path;

fn zone(sys: &Path, dir: &str, name: &str, energy: u64) {
    let dir = sys.join("class/powercap").join(dir);
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join("name"), format!("{name}\n")).unwrap();
    fs::write(dir.join("energy_uj"), format!("{energy}\n")).unwrap();
    fs::write(dir.join("max_energy_range_uj"), "262143328850\n").unwrap();
}

struct Server {
    dir: tempfile::TempDir,
    clock: FakeClock,
    busy_s: std::cell::Cell<u64>,
}

impl Server {
    fn new() -> Self {
        let server = Self {
            dir: tempfile::tempdir().unwrap(),
            clock: FakeClock::default(),
            busy_s: std::cell::Cell::new(0),
        };
        for package in 0..2 {
            server.zone(
                &format!("intel-rapl:{package}"),
                &format!("package-{package}"),
                1_000_000,
            );
            server.zone(&format!("intel-rapl:{package}:0"), "core", 1_000_000);
            server.zone(&format!("intel-rapl:{package}:1"), "dram", 1_000_000);
        }
        server.zone("intel-rapl:2", "psys", 1_000_000);
        server.zone("intel-rapl-mmio:0", "package-0", 5);
        server.zone("dtpm", "dtpm", 5);
        server.pass(0);
        server
    }

    fn zone(&self, dir: &str, name: &str, energy: u64) {
        zone(&self.dir.path().join("sys"), dir, name, energy);
    }

    /// All packages and memory at one value.
    fn all(&self, energy: u64) {
        for package in 0..2 {
            self.zone(
                &format!("intel-rapl:{package}"),
                &format!("package-{package}"),
                energy,
            );
            self.zone(&format!("intel-rapl:{package}:1"), "dram", energy);
        }
    }

    /// Time passes, with one CPU busy.
    fn pass(&self, seconds: u64) {
        self.busy_s.set(self.busy_s.get() + seconds);
        self.clock.pass(Duration::from_secs(seconds), Duration::ZERO);
        fs::create_dir_all(self.dir.path().join("proc")).unwrap();
        let text = format!("cpu  {} 0 0 0 0 0 0 0\n", self.busy_s.get() * 100);
        fs::write(self.dir.path().join("proc/stat"), text).unwrap();
    }

    fn roots(&self) -> Roots {
        Roots::at(self.dir.path().join("sys"), self.dir.path().join("proc"))
    }

    fn remove(&self, dir: &str) {
        fs::remove_dir_all(self.dir.path().join("sys/class/powercap").join(dir)).unwrap();
    }

    fn open(&self) -> RaplMeter {
        RaplMeter::open_with(&self.roots(), RaplTotal::Packages, Box::new(self.clock.clone())).unwrap()
    }
}

#[test]
fn packages_and_dram_are_added_and_nothing_twice() {
    let server = Server::new();
    let mut meter = server.open();
    server.pass(2);
    server.all(2_000_000);
    server.zone("intel-rapl:0:0", "core", 2_000_000);
    server.zone("intel-rapl:2", "psys", 9_000_000);
    let sample = meter.sample().unwrap();
    assert_eq!(sample.energy, Reading::new(Joules::new(4.0), Source::Measured));
    assert_eq!(
        sample.power,
        Some(Reading::new(Watts::new(2.0), Source::Measured))
    );
    let of = |counted: bool| -> Vec<&str> {
        let zones = sample.zones.iter().filter(|zone| zone.counted == counted);
        zones.map(|zone| zone.zone.as_str()).collect()
    };
    assert_eq!(of(true), ["package-0", "package-1", "dram-0", "dram-1"]);
    assert_eq!(of(false), ["psys", "core-0", "core-1"]);
}

#[test]
fn psys_is_the_total_where_it_is_asked_for_or_alone() {
    let server = Server::new();
    let mut meter = RaplMeter::open_with(
        &server.roots(),
        RaplTotal::Platform,
        Box::new(server.clock.clone()),
    )
    .unwrap();
    server.pass(1);
    server.all(5_000_000);
    server.zone("intel-rapl:2", "psys", 31_000_000);
    let sample = meter.sample().unwrap();
    assert_eq!((sample.energy.value, meter.name()), (Joules::new(30.0), "psys"));
    let dir = tempfile::tempdir().unwrap();
    zone(dir.path(), "intel-rapl:0", "psys", 7);
    let roots = Roots::at(dir.path(), "/proc");
    assert_eq!(counted(&powercap::zones(&roots), RaplTotal::Packages), [true]);
    assert!(RaplMeter::open(&roots).is_ok());
    let no_psys = tempfile::tempdir().unwrap();
    zone(no_psys.path(), "intel-rapl:0", "package-0", 7);
    let error = RaplMeter::open_total(&Roots::at(no_psys.path(), "/proc"), RaplTotal::Platform).unwrap_err();
    assert!(error.to_string().contains("no platform (psys)"), "{error}");
}

#[test]
fn a_masked_directory_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let roots = Roots::at(dir.path(), "/proc");
    says(RaplMeter::open(&roots).unwrap_err(), &["no powercap directory"]);
    fs::create_dir_all(dir.path().join("class/powercap")).unwrap();
    says(RaplMeter::open(&roots).unwrap_err(), &["container masks it"]);
}

#[test]
fn a_counter_that_cannot_be_read_is_an_error_and_charges_nobody() {
    let server = Server::new();
    let mut meter = server.open();
    fs::remove_file(
        server
            .dir
            .path()
            .join("sys/class/powercap/intel-rapl:1/energy_uj"),
    )
    .unwrap();
    server.pass(1);
    says(meter.sample().unwrap_err(), &["intel-rapl:1/energy_uj"]);
    server.all(3_000_000);
    assert_eq!(meter.sample().unwrap().energy.value, Joules::new(8.0));
}

#[test]
fn a_package_that_goes_away_and_comes_back_is_counted_while_it_is_there() {
    let server = Server::new();
    let mut meter = server.open();
    server.remove("intel-rapl:1");
    server.remove("intel-rapl:1:0");
    server.remove("intel-rapl:1:1");
    server.pass(1);
    server.zone("intel-rapl:0", "package-0", 6_000_000);
    let sample = meter.sample().unwrap();
    assert_eq!(
        (sample.energy.value, sample.power),
        (Joules::new(5.0), None),
        "the total has changed"
    );
    server.pass(1);
    server.zone("intel-rapl:0", "package-0", 16_000_000);
    let sample = meter.sample().unwrap();
    assert_eq!(sample.power.map(|power| power.value), Some(Watts::new(10.0)));
    // It comes back with a counter that has started anew.
    server.zone("intel-rapl:1", "package-1", 77_000_000);
    server.zone("intel-rapl:1:1", "dram", 5);
    server.pass(1);
    server.zone("intel-rapl:0", "package-0", 26_000_000);
    meter.sample().unwrap();
    server.pass(1);
    server.zone("intel-rapl:0", "package-0", 36_000_000);
    server.zone("intel-rapl:1", "package-1", 80_000_000);
    server.zone("intel-rapl:1:1", "dram", 1_000_005);
    let sample = meter.sample().unwrap();
    assert_eq!(sample.power.map(|power| power.value), Some(Watts::new(14.0)));
    assert_eq!(sample.energy.value, Joules::new(39.0));
    let refused = meter.refused();
    assert!(
        refused
            .iter()
            .any(|r| r.zone == "package-1" && r.reason == Refusal::Vanished),
        "{refused:?}"
    );
}

#[test]
fn a_package_that_stands_still_is_an_error_and_memory_that_never_counted_is_left_out() {
    let server = Server::new();
    let mut meter = server.open();
    let step = |package_0: u64, package_1: u64| {
        server.pass(1);
        server.zone("intel-rapl:0", "package-0", package_0);
        server.zone("intel-rapl:1", "package-1", package_1);
    };
    for second in 1..=3 {
        step(1_000_000 + second * 1_000_000, 1_000_000 + second * 2_000_000);
        assert_eq!(
            meter.sample().unwrap().power.map(|p| p.value),
            Some(Watts::new(3.0))
        );
    }
    let sample = meter.sample().unwrap();
    let counted = sample
        .zones
        .iter()
        .filter(|zone| zone.counted)
        .map(|zone| zone.zone.as_str());
    assert_eq!(counted.collect::<Vec<_>>(), ["package-0", "package-1"]);
    step(5_000_000, 7_000_000);
    assert_eq!(meter.sample().unwrap().power, None);
    step(6_000_000, 7_000_000);
    says(meter.sample().unwrap_err(), &["package-1", "stands still"]);
    step(7_000_000, 11_000_000);
    let sample = meter.sample().unwrap();
    assert_eq!(sample.energy.value, Joules::new(6.0 + 10.0));
    // 4 J in the three seconds since it last moved, beside 1 W.
    assert!(
        (sample.power.unwrap().value.get() - (1.0 + 4.0 / 3.0)).abs() < 1e-9,
        "{sample:?}"
    );
}

#[test]
fn memory_is_in_the_identity_from_its_first_movement_on_and_dead_memory_never() {
    let server = Server::new();
    let mut dead = server.open();
    let mut live = server.open();
    server.pass(1);
    server.zone("intel-rapl:0", "package-0", 2_000_000);
    server.zone("intel-rapl:1", "package-1", 2_000_000);
    let sample = dead.sample().unwrap();
    assert_eq!(sample.identity("rapl"), "rapl: package-0, package-1");
    assert!(sample.power.is_some() && dead.is_unsettled());
    server.pass(1);
    server.all(3_000_000);
    let sample = live.sample().unwrap();
    assert_eq!(
        sample.identity("rapl"),
        "rapl: dram-0, dram-1, package-0, package-1"
    );
    assert!(!live.is_unsettled());
}

#[test]
fn a_suspend_costs_its_interval_and_is_counted_by_name() {
    let server = Server::new();
    let mut meter = server.open();
    server
        .clock
        .pass(Duration::from_secs(1), Duration::from_secs(3_600));
    server.all(90_000_000);
    let sample = meter.sample().unwrap();
    assert_eq!((sample.energy.value, sample.power), (Joules::ZERO, None));
    let refused = meter.refused();
    assert!(
        refused.iter().all(|refused| refused.reason == Refusal::Suspended),
        "{refused:?}"
    );
    server.pass(1);
    server.all(92_000_000);
    assert_eq!(meter.sample().unwrap().energy.value, Joules::new(8.0));
}

#[test]
fn an_emulated_machine_says_that_it_is() {
    let server = Server::new();
    let mark = server.dir.path().join("sys/headroom-testbed");
    fs::create_dir_all(&mark).unwrap();
    fs::write(mark.join("emulated"), "").unwrap();
    let mut meter = server.open();
    server.pass(1);
    server.all(2_000_000);
    let sample = meter.sample().unwrap();
    assert_eq!(sample.energy.source, Source::Emulated);
    assert!(
        sample
            .zones
            .iter()
            .all(|zone| zone.energy.source == Source::Emulated)
    );
}
