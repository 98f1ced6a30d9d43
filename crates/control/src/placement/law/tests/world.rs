//! A small queueing model: backends whose cores and link are shared by the requests present, Poisson arrivals, and either routes by weight and
//! bound or the fewest requests in flight.

use super::super::*;
use crate::common::plant;
use crate::observation::{Latency, Traffic};
use crate::placement::{BackendObservation, ClassOnBackend, SizeClass, SizesObservation};
use headroom_physics::serving::ServingMachine;
use headroom_units::{LeverRange, Ratio};

pub(super) const TARGET_MS: f64 = 250.0;

/// Two large machines that take less for small answers, and four small ones that take less for large answers.
pub(super) const MACHINES: [&str; 6] = ["large", "large", "small", "small", "small", "small"];

pub(super) fn figures(kind: &str) -> KindFigures {
    let small = kind == "small";
    KindFigures {
        cores: 4,
        link_bytes_per_s: 12.5e6,
        idle_w: if small { 4.0 } else { 30.0 },
        busy_w: if small { 13.0 } else { 70.0 },
        link_w: 0.5,
        request_us: if small { 30_000.0 } else { 4_000.0 },
        kilobyte_us: if small { 100.0 } else { 80.0 },
        head_bytes: 300.0,
        bytes_per_byte: 1.05,
    }
}

pub(super) fn url(backend: usize) -> String {
    format!("http://10.0.0.{backend}:80")
}

pub(super) fn tuning() -> PlacementTuning {
    PlacementTuning {
        machines: MACHINES
            .iter()
            .enumerate()
            .map(|(index, kind)| (url(index), (*kind).to_owned()))
            .collect(),
        kinds: ["large", "small"]
            .map(|kind| (kind.to_owned(), figures(kind)))
            .into(),
        path_ms: 0.0,
        ..PlacementTuning::default()
    }
}

pub(super) fn law(tuning: PlacementTuning) -> Placement {
    let slo = Slo::new(Ratio::new(0.95), Seconds::from_millis(TARGET_MS)).unwrap();
    let plant = plant([0.2, 2.0, 0.1], [6.0, 2.86, 6.2]);
    let plant = plant
        .with_range(Lever::Placement, LeverRange::between(0.0, 1.0))
        .unwrap();
    Placement::new(slo, &plant, tuning).unwrap()
}

pub(super) struct Job {
    pub(super) class: usize,
    /// Core seconds at the cores, then seconds of the link.
    pub(super) left: f64,
    pub(super) at_link: bool,
    pub(super) came: f64,
}

pub(super) struct Backend {
    pub(super) machine: ServingMachine,
    pub(super) figures: KindFigures,
    /// How much longer its cores take than its figures say.
    pub(super) slow: f64,
    pub(super) up: bool,
    /// It takes requests and serves none.
    pub(super) hung: bool,
    pub(super) jobs: Vec<Job>,
    pub(super) busy_core_s: f64,
    pub(super) busy_link_s: f64,
}

/// The world, with classes as sizes and rates.
pub(super) struct World {
    pub(super) backends: Vec<Backend>,
    pub(super) classes: Vec<(f64, f64)>,
    /// What every request takes besides, seconds.
    pub(super) path_s: f64,
    pub(super) routes: Option<Routes>,
    pub(super) now: f64,
    pub(super) random: u64,
    /// Latencies of all requests that ended.
    pub(super) latencies: Vec<f64>,
    pub(super) period: u64,
}

impl World {
    pub(super) fn new(classes: &[(f64, f64)]) -> Self {
        let backend = |kind: &&str| Backend {
            machine: figures(kind).machine(kind),
            figures: figures(kind),
            slow: 1.0,
            up: true,
            hung: false,
            jobs: Vec::new(),
            busy_core_s: 0.0,
            busy_link_s: 0.0,
        };
        Self {
            backends: MACHINES.iter().map(backend).collect(),
            classes: classes.to_vec(),
            path_s: 0.0,
            routes: None,
            now: 0.0,
            random: 0x2545_f491_4f6c_dd1d,
            latencies: Vec::new(),
            period: 0,
        }
    }

    fn uniform(&mut self) -> f64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) as f64 / (1u64 << 53) as f64
    }

    pub(super) fn work_j(&self) -> f64 {
        let joules = |one: &Backend| {
            one.busy_core_s * one.figures.busy_w / one.figures.cores as f64
                + one.busy_link_s * one.figures.link_w
        };
        self.backends.iter().map(joules).sum()
    }

    fn route(&mut self, class: usize) -> Option<usize> {
        let row = self
            .routes
            .as_ref()
            .and_then(|routes| routes.weights.get(class))
            .cloned()
            .unwrap_or_default();
        let usable = |backend: usize| {
            if self.backends[backend].up {
                row.get(backend).copied().unwrap_or(0)
            } else {
                0
            }
        };
        let bounds = self
            .routes
            .as_ref()
            .filter(|_| row.iter().any(|weight| *weight > 0));
        let bounds = bounds
            .and_then(|routes| routes.most_in_flight.get(class))
            .cloned();
        let bound = |backend: usize| bounds.as_ref().map_or(usize::MAX, |most| most[backend] as usize);
        let has_room = |backend: usize| self.backends[backend].jobs.len() < bound(backend);
        let with_room = |backend| if has_room(backend) { usable(backend) } else { 0 };
        let weights: Vec<u32> = (0..self.backends.len()).map(with_room).collect();
        let sum: u32 = weights.iter().sum();
        if sum == 0 && bounds.is_some() {
            let share =
                |backend: usize| (self.backends[backend].jobs.len() + 1) as f64 / bound(backend) as f64;
            let bounded = (0..self.backends.len()).filter(|one| self.backends[*one].up && bound(*one) > 0);
            return bounded.min_by(|one, two| share(*one).total_cmp(&share(*two)));
        }
        if sum > 0 {
            let mut at = self.uniform() * f64::from(sum);
            return weights.iter().position(|weight| {
                at -= f64::from(*weight);
                at < 0.0
            });
        }
        let turn = (self.uniform() * self.backends.len() as f64) as usize;
        let up = (0..self.backends.len()).filter(|backend| self.backends[*backend].up);
        up.min_by_key(|backend| {
            (
                self.backends[*backend].jobs.len(),
                (backend + turn) % self.backends.len(),
            )
        })
    }

    /// How fast the work of a job shrinks: at the cores, at the link.
    fn speeds(backend: &Backend) -> [f64; 2] {
        if backend.hung {
            return [0.0; 2];
        }
        let at_link = backend.jobs.iter().filter(|job| job.at_link).count() as f64;
        let at_cores = backend.jobs.len() as f64 - at_link;
        [
            (backend.figures.cores as f64 / at_cores.max(1.0)).min(1.0),
            1.0 / at_link.max(1.0),
        ]
    }

    /// One period of a second, and what a law is given of it.
    pub(super) fn run(&mut self) -> Observation {
        let end = self.now + 1.0;
        let mut seen: Vec<SizeClass> = self
            .classes
            .iter()
            .map(|(size, _)| SizeClass {
                up_to: Some(*size as u64 * 8),
                known: true,
                backends: vec![ClassOnBackend::default(); self.backends.len()],
                ..SizeClass::default()
            })
            .collect();
        let mut took: Vec<Vec<Vec<f64>>> = vec![vec![Vec::new(); self.backends.len()]; self.classes.len()];
        let mut arrivals: Vec<f64> = Vec::new();
        for class in 0..self.classes.len() {
            let wait = -(1.0 - self.uniform()).ln() / self.classes[class].1.max(1e-9);
            arrivals.push(self.now + wait);
        }
        loop {
            let (class, at) = arrivals
                .iter()
                .copied()
                .enumerate()
                .min_by(|one, two| one.1.total_cmp(&two.1))
                .unwrap();
            let ends = self.backends.iter().flat_map(|backend| {
                let speeds = Self::speeds(backend);
                backend
                    .jobs
                    .iter()
                    .map(move |job| job.left / speeds[usize::from(job.at_link)])
            });
            let next = ends.fold(f64::INFINITY, f64::min);
            let step = next.min(at - self.now).min(end - self.now).max(0.0);
            self.now += step;
            for (index, backend) in self.backends.iter_mut().enumerate() {
                let speeds = Self::speeds(backend);
                for job in &mut backend.jobs {
                    let speed = speeds[usize::from(job.at_link)];
                    job.left -= step * speed;
                    match job.at_link {
                        true => backend.busy_link_s += step * speed,
                        false => backend.busy_core_s += step * speed,
                    }
                }
                let (service, link) = (backend.figures.service(), backend.machine.link_bytes_per_s);
                let ends = self.now + self.path_s;
                backend.jobs.retain_mut(|job| {
                    if job.left > 1e-12 {
                        return true;
                    }
                    if !job.at_link {
                        (job.at_link, job.left) = (true, service.of(self.classes[job.class].0).bytes / link);
                        return true;
                    }
                    took[job.class][index].push(ends - job.came);
                    false
                });
            }
            if self.now >= end - 1e-12 {
                break;
            }
            if self.now >= at - 1e-12 {
                arrivals[class] = self.now - (1.0 - self.uniform()).ln() / self.classes[class].1.max(1e-9);
                seen[class].arrivals += 1;
                if let Some(to) = self.route(class) {
                    seen[class].backends[to].arrivals += 1;
                    let backend = &mut self.backends[to];
                    let left = backend.figures.service().of(self.classes[class].0).cpu.get() * backend.slow;
                    backend.jobs.push(Job {
                        class,
                        left,
                        at_link: false,
                        came: self.now,
                    });
                }
            }
        }
        let p95 = |mut all: Vec<f64>| {
            all.sort_by(f64::total_cmp);
            let at = (all.len() as f64 * 0.95).ceil() as usize;
            all.get(at.saturating_sub(1)).map(|late| Seconds::new(*late))
        };
        let latency = |all: Vec<f64>| {
            p95(all).map(|at_slo| Latency {
                at_slo,
                missed: false,
                distribution: None,
            })
        };
        let everything: Vec<f64> = took.iter().flatten().flatten().copied().collect();
        self.latencies.extend(&everything);
        for (class, of_class) in seen.iter_mut().zip(took) {
            for (at, of_backend) in class.backends.iter_mut().zip(&of_class) {
                at.completions = of_backend.len() as u64;
                let sum: f64 = of_backend.iter().sum();
                at.mean = (!of_backend.is_empty()).then(|| Seconds::new(sum / of_backend.len() as f64));
                at.at_slo = p95(of_backend.clone());
            }
            class.completions = class.backends.iter().map(|at| at.completions).sum();
            class.latency = latency(of_class.concat());
        }
        for (class, (size, _)) in seen.iter_mut().zip(&self.classes) {
            class.bytes = (class.completions as f64 * size) as u64;
        }
        self.period += 1;
        let backend = |(index, one): (usize, &Backend)| BackendObservation {
            url: url(index),
            in_service: one.up,
            in_flight: one.jobs.len() as u64,
        };
        Observation {
            period: self.period,
            length: Seconds::new(1.0),
            in_force: Setting::default()
                .with(Lever::Placement, Some(f64::from(u8::from(self.routes.is_some())))),
            traffic: Some(Traffic {
                arrivals: seen.iter().map(|class| class.arrivals).sum(),
                completions: everything.len() as u64,
                latency: latency(everything),
                ..Traffic::default()
            }),
            sizes: Some(SizesObservation {
                backends: self.backends.iter().enumerate().map(backend).collect(),
                classes: seen,
            }),
            ..Observation::default()
        }
    }

    /// Some periods under a law.
    pub(super) fn under(&mut self, law: &mut Placement, periods: usize) -> Vec<Decision> {
        let mut decisions = Vec::new();
        for _ in 0..periods {
            let observed = self.run();
            let decision = law.decide(&observed);
            assert_eq!(
                decision.routes.is_some(),
                decision.setting.get(Lever::Placement) == Some(1.0)
            );
            self.routes.clone_from(&decision.routes);
            decisions.push(decision);
        }
        decisions
    }

    /// The P95 of what ended since it was asked last.
    pub(super) fn p95_ms(&mut self) -> f64 {
        let mut all = std::mem::take(&mut self.latencies);
        all.sort_by(f64::total_cmp);
        all[(all.len() as f64 * 0.95) as usize] * 1e3
    }
}
