use super::config::{Driver, HardwareConfig, LimitKind, Zones};
use super::machine::{CpuLoad, Machine};
use super::rapl::ZoneKind;
use headroom_units::{Joules, Ratio, Seconds};
use proptest::prelude::*;

const TICK: Seconds = Seconds::new(0.02);

fn load(allocated: f64, busy: f64) -> CpuLoad {
    CpuLoad {
        allocated: Ratio::new(allocated),
        busy: Ratio::new(busy),
    }
}

fn machine() -> Machine {
    Machine::new(&HardwareConfig::default())
}

/// Lets a service that would use all it is given run for a while.
fn saturate(machine: &mut Machine, seconds: f64) {
    for _ in 0..(seconds / 0.02) as usize {
        machine.advance(TICK, &[load(1.0, 1.0); 16]);
    }
}

fn cap(machine: &mut Machine, watts: f64) {
    for zone in &mut machine.zones {
        if matches!(zone.kind, ZoneKind::Package(_)) {
            zone.limits[0].set_power_uw((watts * 1e6) as u64).unwrap();
        }
    }
}

#[test]
fn all_cores_busy_draw_what_the_testbed_allows_them() {
    let mut machine = machine();
    saturate(&mut machine, 1.0);
    assert!((machine.power().get() - 92.28).abs() < 1e-9);
    assert_eq!(machine.power(), machine.most_power());
    // Idle states are chosen by what the last tenths of a second were like.
    machine.advance(Seconds::new(10.0), &[]);
    // Two packages asleep but for a millisecond after each of 160 wake-ups a second, and their cores in C6.
    let package_w = 23.26 - 15.26 * (-0.16_f64).exp() + 8.0 * (0.06 + 20.0 * 0.8e-3);
    assert!((machine.power().get() - 2.0 * package_w).abs() < 1e-9);
}

/// Mean power of a second in which CPUs were loaded so.
fn power(loads: &[CpuLoad]) -> f64 {
    let mut machine = machine();
    machine.advance(Seconds::new(1.0), loads);
    machine.power().get()
}

#[test]
fn an_allocation_alone_saves_nothing_and_parking_lets_cores_and_packages_sleep() {
    // Two busy cores, of sixteen allocated and of four.
    let (free, limited) = (power(&[load(1.0, 0.125); 16]), power(&[load(0.25, 0.125); 16]));
    assert_eq!(free, limited);
    // The same work on four cores of one package: the other sleeps.
    let mut parked = [load(0.0, 0.0); 16];
    parked[..4].fill(load(1.0, 0.5));
    assert!(power(&parked) < free - 6.0, "{} {free}", power(&parked));
    // Half of the speed, twice as long: less, by voltage.
    let mut slow = machine();
    for policy in 0..16 {
        slow.freq.write(policy, "scaling_max_freq", "1050000").unwrap();
    }
    let mut fast = machine();
    for _ in 0..100 {
        fast.advance(TICK, &[load(1.0, 0.4); 16]);
        slow.advance(TICK, &[load(1.0, 0.8); 16]);
    }
    assert!(
        slow.power().get() < fast.power().get() - 3.0,
        "{} {}",
        slow.power(),
        fast.power()
    );
}

#[test]
fn energy_by_its_cause_is_all_energy_of_packages_and_memory() {
    let mut machine = machine();
    machine.freq.write(3, "scaling_max_freq", "1050000").unwrap();
    machine.set_online(5, false);
    for step in 0..400 {
        let busy = f64::from(step % 40) / 40.0;
        let mut loads = [load(1.0, busy); 16];
        // Parked, and throttled.
        loads[8..12].fill(load(0.0, 0.0));
        loads[12..].fill(load(0.5, busy / 2.0));
        machine.advance(TICK, &loads);
    }
    let all: f64 = machine
        .zones
        .iter()
        .filter(|zone| matches!(zone.kind, ZoneKind::Package(_) | ZoneKind::Dram(_)))
        .map(|zone| zone.total_j)
        .sum();
    let by = machine.energy_by();
    let parts = [by.work, by.idle_cores, by.packages].map(Joules::get);
    assert!(parts.iter().all(|joules| *joules > 0.0), "{by:?}");
    assert!(
        (parts.iter().sum::<f64>() - all).abs() < 1e-6 * all,
        "{by:?} {all}"
    );
}

#[test]
fn parts_add_up_and_psys_holds_all() {
    let mut config = HardwareConfig::default();
    (config.rapl.uncore, config.rapl.psys) = (true, true);
    let mut machine = Machine::new(&config);
    // Idle states follow the load after a while.
    saturate(&mut machine, 5.0);
    let before: Vec<f64> = machine.zones.iter().map(|zone| zone.total_j).collect();
    saturate(&mut machine, 2.0);
    let total = |wanted: fn(ZoneKind) -> bool| -> f64 {
        machine
            .zones
            .iter()
            .zip(&before)
            .filter(|(zone, _)| wanted(zone.kind))
            .map(|(zone, before)| zone.total_j - before)
            .sum()
    };
    let packages = total(|kind| matches!(kind, ZoneKind::Package(_)));
    let parts = total(|kind| matches!(kind, ZoneKind::Core(_) | ZoneKind::Uncore(_)));
    let dram = total(|kind| matches!(kind, ZoneKind::Dram(_)));
    assert!((packages - parts).abs() < 1e-6);
    assert!((packages + dram - 2.0 * 92.28).abs() < 1e-6);
    assert!((total(|kind| kind == ZoneKind::Psys) - 2.0 * 112.28).abs() < 1e-6);
    let names: Vec<(&str, &str)> = machine
        .zones
        .iter()
        .map(|zone| (zone.id.as_str(), zone.name.as_str()))
        .collect();
    assert_eq!(
        names[..5],
        [
            ("intel-rapl:0", "package-0"),
            ("intel-rapl:0:0", "core"),
            ("intel-rapl:0:1", "uncore"),
            ("intel-rapl:0:2", "dram"),
            ("intel-rapl:1", "package-1")
        ]
    );
    assert_eq!(names[8], ("intel-rapl:2", "psys"));
}

#[test]
fn a_cap_lowers_the_frequency_then_the_duty_cycle_and_then_says_that_it_is_beyond_reach() {
    let mut machine = machine();
    cap(&mut machine, 40.0);
    saturate(&mut machine, 3.0);
    let state = machine.package(0).unwrap();
    assert!(state.power.get() <= 40.0 && state.power.get() > 36.0, "{state:?}");
    assert!(state.ceiling.get() < 2.1e9 && state.ceiling.get() > 0.8e9 && state.duty.get() == 1.0);
    assert_eq!(machine.khz(0), (state.ceiling.get() / 1e3) as u64);
    assert!((state.speed.get() - state.ceiling.get() / 2.1e9).abs() < 1e-9);

    cap(&mut machine, 26.0);
    saturate(&mut machine, 3.0);
    let state = machine.package(0).unwrap();
    assert!(
        state.power.get() <= 26.0 && state.duty.get() < 1.0 && state.ceiling.get() == 0.8e9,
        "{state:?}"
    );
    assert!(!state.beyond_reach);

    cap(&mut machine, 10.0);
    saturate(&mut machine, 3.0);
    let state = machine.package(0).unwrap();
    assert!(state.beyond_reach && state.power.get() > 10.0 && state.duty.get() == 1.0 / 16.0);
}

#[test]
fn a_cap_above_what_is_drawn_costs_no_speed() {
    let mut machine = machine();
    cap(&mut machine, 40.0);
    for _ in 0..200 {
        machine.advance(TICK, &[load(1.0, 0.3); 16]);
    }
    let state = machine.package(0).unwrap();
    assert!(state.power.get() < 40.0);
    assert_eq!(state.speed.get(), 1.0);
}

#[test]
fn each_package_has_its_own_cap() {
    let mut machine = machine();
    machine.zones[0].limits[0].set_power_uw(34_000_000).unwrap();
    saturate(&mut machine, 2.0);
    assert!(machine.speed(0).get() < 0.8);
    assert_eq!(machine.speed(8).get(), 1.0);
    assert_eq!((machine.package_of(7), machine.package_of(8)), (0, 1));
}

#[test]
fn limits_that_are_disabled_or_inert_do_nothing() {
    let mut machine = machine();
    cap(&mut machine, 34.0);
    machine.zones[0].set_enabled(false).unwrap();
    machine.set_inert(1, true);
    saturate(&mut machine, 2.0);
    assert_eq!((machine.speed(0).get(), machine.speed(8).get()), (1.0, 1.0));
    machine.zones[0].set_enabled(true).unwrap();
    saturate(&mut machine, 2.0);
    assert!(machine.speed(0).get() < 0.8 && machine.speed(8).get() == 1.0);
}

#[test]
fn the_lower_of_cap_and_policy_wins() {
    let config = HardwareConfig {
        driver: Driver::AcpiCpufreq,
        ..HardwareConfig::default()
    };
    let mut machine = Machine::new(&config);
    for policy in 0..8 {
        machine.freq.write(policy, "scaling_max_freq", "1200000").unwrap();
    }
    saturate(&mut machine, 1.0);
    assert_eq!((machine.khz(0), machine.khz(8)), (1_200_000, 2_100_000));
    cap(&mut machine, 28.0);
    saturate(&mut machine, 2.0);
    assert!(machine.khz(0) < 1_200_000);
    for policy in 0..16 {
        machine
            .freq
            .write(policy, "scaling_governor", "userspace")
            .unwrap();
        machine.freq.write(policy, "scaling_setspeed", "850000").unwrap();
    }
    cap(&mut machine, 50.0);
    saturate(&mut machine, 2.0);
    // The lowest state at or above it.
    assert_eq!(machine.khz(15), 900_000);
}

#[test]
fn governors_follow_load() {
    let mut machine = machine();
    for policy in 0..16 {
        machine
            .freq
            .write(policy, "scaling_governor", "powersave")
            .unwrap();
    }
    for _ in 0..200 {
        machine.advance(TICK, &[load(1.0, 0.1); 16]);
    }
    assert_eq!(machine.khz(0), 800_000);
    saturate(&mut machine, 2.0);
    assert_eq!(machine.khz(0), 2_100_000);
}

#[test]
fn an_offline_cpu_draws_what_its_deepest_state_does_and_does_nothing() {
    let mut machine = machine();
    machine.set_online(15, false);
    machine.set_online(0, false);
    saturate(&mut machine, 1.0);
    assert!(machine.is_online(0) && !machine.is_online(15));
    assert!((machine.power().get() - (46.52 + 15.0 * 2.86 + 0.06)).abs() < 1e-9);
    assert_eq!(machine.speed(15), Ratio::ZERO);
}

#[test]
fn keeping_a_cpu_out_of_deep_sleep_keeps_its_package_up() {
    let mut machine = machine();
    machine.advance(TICK, &[]);
    let asleep_w = machine.power().get();
    machine
        .idle
        .as_mut()
        .unwrap()
        .write(3, 4, "disable", "1")
        .unwrap();
    machine.advance(TICK, &[]);
    let package_w = 15.26 * (-0.16_f64).exp();
    assert!(
        (machine.power().get() - asleep_w - package_w - 0.3).abs() < 0.05,
        "C3 draws 0.3 W more than C6"
    );
}

#[test]
fn a_suspend_moves_the_counters_and_not_the_clock() {
    let mut machine = machine();
    saturate(&mut machine, 1.0);
    let (before, clock) = (machine.zones[0].energy_uj(), machine.elapsed());
    machine.suspend(Seconds::new(3600.0), false);
    assert_eq!(machine.elapsed(), clock);
    assert!(machine.zones[0].energy_uj() - before >= 3_599_000_000);
    machine.suspend(Seconds::new(10.0), true);
    assert_eq!(machine.zones[0].energy_uj(), 0);
}

#[test]
fn an_amd_machine_counts_without_limits_and_is_capped_by_hsmp() {
    let mut config = HardwareConfig {
        driver: Driver::AmdPstateActive,
        ..HardwareConfig::default()
    };
    config.rapl.zones = Zones::Amd;
    let mut machine = Machine::new(&config);
    assert!(
        machine
            .zones
            .iter()
            .all(|zone| zone.limits.is_empty() && !zone.enabled_reads())
    );
    assert_eq!(machine.zones[0].max_energy_range_uj(), 65_532_610_987);
    machine.set_hsmp_cap_uw(0, 34_000_999);
    machine.set_hsmp_cap_uw(1, u64::MAX);
    saturate(&mut machine, 2.0);
    assert_eq!(machine.hsmp_uw(0).unwrap()[..2], [34_000_000, 50_000_000]);
    assert_eq!(machine.hsmp_uw(1).unwrap()[0], 50_000_000);
    assert!(machine.speed(0).get() < 0.8 && machine.speed(8).get() == 1.0);
}

#[test]
fn nonsense_lengths_of_time_change_nothing() {
    let mut machine = machine();
    for dt in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        machine.advance(Seconds::new(dt), &[load(1.0, 1.0); 16]);
        machine.suspend(
            Seconds::new(if dt == f64::INFINITY { f64::NAN } else { dt }),
            false,
        );
    }
    assert_eq!(
        (machine.elapsed(), machine.zones[0].energy_uj()),
        (Seconds::ZERO, 0)
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever the load and the caps: energy never falls, never exceeds what the machine can draw at most, and is never
    /// below what it draws with everything asleep.
    #[test]
    fn energy_stays_between_base_and_most(
        steps in proptest::collection::vec((0.001..3.0f64, 0.0..1.2f64, -0.1..1.2f64, 1.0..70.0f64), 1..40),
    ) {
        let mut machine = machine();
        let (mut elapsed, mut last) = (0.0, 0.0);
        for (dt, allocated, busy, watts) in steps {
            cap(&mut machine, watts);
            machine.advance(Seconds::new(dt), &[load(allocated, busy); 16]);
            elapsed += dt;
            let energy: f64 = machine.zones.iter()
                .filter(|zone| matches!(zone.kind, ZoneKind::Package(_) | ZoneKind::Dram(_)))
                .map(|zone| zone.total_j).sum();
            prop_assert!(energy >= last);
            prop_assert!(energy <= machine.most_power().get() * elapsed * (1.0 + 1e-9));
            prop_assert!(energy >= (2.0 * 8.0 + 16.0 * 0.06) * elapsed * (1.0 - 1e-9));
            last = energy;
        }
    }

    /// Under a steady stream of work, which keeps slower cores busy for longer, a cap that can be reached is kept in every
    /// step after the first seconds, but for what lies between two levels: where the work just fits into one of them,
    /// that level and its neighbour alternate.
    #[test]
    fn a_steady_load_is_held_under_its_cap(allocated in 0.0..1.0f64, use_ in 0.0..1.0f64, watts in 1.0..60.0f64) {
        let mut machine = machine();
        cap(&mut machine, watts);
        for tick in 0..250 {
            let busy = (allocated * use_ / machine.speed(0).get()).min(allocated);
            machine.advance(TICK, &[load(allocated, busy); 16]);
            let state = machine.package(0).unwrap();
            let lowest = state.duty.get() == 1.0 / 16.0;
            prop_assert!(tick < 150 || lowest || state.power <= state.allowed.unwrap() * 1.05, "{:?}", state);
        }
    }

    /// Under any load, the mean over ten windows exceeds a cap by at most a twentieth, as long as the cap can be reached.
    #[test]
    fn any_load_is_held_under_its_cap_on_average(
        busy in proptest::collection::vec((0.0..1.0f64, 1usize..80), 5..20), watts in 29.0..60.0f64,
    ) {
        let mut machine = machine();
        cap(&mut machine, watts);
        saturate(&mut machine, 2.0);
        let (start, mut seconds) = (machine.zones[0].total_j, 0.0);
        for (busy, ticks) in busy.iter().cycle() {
            for _ in 0..*ticks {
                machine.advance(TICK, &[load(1.0, *busy); 16]);
                seconds += 0.02;
            }
            if seconds > 10.0 {
                break;
            }
        }
        let mean = (machine.zones[0].total_j - start) / seconds;
        let allowed = machine.zones[0].limit(LimitKind::LongTerm).unwrap().power_uw() as f64 / 1e6;
        prop_assert!(mean <= allowed * 1.05, "{} over {}", mean, allowed);
    }

    /// A higher cap never makes a saturated machine slower.
    #[test]
    fn speed_rises_with_the_cap(low in 5.0..60.0f64, more in 0.0..20.0f64, cores in 1usize..16) {
        let speed = |watts: f64| {
            let mut machine = machine();
            cap(&mut machine, watts);
            let share = cores as f64 / 16.0;
            for _ in 0..200 {
                machine.advance(TICK, &[load(share, share); 16]);
            }
            machine.package(0).unwrap().speed
        };
        prop_assert!(speed(low) <= speed(low + more));
    }
}
