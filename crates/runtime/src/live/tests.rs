//! The loop on a machine and a gateway of literals.

use super::*;
use headroom_control::calibrate::MIN_CPU;
use headroom_control::{
    Allocation, CoreRange, Fixed, FrequencyRange, Law, Plant, PowerEnvelope, SloPower, Tuning,
};
use headroom_gateway::{ConnectCounts, QueueCounts, RetryCounts, SourceCounts};
use headroom_units::{
    Cores, Emulated, Estimated, Hertz, Joules, Lever, Measured, Part, PerSecond, Ratio, Role, Sensor, Source,
    Watts,
};
use std::collections::VecDeque;

const PERIOD: Duration = Duration::from_secs(1);

/// What a scripted machine was told, and answers.
struct Scripted {
    allocated: Allocation,
    applied: Vec<Allocation>,
    refuses: bool,
    utilisation: f64,
}

impl Device for Scripted {
    fn observe(&mut self, period: &mut DevicePeriod) {
        *period = DevicePeriod {
            cpu_time: Some(Seconds::from_millis(10.0)),
            utilisation: Some(Ratio::new(self.utilisation)),
            power: Some(Estimated(Watts::new(7.0)).into()),
            energy: Some(Estimated(Joules::new(0.1)).into()),
            frequency: Some(Measured(Hertz::new(2.0e9)).into()),
            ..DevicePeriod::default()
        };
    }

    fn in_force(&self) -> Setting {
        self.allocated.into()
    }

    fn apply(&mut self, decision: &mut Decision) -> anyhow::Result<()> {
        if self.refuses {
            anyhow::bail!("the cgroup is gone");
        }
        let allocation = plant().allocation(&decision.setting);
        self.applied.push(allocation);
        self.allocated = allocation;
        Ok(())
    }
}

/// Answers from a list; nothing once it is empty.
struct Reported(VecDeque<Option<TrafficPeriod>>);

impl Telemetry for Reported {
    fn take(&mut self, _patience: Duration) -> Option<TrafficPeriod> {
        self.0.pop_front().flatten()
    }
}

#[derive(Default)]
struct Kept(Vec<Tick>);

impl Sink for Kept {
    fn tick(&mut self, tick: &Tick) {
        self.0.push(tick.clone());
    }
}

fn answered(latency_ms: u64) -> Option<TrafficPeriod> {
    let mut histogram = headroom_gateway::service_histogram();
    histogram.record_n(latency_ms * 1000, 20).unwrap();
    Some(TrafficPeriod {
        over: None,
        arrivals: 20,
        completions: 20,
        failures: 0,
        in_flight: Some(0),
        oldest_in_flight: None,
        latency: ReportedLatency::Histogram(histogram),
        backends: Vec::new(),
        queue: None,
        importance: Vec::new(),
        cache: None,
        batch: None,
        accept_pauses: 0,
        client_us: 0,
        sources: SourceCounts::default(),
        retries: RetryCounts::default(),
        refused: 0,
        outcomes: Outcomes::default(),
        sizes: None,
    })
}

fn plant() -> Plant {
    let cores = CoreRange::new(Cores::new(0.2), Cores::new(2.0), Cores::new(0.1)).unwrap();
    let power = PowerEnvelope {
        base: Watts::new(6.0),
        per_core: Watts::new(2.86),
        lowest_cap: Watts::new(6.4),
    };
    let ghz = |ghz: f64| Hertz::new(ghz * 1e9);
    let frequencies = FrequencyRange::new(ghz(0.8), ghz(2.0), ghz(0.1)).unwrap();
    Plant::new(cores, power).unwrap().with_frequency(frequencies)
}

fn slo() -> Slo {
    Slo::new(Ratio::from_percent(95.0), Seconds::new(0.25)).unwrap()
}

/// Runs the loop over these periods (after the one that is thrown away at the start).
fn play(law: Box<dyn Law>, machine: &mut Scripted, periods: Vec<Option<TrafficPeriod>>) -> Vec<Tick> {
    let count = periods.len() as u64;
    let clock = ManualClock::new();
    let mut telemetry = Reported(std::iter::once(answered(999)).chain(periods).collect());
    let mut law = Stack::of(law, plant(), 5).unwrap();
    let mut kept = Kept::default();
    let mut left = count;
    let mut control = ControlLoop {
        frame: Frame {
            period: PERIOD,
            slo: slo(),
            dry: false,
        },
        law: &mut law,
        laws: None,
        devices: vec![machine],
        telemetry: Some(&mut telemetry),
        clock: &clock,
        sinks: vec![&mut kept],
    };
    let ran = control.run(&Stop::default(), |_| {
        left -= 1;
        left == 0
    });
    assert_eq!(ran, count);
    kept.0
}

fn machine(cores: f64, cap: f64) -> Scripted {
    Scripted {
        allocated: Allocation::new(Cores::new(cores), Watts::new(cap)),
        applied: Vec::new(),
        refuses: false,
        utilisation: 0.4,
    }
}

fn slo_power() -> Box<dyn Law> {
    Box::new(SloPower::new(slo(), plant(), PerSecond::new(250.0), Tuning::default()).unwrap())
}

#[test]
fn what_is_seen_reaches_the_law_and_what_it_decides_the_machine() {
    let mut machine = machine(1.0, 8.86);
    let ticks = play(slo_power(), &mut machine, vec![answered(900)]);
    let latency = ticks[0].observation.traffic.as_ref().unwrap().latency.unwrap();
    assert!((latency.at_slo.as_millis() - 900.0).abs() < 2.0);
    assert_eq!(ticks[0].decision.reasons[0].rule, "scale-up-cores");
    assert_eq!(
        machine.applied,
        vec![plant().allocation(&ticks[0].decision.setting)]
    );
    assert!(machine.allocated.cores > Cores::new(1.0));
}

#[test]
fn what_was_counted_before_the_run_is_thrown_away() {
    // `play` puts a period of 999 ms before those of the run.
    let ticks = play(
        Box::new(Fixed::new(plant())),
        &mut machine(2.0, 11.72),
        vec![answered(10)],
    );
    let latency = ticks[0].observation.traffic.as_ref().unwrap().latency.unwrap();
    assert!(latency.at_slo.as_millis() < 20.0);
}

#[test]
fn five_periods_without_telemetry_put_the_machine_to_full() {
    let mut machine = machine(0.5, 7.5);
    let ticks = play(slo_power(), &mut machine, vec![None; 5]);
    assert_eq!(ticks[3].decision.reasons[0].rule, "telemetry-lost-hold");
    assert_eq!(ticks[3].decision.setting.cores(), Some(Cores::new(0.5)));
    assert_eq!(ticks[4].decision.reasons[0].rule, "telemetry-lost-full");
    assert_eq!(machine.allocated, plant().full_allocation());
}

#[test]
fn a_machine_that_refuses_is_counted_and_the_loop_goes_on() {
    let mut machine = machine(0.5, 7.5);
    machine.refuses = true;
    let ticks = play(slo_power(), &mut machine, vec![answered(900), answered(900)]);
    assert!(ticks.iter().all(|tick| !tick.not_carried_out.is_empty()));
    assert_eq!(ticks[1].observation.in_force, machine.allocated.into());
}

#[test]
fn a_raised_stop_ends_the_loop_before_its_next_period() {
    let stop = Stop::default();
    stop.raise();
    let mut law = Stack::of(slo_power(), plant(), 5).unwrap();
    let mut machine = machine(1.0, 8.86);
    let mut control = ControlLoop {
        frame: Frame {
            period: Duration::from_secs(3600),
            slo: slo(),
            dry: false,
        },
        law: &mut law,
        laws: None,
        devices: vec![&mut machine],
        telemetry: Some(&mut Reported(VecDeque::new())),
        clock: &ManualClock::new(),
        sinks: Vec::new(),
    };
    assert_eq!(control.run(&stop, |_| false), 0);
}

#[test]
fn the_metrics_say_what_the_ticks_said() {
    let ticks = play(
        slo_power(),
        &mut machine(1.0, 8.86),
        vec![answered(900), answered(30), None],
    );
    let status = admin::Status::new("slo-power".to_owned(), Duration::from_secs(1));
    ticks.iter().for_each(|tick| status.tick(tick));
    let text = status.metrics_text();
    for line in [
        "headroom_service_requests_total 40",
        "headroom_periods_total 3",
        "headroom_telemetry_lost_periods_total 1",
        "headroom_decisions_total{law=\"slo-power\",rule=\"scale-up-cores\"} 1",
        "headroom_service_latency_seconds_count 40",
        "headroom_service_latency_seconds_bucket{le=\"0.025\"} 0",
        "headroom_service_latency_seconds_bucket{le=\"0.05\"} 20",
        "headroom_service_latency_seconds_bucket{le=\"+Inf\"} 40",
        "headroom_node_cpu_watts{source=\"estimated\"} 7.0",
    ] {
        assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
    }
    assert!(
        text.contains("headroom_node_cpu_joules_total{zone=\"\",source=\"estimated\"} 0.3"),
        "{text}"
    );
    assert!(text.ends_with("# EOF\n"));
}

#[test]
fn what_is_said_of_the_whole_is_one_series_and_watts_have_their_source() {
    let mut machine = machine(0.5, 7.5);
    let mut ticks = play(slo_power(), &mut machine, vec![answered(900)]);
    let model = Part::new("cluster", Role::Cluster)
        .with(Lever::Servers, Some(2.0))
        .with(Sensor::Power, Some(65.0))
        .with(Sensor::PowerAlwaysOn, Some(185.0));
    ticks[0].observation.power = Some(Emulated(Watts::new(51.5)).into());
    ticks[0].parts = vec![Part {
        source: Some(Source::Estimated),
        ..model
    }];
    let status = admin::Status::new("slo-power".to_owned(), Duration::from_secs(1));
    status.tick(&ticks[0]);
    let text = status.metrics_text();
    let series = |name: &str| -> Vec<&str> { text.lines().filter(|line| line.starts_with(name)).collect() };
    let all = r#"{role="cluster",part="all""#;
    assert_eq!(
        series("headroom_servers{"),
        [format!("headroom_servers{all}}} 2.0")]
    );
    let mut powers = series("headroom_power_watts{");
    powers.sort_unstable();
    assert_eq!(
        powers,
        [
            format!("headroom_power_watts{all},source=\"emulated\"}} 51.5"),
            format!("headroom_power_watts{all},source=\"estimated\"}} 65.0")
        ]
    );
    assert_eq!(
        series("headroom_power_always_on_watts{"),
        [format!(
            "headroom_power_always_on_watts{all},source=\"estimated\"}} 185.0"
        )]
    );
    for twice in [
        "headroom_service_utilisation",
        "busy_cores_cores",
        "drop_ratio_ratio",
    ] {
        assert!(!text.contains(twice), "{twice}");
    }
}

#[test]
fn what_is_not_in_force_or_not_known_is_in_no_metric() {
    let mut machine = machine(0.5, 7.5);
    machine.refuses = true;
    let mut ticks = play(slo_power(), &mut machine, vec![answered(900), None]);
    let status = admin::Status::new("slo-power".to_owned(), Duration::from_secs(1));
    ticks[1].observation.power = None;
    ticks.iter().for_each(|tick| status.tick(tick));
    let text = status.metrics_text();
    for line in [
        "headroom_cores{role=\"cluster\",part=\"all\"} 0.5",
        "headroom_cap_watts{role=\"cluster\",part=\"all\"} 7.5",
        "headroom_actuation_failures_total 2",
        "headroom_service_in_flight NaN",
    ] {
        assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
    }
    assert!(!text.contains("headroom_node_cpu_watts{"), "{text}");
}

#[test]
fn connections_ejections_and_the_queue_are_counted_by_what_came_of_them() {
    let mut ticks = play(
        Box::new(Fixed::new(plant())),
        &mut machine(2.0, 11.72),
        vec![answered(10)],
    );
    let status = admin::Status::new("fixed".to_owned(), Duration::from_secs(1));
    status.tick(&ticks[0]);
    // Telemetry that is no gateway's, as a server's on call, has none of a gateway's series.
    for name in [
        "service_queue",
        "service_batch",
        "service_cache",
        "service_refused",
        "backend_",
        "gateway_",
    ] {
        let text = status.metrics_text();
        assert!(
            !text.contains(&format!("headroom_{name}")),
            "{name} is in\n{text}"
        );
    }
    ticks[0].backends = vec![BackendTick {
        name: "http://b".to_owned(),
        requests: 9,
        failures: 0,
        healthy: true,
        connects: Some(ConnectCounts {
            opened: 1,
            refused: 2,
            timed_out: 3,
            no_resources: 4,
            ejected_refused: 5,
            ejected_timed_out: 6,
            ejections_withheld: 7,
            ejected_failing: 8,
        }),
        left_by_clients: None,
        answered_to_nobody: None,
        failed_answers: None,
        checks: None,
    }];
    ticks[0].queue = Some(QueueCounts {
        waited: 8,
        full: 9,
        expired: 10,
        waiting: 11,
        left: 19,
    });
    ticks[0].sources = SourceCounts {
        requests: 12,
        connections: 13,
        connects: 14,
        untracked: 0,
        proxy_headers: 15,
    };
    ticks[0].client_us = 250_000;
    ticks[0].retries = RetryCounts {
        sent: 16,
        withheld: 17,
    };
    ticks[0].requests_refused = 18;
    status.tick(&ticks[0]);
    status.tick(&ticks[0]);
    let text = status.metrics_text();
    for line in [
        "headroom_backend_connects_total{backend=\"http://b\",outcome=\"opened\"} 2",
        "headroom_backend_connects_total{backend=\"http://b\",outcome=\"refused\"} 4",
        "headroom_backend_connects_total{backend=\"http://b\",outcome=\"timed_out\"} 6",
        "headroom_backend_connects_total{backend=\"http://b\",outcome=\"no_resources\"} 8",
        "headroom_backend_ejections_total{backend=\"http://b\",cause=\"refused\"} 10",
        "headroom_backend_ejections_total{backend=\"http://b\",cause=\"timed_out\"} 12",
        "headroom_service_client_seconds_total 0.5",
        "headroom_backend_ejections_total{backend=\"http://b\",cause=\"failing\"} 16",
        "headroom_backend_ejections_withheld_total{backend=\"http://b\"} 14",
        "headroom_service_queue_waits_total 16",
        "headroom_service_retries_total 32",
        "headroom_service_refused_total 36",
        // 20 that arrived in each of three periods are demand; and these.
        "headroom_service_requests_total 96",
        "headroom_service_retries_withheld_total 34",
        "headroom_service_queue_refusals_total{cause=\"full\"} 18",
        "headroom_service_queue_refusals_total{cause=\"expired\"} 20",
        "headroom_service_queue_left_total 38",
        "headroom_service_queue_length{} 11.0",
        "headroom_gateway_sources_refused_total{what=\"request\"} 24",
        "headroom_gateway_sources_refused_total{what=\"connection\"} 26",
        "headroom_gateway_sources_refused_total{what=\"connect\"} 28",
        "headroom_gateway_sources_refused_total{what=\"proxy_header\"} 30",
    ] {
        assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
    }
}

#[test]
fn refused_readings_are_counted_by_node_and_meter() {
    let mut ticks = play(
        Box::new(Fixed::new(plant())),
        &mut machine(2.0, 11.72),
        vec![answered(10)],
    );
    let refused = |node: &str, count| Refused {
        node: node.to_owned(),
        meter: "rapl".to_owned(),
        count,
    };
    let status = admin::Status::new("fixed".to_owned(), Duration::from_secs(1));
    for (one, other) in [(2, 0), (1, 0)] {
        ticks[0].refused = vec![refused("n1", one), refused("n2", other)];
        status.tick(&ticks[0]);
    }
    let text = status.metrics_text();
    for line in [
        "headroom_node_meter_refused_total{node=\"n1\",meter=\"rapl\"} 3",
        "headroom_node_meter_refused_total{node=\"n2\",meter=\"rapl\"} 0",
    ] {
        assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
    }
}

#[test]
fn a_frequency_is_a_metric_where_it_is_known_and_its_limit_where_there_is_one() {
    let mut ticks = play(
        Box::new(Fixed::new(plant())),
        &mut machine(2.0, 11.72),
        vec![answered(10)],
    );
    let status = admin::Status::new("fixed".to_owned(), Duration::from_secs(1));
    ticks[0].observation.frequency = None;
    status.tick(&ticks[0]);
    assert!(!status.metrics_text().contains("headroom_node_frequency_hertz{"));
    assert!(!status.metrics_text().contains("headroom_frequency_hertz{"));
    ticks[0].observation.frequency = Some(Measured(Hertz::new(1.5e9)).into());
    ticks[0].observation.in_force = ticks[0].observation.in_force.with(Lever::Frequency, Some(2.0e9));
    status.tick(&ticks[0]);
    let text = status.metrics_text();
    for line in [
        "headroom_node_frequency_hertz{source=\"measured\"} 1500000000.0",
        "headroom_frequency_hertz{role=\"cluster\",part=\"all\"} 2000000000.0",
    ] {
        assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
    }
    ticks[0].observation.in_force = ticks[0].observation.in_force.with(Lever::Frequency, None);
    status.tick(&ticks[0]);
    assert!(!status.metrics_text().contains("headroom_frequency_hertz{"));
}

#[test]
fn the_frequency_reaches_the_law_and_its_limit_the_machine() {
    /// Limits the frequency to half of what it sees.
    struct Halving(Plant);
    impl Law for Halving {
        fn levers(&self) -> &'static [Lever] {
            &[Lever::Cores, Lever::Cap, Lever::Frequency]
        }
        fn name(&self) -> &'static str {
            "halving"
        }
        fn decide(&mut self, seen: &Observation) -> Decision {
            let frequency = seen.frequency.map(|seen| seen.value / 2.0);
            Decision {
                setting: Allocation {
                    frequency,
                    ..self.0.full_allocation()
                }
                .into(),
                expected_rate: None,
                reflex: None,
                reasons: vec![Reason::new("halve", "half".into(), &[])],
                ..Decision::default()
            }
        }
        fn forget(&mut self) {}
    }
    let mut machine = machine(2.0, 11.72);
    let ticks = play(Box::new(Halving(plant())), &mut machine, vec![answered(10), None]);
    assert_eq!(machine.applied[0].frequency, Some(Hertz::new(1.0e9)));
    assert_eq!(ticks[1].observation.in_force.frequency(), Some(Hertz::new(1.0e9)));
    let held = ticks[1].decision.setting.frequency();
    assert_eq!(held, Some(Hertz::new(1.0e9)), "held while nothing is seen");
}

#[test]
fn the_service_rate_is_requests_by_cpu_time() {
    // Each period answers 20 requests in 10 ms of CPU time: 2000 a second and core.
    let mut telemetry = Reported((0..1000).map(|_| answered(5)).collect());
    let clock = ManualClock::new();
    let (shortest, stop) = (Duration::from_secs(10), Stop::default());
    let mut machine = machine(2.0, 11.72);
    machine.utilisation = 1.0;
    let begin = clock.now();
    let measured = calibrate::service_rate(&mut machine, &mut telemetry, shortest, &clock, &stop);
    assert!((measured.unwrap().unwrap().get() - 2000.0).abs() < 1e-6);
    // Longer than asked for: until there are enough seconds of CPU time to tell.
    let took = clock.now() - begin;
    assert!(
        (MIN_CPU.to_duration() * 50..shortest * 30).contains(&took),
        "{took:?}"
    );
    // What a period that was lost had comes with the next one, whose time is its own.
    let of_two = || {
        answered(5).map(|mut period| {
            (period.arrivals, period.completions) = (40, 40);
            period
        })
    };
    let kind = |number: u32| match number % 4 {
        0 => None,
        1 => of_two(),
        _ => answered(5),
    };
    let mut losing = Reported((0..4000).map(kind).collect());
    let measured = calibrate::service_rate(&mut machine, &mut losing, shortest, &clock, &stop);
    assert!((measured.unwrap().unwrap().get() - 2000.0).abs() < 1e-6);
    let thin = calibrate::service_rate(
        &mut machine,
        &mut Reported(VecDeque::new()),
        shortest,
        &clock,
        &stop,
    );
    assert!(thin.unwrap_err().to_string().contains("0 requests and 0.00 s"));
    stop.raise();
    let stopped = calibrate::service_rate(&mut machine, &mut telemetry, shortest, &clock, &stop);
    assert_eq!(stopped.unwrap(), None);
}

/// Telemetry whose reader stands still once, in the period of this number, as a stopped thread does.
struct Stalls<'a> {
    clock: &'a ManualClock,
    calls: u32,
    at: u32,
    length: Duration,
}

impl Telemetry for Stalls<'_> {
    fn take(&mut self, _patience: Duration) -> Option<TrafficPeriod> {
        // The first call is thrown away.
        if self.calls == self.at {
            self.clock.advance(self.length);
        }
        self.calls += 1;
        answered(10)
    }
}

/// Three periods, of which the second stalls for so long.
fn stalled(length: Duration) -> (Scripted, Vec<Tick>) {
    let mut machine = machine(2.0, 11.72);
    let clock = ManualClock::new();
    let mut law = Stack::of(Box::new(Fixed::new(plant())), plant(), 5).unwrap();
    let mut kept = Kept::default();
    let mut telemetry = Stalls {
        clock: &clock,
        calls: 0,
        at: 2,
        length,
    };
    let mut control = ControlLoop {
        frame: Frame {
            period: PERIOD,
            slo: slo(),
            dry: false,
        },
        law: &mut law,
        laws: None,
        devices: vec![&mut machine],
        telemetry: Some(&mut telemetry),
        clock: &clock,
        sinks: vec![&mut kept],
    };
    let mut left = 3;
    control.run(&Stop::default(), |_| {
        left -= 1;
        left == 0
    });
    (machine, kept.0)
}

#[test]
fn periods_that_were_missed_are_not_made_up_for() {
    let (_, ticks) = stalled(PERIOD * 5 / 2);
    let at: Vec<f64> = ticks.iter().map(|tick| tick.at.get()).collect();
    // The third was due at 3 s, and begins when the second ends; the next would be due a whole period later.
    assert_eq!(at, [1.0, 2.0, 4.5]);
    let length: Vec<f64> = ticks.iter().map(|tick| tick.observation.length.get()).collect();
    assert_eq!(length, [1.0, 1.0, 2.5]);
}

#[test]
fn what_was_decided_before_the_thread_stood_still_is_not_carried_out() {
    let (machine, ticks) = stalled(silence(PERIOD) + Duration::from_millis(1));
    let dropped: Vec<bool> = ticks
        .iter()
        .map(|tick| !tick.not_carried_out.is_empty())
        .collect();
    assert_eq!(dropped, [false, true, false]);
    assert_eq!(machine.applied.len(), 2);
    let (machine, _) = stalled(silence(PERIOD));
    assert_eq!(machine.applied.len(), 3);
}

/// A period in which so many were answered in 10 ms and so many failed.
fn failing(answered: u64, failed: u64, by_client: u64) -> Option<TrafficPeriod> {
    let mut histogram = headroom_gateway::service_histogram();
    histogram.record_n(10_000, answered).unwrap();
    Some(TrafficPeriod {
        over: None,
        arrivals: answered + failed + by_client,
        completions: answered,
        failures: failed + by_client,
        in_flight: Some(0),
        oldest_in_flight: None,
        latency: ReportedLatency::Histogram(histogram),
        backends: Vec::new(),
        queue: None,
        importance: Vec::new(),
        cache: None,
        batch: None,
        accept_pauses: 0,
        client_us: 0,
        sources: SourceCounts::default(),
        retries: RetryCounts::default(),
        refused: 0,
        sizes: None,
        outcomes: Outcomes {
            failed_by_client: by_client,
            responses: Some([0, answered, 0, 0, failed]),
            causes: vec![("failed_status", failed), ("aborted_by_client", by_client)],
        },
    })
}

#[test]
fn failed_requests_miss_the_slo_and_clients_that_went_away_do_not() {
    let periods = vec![
        failing(98, 2, 0),
        failing(80, 0, 20),
        failing(94, 6, 0),
        failing(0, 40, 0),
        failing(0, 40, 0),
    ];
    let ticks = play(Box::new(Fixed::new(plant())), &mut machine(2.0, 11.72), periods);
    let latency = |at: usize| ticks[at].observation.traffic.as_ref().unwrap().latency.unwrap();
    for kept in [0, 1] {
        assert!(!latency(kept).missed && latency(kept).at_slo < Seconds::new(0.0101));
    }
    for missed in [2, 3] {
        assert!(latency(missed).missed && latency(missed).at_slo > slo().target());
    }
    assert!(
        latency(2).distribution.unwrap().p99 < Seconds::new(0.0101),
        "of the good answers"
    );
    assert_eq!(latency(3).distribution, None);

    let status = admin::Status::new("fixed".to_owned(), Duration::from_secs(1));
    for tick in &ticks {
        status.tick(tick);
    }
    let unready = |status: &admin::Status| status.last().1.unwrap();
    assert!(unready(&status).contains("most requests"));
    let text = status.metrics_text();
    for line in [
        "headroom_responses_total{class=\"2xx\"} 272",
        "headroom_responses_total{class=\"5xx\"} 88",
        "headroom_failures_total{cause=\"failed_status\"} 88",
        "headroom_failures_total{cause=\"aborted_by_client\"} 20",
        "headroom_service_failures_total 108",
        "headroom_service_completions_total 272",
        "headroom_service_latency_at_slo_seconds inf",
    ] {
        assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
    }
}

#[test]
fn a_service_that_fails_quickly_gets_everything_and_never_less() {
    let quick = |_| failing(30, 20, 0);
    let mut machine = machine(1.0, 8.0);
    let ticks = play(slo_power(), &mut machine, (0..8).map(quick).collect());
    for tick in &ticks {
        assert_eq!(
            tick.decision.reasons[0].rule, "failing-full",
            "{:?}",
            tick.decision
        );
        assert_eq!(tick.decision.setting, plant().full());
    }
}

#[test]
fn what_the_gateways_cache_and_batcher_did_reaches_the_law_the_whole_and_the_metrics() {
    let with_front = |hits, batches| {
        answered(10).map(|period| TrafficPeriod {
            cache: Some(headroom_gateway::CacheCounts {
                hits,
                misses: 3,
                passed: 1,
                ..Default::default()
            }),
            batch: Some(headroom_gateway::BatchCounts {
                batches,
                requests: 6 * batches,
                groups: 2 * batches,
                waiting_us: 100_000 * batches,
                answered: batches,
                processing_us: 20_000 * batches,
                full: 1,
                held: 7,
                ..Default::default()
            }),
            ..period
        })
    };
    let periods = vec![with_front(4, 2), with_front(0, 0), answered(10), None];
    let ticks = play(Box::new(Fixed::new(plant())), &mut machine(2.0, 11.72), periods);
    let seen = |at: usize| &ticks[at].observation;
    let cache = seen(0).cache.unwrap();
    assert_eq!((cache.lookups, cache.hits), (8, 4));
    let batching = seen(0).batching.unwrap();
    assert_eq!((batching.batches, batching.requests, batching.groups), (2, 12, 4));
    assert_eq!(batching.mean_processing(), Some(Seconds::new(0.02)));
    assert_eq!(
        seen(1).batching,
        Some(headroom_control::BatchObservation {
            held: 7,
            ..Default::default()
        })
    );
    for nothing in [2, 3] {
        assert_eq!((seen(nothing).cache, seen(nothing).batching), (None, None));
        assert!(ticks[nothing].parts_of(Role::Cluster).next().is_none());
    }
    let whole = ticks[0].whole(&seen(0).in_force);
    for (sensor, value) in [
        (Sensor::CacheHitRatio, 0.5),
        (Sensor::BatchProcessing, 0.02),
        (Sensor::BatchWaiting, 0.1),
        (Sensor::BatchGroupSize, 3.0),
    ] {
        assert_eq!(whole.get(sensor), Some(value), "{sensor:?}");
    }
    let status = admin::Status::new("fixed".to_owned(), Duration::from_secs(1));
    status.tick(&ticks[0]);
    let text = status.metrics_text();
    for line in [
        "headroom_service_batches_total 2",
        "headroom_service_batch_requests_total 12",
        "headroom_service_batch_groups_total 4",
        "headroom_service_batch_answered_total 2",
        "headroom_service_batch_passed_total{cause=\"full\"} 1",
        "headroom_service_batch_held{} 7.0",
        "headroom_service_batch_waiting_seconds_total 0.2",
        "headroom_service_batch_processing_seconds_total 0.04",
        "headroom_service_cache_hit_ratio{} 0.5",
        "headroom_cache_hit_ratio{role=\"cluster\",part=\"all\"} 0.5",
        "headroom_batch_waiting_seconds{role=\"cluster\",part=\"all\"} 0.1",
    ] {
        assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
    }
}

#[test]
fn requests_by_the_size_of_their_answers_reach_the_law_the_parts_and_the_metrics() {
    let sized = answered(10).map(|period| {
        let mut small = headroom_gateway::ClassCounts::empty(1);
        small.counts.arrivals = 10;
        small.counts.completions = 10;
        small.counts.response_bytes = 1000;
        small.backends[0].arrivals = 9;
        let none = headroom_gateway::ClassCounts::empty(1);
        TrafficPeriod {
            sizes: Some(SizesPeriod {
                bounds: vec![4096],
                backends: vec![SizedBackend {
                    url: "http://a".to_owned(),
                    in_service: true,
                }],
                classes: vec![small, none.clone(), none],
                routes: vec![vec![1], vec![1]],
            }),
            ..period
        }
    });
    let periods = vec![sized, answered(10), None];
    let ticks = play(Box::new(Fixed::new(plant())), &mut machine(2.0, 11.72), periods);
    let seen = ticks[0].observation.sizes.as_ref().unwrap();
    assert_eq!(
        (seen.classes.len(), seen.classes[0].mean_bytes()),
        (3, Some(100.0))
    );
    assert_eq!(ticks[0].parts_of(Role::Size).count(), 3);
    for nothing in [1, 2] {
        assert!(ticks[nothing].observation.sizes.is_none());
        assert_eq!(ticks[nothing].parts_of(Role::Size).count(), 0);
    }
    // That the sizes are not told of any more is no news of parts that recovered.
    let mut newsroom = news::Newsroom::default();
    let said: Vec<String> = ticks[..2].iter().flat_map(|tick| newsroom.read(tick)).collect();
    assert!(!said.iter().any(|line| line.contains("bytes")), "{said:?}");
    let status = admin::Status::new("fixed".to_owned(), Duration::from_secs(1));
    status.tick(&ticks[0]);
    let text = status.metrics_text();
    for line in [
        "headroom_backend_size_requests_total{backend=\"http://a\",size=\"up to 4096 bytes\"} 9",
        "headroom_backend_size_requests_total{backend=\"http://a\",size=\"of unknown size\"} 0",
        "headroom_service_size_response_bytes_total{size=\"up to 4096 bytes\"} 1000",
    ] {
        assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
    }
    assert!(
        text.contains("headroom_arrival_rate_per_second{role=\"size\",part=\"over 4096 bytes\"} 0.0"),
        "{text}"
    );
}
