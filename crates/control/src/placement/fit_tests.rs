use super::*;
use proptest::prelude::*;

fn service() -> ServiceCost {
    ServiceCost {
        per_request: Seconds::new(80e-6),
        per_byte: Seconds::new(0.3e-9),
        head_bytes: 300.0,
        bytes_per_byte: 1.04,
    }
}

fn machine(idle: f64, busy: f64, link: f64) -> ServingMachine {
    ServingMachine {
        name: "m".to_owned(),
        cores: 4,
        link_bytes_per_s: 125e6,
        idle: Watts::new(idle),
        busy: Watts::new(busy),
        link: Watts::new(link),
        server: ServerFigures::default(),
    }
}

fn described() -> MachineDescription {
    MachineDescription {
        name: "m".to_owned(),
        cores: 4,
        link_bytes_per_s: Some(125e6),
    }
}

/// What such a machine would be measured with.
fn cells(machine: &ServingMachine, sizes: &[f64]) -> Vec<Cell> {
    let cell = |size_bytes: f64, density: f64| {
        let cost = service().of(size_bytes);
        let rate = machine.capacity(cost) * density;
        let load = machine.load([(cost, rate)]);
        Cell {
            size_bytes,
            density: Ratio::new(density),
            throughput: rate,
            busy_cores: Cores::new(load.cpu.get() * machine.cores as f64),
            generator_cores: Cores::ZERO,
            link_bytes_per_s: load.link.get() * machine.link_bytes_per_s,
            power: machine.power(load),
            marked: false,
        }
    };
    let sizes = sizes.iter();
    sizes
        .flat_map(|size| [1.0, 0.75, 0.5, 0.25].map(|density| cell(*size, density)))
        .collect()
}

proptest! {
    #[test]
    fn a_machine_is_found_again_from_what_it_would_be_measured_with(
        idle in 1.0..100.0f64, busy in 1.0..200.0f64, link in 0.5..20.0f64,
    ) {
        let machine = machine(idle, busy, link);
        let fitted = fit(&described(), &cells(&machine, &[1024.0, 10_240.0, 102_400.0]), &Baselines::default()).unwrap();
        let near = |found: Watts, real: f64| (found.get() - real).abs() < 1e-3 * (idle + busy + link);
        prop_assert!(near(fitted.machine.idle, idle) && near(fitted.machine.busy, busy) && near(fitted.machine.link, link));
        prop_assert!((fitted.service.per_request.get() / 80e-6 - 1.0).abs() < 1e-6);
        prop_assert!((fitted.service.per_byte.get() / 0.3e-9 - 1.0).abs() < 1e-6);
        prop_assert!(fitted.unidentified.is_empty());
        prop_assert!(fitted.largest_power_error.get() < 1e-3 && fitted.largest_capacity_excess.get() < 1e-9);
    }
}

#[test]
fn marked_cells_are_left_out_and_counted() {
    let real = machine(36.7, 72.9, 2.7);
    let mut all = cells(&real, &[1024.0, 102_400.0]);
    let clean = fit(&described(), &all, &Baselines::default()).unwrap();
    let wrong = Cell {
        power: Watts::new(500.0),
        marked: true,
        ..all[0]
    };
    all.push(wrong);
    let fitted = fit(&described(), &all, &Baselines::default()).unwrap();
    assert_eq!((fitted.used, fitted.left_out), (8, 1));
    assert_eq!(fitted.machine, clean.machine);
    let none = fit(&described(), &[wrong], &Baselines::default());
    assert_eq!(none, Err(FitError::NoCells { given: 1 }));
}

#[test]
fn what_the_cells_do_not_determine_is_said() {
    let real = machine(36.7, 72.9, 2.7);
    let one = cells(&real, &[1024.0]);
    let unknown = MachineDescription {
        link_bytes_per_s: None,
        ..described()
    };
    let fitted = fit(&unknown, &one, &Baselines::default()).unwrap();
    let all = [
        Unidentified::LinkCapacity,
        Unidentified::PerByte,
        Unidentified::LinkPower,
    ];
    assert_eq!(fitted.unidentified, all);
    assert_eq!(fitted.machine.link, Watts::ZERO);
    // One density alone does not tell idle from busy.
    assert_eq!(
        fit(&described(), &one[..1], &Baselines::default()),
        Err(FitError::Idle)
    );
    let idle = Baselines {
        idle: Some(Watts::new(36.7)),
        ..Baselines::default()
    };
    assert!(fit(&described(), &one[..1], &idle).is_ok());
}

#[test]
fn a_cost_that_is_no_line_is_interpolated_and_the_line_says_how_far_it_is_off() {
    let real = machine(3.7, 13.6, 0.5);
    let mut all = cells(&real, &[1024.0, 10_240.0, 1_022_976.0]);
    for cell in all.iter_mut().filter(|cell| cell.size_bytes > 1e6) {
        cell.busy_cores = cell.busy_cores * 4.0;
    }
    let fitted = fit(&described(), &all, &Baselines::default()).unwrap();
    let large = service().of(1_022_976.0).cpu * 4.0;
    assert!((fitted.cost_of(1_022_976.0).cpu / large - 1.0).abs() < 1e-9);
    assert!((fitted.cost_of(10_240.0).cpu / service().of(10_240.0).cpu - 1.0).abs() < 1e-9);
    assert!(fitted.largest_service_error > Ratio::new(0.05));
    assert!(fitted.cost_of(0.0).cpu > Seconds::ZERO && fitted.cost_of(1e9).cpu > large);
}

#[test]
fn a_machine_that_is_full_before_its_cores_and_link_are_shows() {
    let real = machine(3.7, 13.6, 0.5);
    let mut all = cells(&real, &[1024.0, 102_400.0]);
    for cell in &mut all {
        (cell.throughput, cell.busy_cores) = (cell.throughput * 0.5, cell.busy_cores * 0.5);
        cell.link_bytes_per_s *= 0.5;
    }
    let fitted = fit(&described(), &all, &Baselines::default()).unwrap();
    assert!((fitted.largest_capacity_excess.get() - 1.0).abs() < 1e-6);
}

#[test]
fn values_that_cannot_be_are_refused_by_name() {
    let mut all = cells(&machine(3.7, 13.6, 0.5), &[1024.0]);
    all[0].busy_cores = Cores::new(f64::NAN);
    let error = fit(&described(), &all, &Baselines::default())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("busy_cores = NaN") && error.contains("1024 bytes"),
        "{error}"
    );
}

#[test]
fn what_a_generator_on_the_same_machine_draws_is_not_the_services() {
    let machine = machine(20.0, 40.0, 0.0);
    let mut cells = cells(&machine, &[1024.0, 102_400.0]);
    for cell in &mut cells {
        // A generator that keeps more cores busy than the service, and draws the same for each: 10 W.
        cell.generator_cores = cell.busy_cores * 1.5 + Cores::new(0.1);
        cell.power += Watts::new(cell.generator_cores.get() * 10.0);
    }
    let found = fit(&described(), &cells, &Baselines::default()).unwrap();
    assert!(
        (found.machine.idle - Watts::new(20.0)).get().abs() < 1e-6,
        "{found:?}"
    );
    assert!(
        (found.machine.busy - Watts::new(40.0)).get().abs() < 1e-6,
        "{found:?}"
    );
    assert!((found.cost_of(1024.0).cpu - service().of(1024.0).cpu).get().abs() < 1e-9);
    // Taken as the service's own, the machine would seem to draw more than it does with all cores busy.
    cells
        .iter_mut()
        .for_each(|cell| cell.generator_cores = Cores::ZERO);
    let mixed = fit(&described(), &cells, &Baselines::default()).unwrap();
    assert!(mixed.machine.busy > Watts::new(80.0), "{mixed:?}");
    cells[0].generator_cores = Cores::new(f64::NAN);
    let refused = fit(&described(), &cells, &Baselines::default()).unwrap_err();
    assert!(refused.to_string().contains("generator_cores"), "{refused}");
}
