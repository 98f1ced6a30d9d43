//! The plan as a page, and as JSON.

use super::{Found, PlaceArgs, best_other};
use crate::origin::provenance;
use headroom_control::placement::advisor::{Alternative, Plan, Routing};
use headroom_record::report::{Bars, Chart, Curve, Grid, Section, Sheet, Stroke};
use headroom_units::{Joules, Ratio};
use serde_json::{Value, json as value};

fn kwh(energy: Joules) -> f64 {
    energy.get() / 3.6e6
}

fn texts<const N: usize>(texts: [&str; N]) -> Vec<String> {
    texts.map(str::to_owned).to_vec()
}

/// By how much less the plan takes, percent.
fn saves(found: &Found, other: Joules) -> f64 {
    (1.0 - found.plan.energy / other) * 100.0
}

/// What an alternative does that keeps the SLO in every step; of another one nothing can be saved.
pub(super) fn kept(one: &Alternative) -> Option<&Plan> {
    one.plan.as_ref().ok().filter(|_| one.late.is_empty())
}

/// The share of a plan's energy that machines that are off draw, percent.
fn standby(found: &Found, plan: &Plan) -> f64 {
    plan.standby(&found.problem).get() / plan.energy.get().max(1e-9) * 100.0
}

/// The plan beside the best of the other ways that keep the SLO, and beside all machines on.
fn beside(found: &Found) -> String {
    let Some((best, energy)) = best_other(&found.alternatives) else {
        return "; no other way keeps the SLO".to_owned();
    };
    let ways = found.alternatives.iter();
    let all_on = ways
        .filter_map(|one| Some((one, kept(one)?.energy)))
        .find(|(one, _)| !one.switched && one.routing == Routing::LeastConnections)
        .filter(|(one, _)| one.name != best.name);
    let all_on = all_on.map_or_else(String::new, |(one, energy)| {
        format!(", {:.1} % less than {}", saves(found, energy), one.name)
    });
    // The plan is no worse than any of them; what rounds to nothing is nothing.
    let less = match saves(found, energy) {
        saved if saved < 0.05 => "as much as".to_owned(),
        saved => format!("{saved:.1} % less than"),
    };
    format!(
        ", {less} the best other way that keeps the SLO ({}){all_on}",
        best.name
    )
}

/// The page.
pub(super) fn sheet(found: &Found, args: &PlaceArgs) -> Sheet {
    let plan = &found.plan;
    let hours = found
        .problem
        .steps
        .iter()
        .map(|step| step.length.get())
        .sum::<f64>()
        / 3600.0;
    let beside = beside(found);
    let of_gap = match plan.gap() > Ratio::new(1e-6) {
        true => format!(
            "; the best plan may take up to {:.2} % less",
            plan.gap().as_percent()
        ),
        false => "; no plan takes less".to_owned(),
    };
    let mut remarks = vec![format!(
        "All watts and kWh are predicted by models of the machines, whose watts are {}. The first step's machines are taken to be on already.",
        found.fleet.first().map_or("unknown", |kind| kind.source.as_str())
    )];
    remarks.push(format!(
        "Each step is planned for {}{}.",
        found.peaks.source,
        if args.margin.is_none() {
            "; --margin sets another"
        } else {
            ""
        }
    ));
    remarks.extend(bare(found));
    remarks.extend(notes(found));
    Sheet {
        kind: "Placement".to_owned(),
        title: "Which machines serve what".to_owned(),
        lead: format!("{:.3} kWh in {hours:.1} h{beside}{of_gap}", kwh(plan.energy)),
        facts: vec![
            format!(
                "{} within {:.0} ms, guard {}",
                args.slo.name(),
                args.slo.target().as_millis(),
                args.guard
            ),
            if args.spare {
                "any one machine may be lost".to_owned()
            } else {
                "no spare machine".to_owned()
            },
        ],
        remarks,
        sections: vec![hourly(found), others(found), limits(found), questions(found)],
        provenance: Some(provenance()),
    }
}

/// What the plan would come to without its margin.
fn bare(found: &Found) -> Option<String> {
    let bare = found.bare.as_ref()?;
    let less = bare.best_other.map(|other| (1.0 - bare.energy / other) * 100.0);
    let beside = match less {
        Some(less) => format!(", {:.1} % less than the best other way then", less.max(0.0)),
        None => ", and no other way would keep the SLO".to_owned(),
    };
    Some(format!(
        "Without that margin (--margin 0) it would take {:.3} kWh{beside}.",
        kwh(bare.energy)
    ))
}

/// What a reader must know of the machines and of the demand.
fn notes(found: &Found) -> Vec<String> {
    let of_kinds = found.fleet.iter().flat_map(|kind| {
        let early = kind
            .full_early()
            .map(|early| format!("{early}. No plan counts on more."));
        kind.notes.iter().cloned().chain(early)
    });
    let of_demand = found.demand.notes.iter().cloned();
    of_kinds.chain(of_demand).chain(never_on(found)).collect()
}

/// Which machines no step needs, and what that costs: what any way saves against all of them on is then a figure of the fleet's size.
fn never_on(found: &Found) -> Option<String> {
    let (never, energy) = found.plan.never_on(&found.problem);
    let named = found.fleet.iter().zip(&never).filter(|(_, never)| **never > 0);
    let named: Vec<String> = named
        .map(|(kind, never)| format!("{never} {}", kind.machine.name))
        .collect();
    (!named.is_empty()).then(|| {
        format!(
            "Never on: {}. Their standby is {:.3} kWh of the plan, which without them takes {:.3} kWh, and their idle watts are a part of what it saves \
             beside all machines on. A --fleet without them shows what the others save.",
            named.join(", "),
            kwh(energy),
            kwh(found.plan.energy - energy)
        )
    })
}

fn hourly(found: &Found) -> Section {
    let names: Vec<&str> = found
        .problem
        .kinds
        .iter()
        .map(|kind| kind.machine.name.as_str())
        .collect();
    let mut header = texts(["step"]);
    header.extend(names.iter().map(|name| format!("{name} on")));
    header.extend(texts(["W", "of it off, W", "planned for"]));
    header.extend(found.problem.classes.iter().cloned());
    let rows = found.plan.steps.iter().enumerate().map(|(step, planned)| {
        let mut row = vec![step.to_string()];
        row.extend(planned.on.iter().map(u32::to_string));
        row.push(format!("{:.1}", planned.power.get()));
        let kinds = found.problem.kinds.iter().zip(&planned.on);
        let off_w: f64 = kinds
            .map(|(kind, on)| kind.machine.server.off.get() * f64::from(kind.count - on))
            .sum();
        row.push(format!("{off_w:.1}"));
        row.push(format!("{:.2} x mean", found.peaks.of_steps[step].get()));
        for class in 0..found.problem.classes.len() {
            let whole = found.problem.steps[step].rates[class];
            let shares = names.iter().enumerate().filter_map(|(kind, name)| {
                let share = planned.rate(kind, class) / whole;
                (share >= 0.005).then(|| format!("{name} {:.0} %", share * 100.0))
            });
            row.push(shares.collect::<Vec<_>>().join(", "));
        }
        row
    });
    let curve = |label: &str, powers: Vec<f64>| Curve {
        label: label.to_owned(),
        points: powers
            .into_iter()
            .enumerate()
            .map(|(step, watts)| (step as f64, watts))
            .collect(),
        stroke: Stroke::Step,
    };
    let mut curves = vec![curve(
        "this plan",
        found.plan.steps.iter().map(|step| step.power.get()).collect(),
    )];
    curves.extend(found.alternatives.iter().filter_map(|one| {
        let plan = one.plan.as_ref().ok()?;
        Some(curve(
            &labelled(one),
            plan.steps.iter().map(|step| step.power.get()).collect(),
        ))
    }));
    let words: Vec<usize> = (names.len() + 3..header.len()).collect();
    Section {
        title: "Step by step".to_owned(),
        tables: vec![Grid {
            caption: "Machines on, what all draw, and which kind serves each size".to_owned(),
            rows: rows.collect(),
            header,
            words,
        }],
        charts: vec![Chart {
            title: "Power of all machines".to_owned(),
            unit: "W".to_owned(),
            over: Some("step".to_owned()),
            curves,
            ..Chart::default()
        }],
        ..Section::default()
    }
}

/// Its name in a plot, where its outcome does not stand beside it.
fn labelled(one: &Alternative) -> String {
    match one.late.is_empty() {
        true => one.name.clone(),
        false => format!("{} (misses the SLO)", one.name),
    }
}

/// What an alternative comes to, in words.
fn outcome(one: &Alternative) -> String {
    match &one.plan {
        Err(error) => format!("cannot be done: {error}"),
        Ok(_) if one.late.is_empty() => "keeps the SLO".to_owned(),
        Ok(plan) => format!(
            "misses the SLO in {} of {} steps, first in {}",
            one.late.len(),
            plan.steps.len(),
            one.late[0]
        ),
    }
}

fn others(found: &Found) -> Section {
    let own = [
        "this plan".to_owned(),
        format!("{:.3}", kwh(found.plan.energy)),
        format!("{:.3}", kwh(found.plan.switching)),
        format!("{:.1}", standby(found, &found.plan)),
        String::new(),
        "keeps the SLO".to_owned(),
    ];
    let rows = found.alternatives.iter().map(|one| {
        let figures = match &one.plan {
            Ok(plan) => [
                format!("{:.3}", kwh(plan.energy)),
                format!("{:.3}", kwh(plan.switching)),
                format!("{:.1}", standby(found, plan)),
                kept(one).map_or_else(
                    || "misses the SLO".to_owned(),
                    |plan| format!("{:.1}", saves(found, plan.energy).max(0.0)),
                ),
            ],
            Err(_) => Default::default(),
        };
        let [energy, switching, standby, saved] = figures;
        vec![one.name.clone(), energy, switching, standby, saved, outcome(one)]
    });
    let bars = found
        .alternatives
        .iter()
        .filter_map(|one| Some((labelled(one), labelled(one), kwh(one.plan.as_ref().ok()?.energy))));
    let own_bar = (
        "this plan".to_owned(),
        "this plan".to_owned(),
        kwh(found.plan.energy),
    );
    Section {
        title: "Beside other ways to run the same machines".to_owned(),
        text: vec![
            "Machines that an alternative does not use are off. `all on, by size` shows what routing alone saves, `switched` what switching alone \
             does. Weights of round robin are capacities for the whole day's mix. All ways are held to the same peaks and measured maxima. \
             Standby is what machines that are off draw; a way that misses the SLO saves nothing."
                .to_owned(),
        ],
        tables: vec![Grid {
            caption: "Energy of the whole time".to_owned(),
            header: texts(["way", "kWh", "of it switching", "standby, %", "this plan saves, %", "outcome"]),
            rows: std::iter::once(own.to_vec()).chain(rows).collect(),
            words: vec![0, 5],
        }],
        bars: vec![Bars::of("Energy", "kWh", std::iter::once(own_bar).chain(bars))],
        ..Section::default()
    }
}

fn limits(found: &Found) -> Section {
    let mut rows = Vec::new();
    for (index, kind) in found.problem.kinds.iter().enumerate() {
        for (at, (class, serving)) in found.problem.classes.iter().zip(&kind.serves).enumerate() {
            let most = found.bounds.most[index][at];
            let capacity = kind.machine.capacity(serving.cost);
            rows.push(vec![
                kind.machine.name.clone(),
                class.clone(),
                format!("{:.0}", serving.cost.cpu.get() * 1e6),
                format!("{:.0}", serving.cost.bytes),
                format!("{:.0}", capacity.get()),
                most.map_or_else(String::new, |most| format!("{:.0}", most.get())),
                found.fleet[index]
                    .full_first(found.demand.classes[at].size_bytes)
                    .to_string(),
                serving.limit.map_or_else(
                    || "late even alone".to_owned(),
                    |limit| format!("{:.0} %", limit.as_percent()),
                ),
            ]);
        }
    }
    Section {
        title: "What a request takes".to_owned(),
        text: vec![
            "A machine is planned at no more of a size than was measured, whatever bounds it: shares of the measured maxima add up as those of its \
             cores and its link do, to at most what it may be busy. Where neither cores nor link bound it, how busy it may be is that of as many \
             cores as were busy at the maximum."
                .to_owned(),
        ],
        tables: vec![Grid {
            caption: "Processor time and bytes of a request, how many a machine's cores and link allow, how many were measured, what is full \
                      first, and how busy it may be within the SLO"
                .to_owned(),
            header: texts([
                "kind",
                "size",
                "cpu, µs",
                "link, bytes",
                "cores and link, requests/s",
                "measured, requests/s",
                "full first",
                "may be busy",
            ]),
            rows,
            words: vec![0, 1, 6, 7],
        }],
        ..Section::default()
    }
}

fn questions(found: &Found) -> Section {
    let name = |kind: usize| found.problem.kinds[kind].machine.name.clone();
    let class = |class: Option<usize>| {
        class.map_or_else(
            || "the mix".to_owned(),
            |class| found.problem.classes[class].clone(),
        )
    };
    let equal = found
        .equivalences
        .iter()
        .filter(|one| one.machines >= 1.0)
        .map(|one| {
            vec![
                class(one.class),
                name(one.one),
                format!("{:.2} {}", one.machines, name(one.many)),
                format!("{:.0}", one.capacity.get()),
                format!("{:.1}", one.power.get()),
                format!("{:.1}", one.power_of_many.get()),
                one.break_even
                    .map_or_else(|| "never".to_owned(), |rate| format!("from {:.0}", rate.get())),
            ]
        });
    let levels = found.consolidation.iter().map(|level| {
        vec![
            name(level.kind),
            format!("{:.0}", level.share.as_percent()),
            format!("{:.0}", level.rate.get()),
            level.fewest.to_string(),
            format!("{:.1}", level.consolidated.get()),
            format!("{:.1}", level.spread.get()),
        ]
    });
    let moves = found.migrations.iter().map(|one| {
        vec![
            one.step.to_string(),
            class(Some(one.class)),
            name(one.from),
            name(one.to),
            format!("{:.0}", one.rate.get()),
        ]
    });
    Section {
        title: "What the paper leaves open, for these machines".to_owned(),
        tables: vec![
            Grid {
                caption: "How many small machines equal a large one, and from which demand on the large one draws less; all of a steady load, on top of which a \
                          step's margin comes".to_owned(),
                header: texts(["size", "one", "equals", "requests/s", "it draws, W", "they draw, W", "it draws less"]),
                rows: equal.collect(),
                words: vec![0, 1, 2, 6],
            },
            Grid {
                caption: "Consolidate or spread: one kind alone under the day's mix, the fewest machines or all of them; \
                          all of a steady load, as above".to_owned(),
                header: texts(["kind", "% of what all serve", "requests/s", "fewest", "these draw, W", "all draw, W"]),
                rows: levels.collect(),
                words: vec![0],
            },
            Grid {
                caption: "When work moves from one kind to another".to_owned(),
                header: texts(["step", "size", "from", "to", "requests/s"]),
                rows: moves.collect(),
                words: vec![1, 2, 3],
            },
        ],
        ..Section::default()
    }
}

/// The plan as JSON.
pub(super) fn json(found: &Found) -> Value {
    let problem = &found.problem;
    let name = |kind: usize| &problem.kinds[kind].machine.name;
    let steps = found.plan.steps.iter().map(|step| {
        let kinds = 0..problem.kinds.len();
        let on: serde_json::Map<String, Value> = kinds
            .clone()
            .map(|kind| (name(kind).clone(), value!(step.on[kind])))
            .collect();
        let serves: serde_json::Map<String, Value> = kinds
            .map(|kind| {
                let rates = (0..problem.classes.len()).map(|class| step.rate(kind, class).get());
                (name(kind).clone(), value!(rates.collect::<Vec<_>>()))
            })
            .collect();
        value!({"on": on, "power_w": step.power.get(), "requests_per_s": serves})
    });
    let kinds = problem.kinds.iter().enumerate().map(|(index, kind)| {
        let measured = found.bounds.most[index].iter().zip(&found.demand.classes);
        let classes = kind.serves.iter().zip(measured).map(|(serving, (most, class))| {
            value!({
                "capacity_per_s": kind.machine.capacity(serving.cost).get(),
                "measured_per_s": most.map(headroom_units::PerSecond::get),
                "full_first": found.fleet[index].full_first(class.size_bytes).to_string(),
                "limit": serving.limit.map(Ratio::get),
            })
        });
        value!({"kind": kind.machine.name, "classes": classes.collect::<Vec<_>>()})
    });
    let alternatives = found.alternatives.iter().map(|one| {
        let plan = one.plan.as_ref().ok();
        value!({
            "name": one.name, "energy_j": plan.map(|plan| plan.energy.get()), "switching_j": plan.map(|plan| plan.switching.get()),
            "standby_j": plan.map(|plan| plan.standby(problem).get()), "plan_saves_percent": kept(one).map(|plan| saves(found, plan.energy)),
            "late_steps": one.late, "error": one.plan.as_ref().err().map(ToString::to_string),
        })
    });
    let equivalences = found.equivalences.iter().map(|one| {
        value!({
            "class": one.class.map(|class| &problem.classes[class]), "one": name(one.one), "many": name(one.many),
            "machines": one.machines, "capacity_per_s": one.capacity.get(), "power_w": one.power.get(),
            "power_of_many_w": one.power_of_many.get(), "break_even_per_s": one.break_even.map(headroom_units::PerSecond::get),
        })
    });
    let consolidation = found.consolidation.iter().map(|level| {
        value!({
            "kind": name(level.kind), "share": level.share.get(), "requests_per_s": level.rate.get(), "fewest": level.fewest,
            "consolidated_w": level.consolidated.get(), "spread_w": level.spread.get(),
        })
    });
    let migrations = found.migrations.iter().map(|one| {
        value!({"step": one.step, "class": problem.classes[one.class], "from": name(one.from), "to": name(one.to), "requests_per_s": one.rate.get()})
    });
    value!({
        "classes": problem.classes,
        "source": "estimated",
        "fitted_to": found.fleet.first().map(|kind| kind.source.as_str()),
        "energy_j": found.plan.energy.get(), "switching_j": found.plan.switching.get(),
        "standby_j": found.plan.standby(problem).get(), "never_on": found.plan.never_on(problem).0,
        "peaks": found.peaks.of_steps.iter().map(|peak| peak.get()).collect::<Vec<_>>(), "peaks_source": found.peaks.source,
        "kinds": kinds.collect::<Vec<_>>(),
        "without_margin": found.bare.as_ref().map(|bare| value!({
            "energy_j": bare.energy.get(), "best_other_energy_j": bare.best_other.map(Joules::get),
        })),
        "bound_j": found.plan.bound.get(), "gap": found.plan.gap().get(),
        "step_s": found.demand.step.get(),
        "steps": steps.collect::<Vec<_>>(),
        "alternatives": alternatives.collect::<Vec<_>>(),
        "equivalences": equivalences.collect::<Vec<_>>(),
        "consolidation": consolidation.collect::<Vec<_>>(),
        "migrations": migrations.collect::<Vec<_>>(),
        "notes": notes(found),
    })
}
