//! `headroom controller --check`: all that a start would refuse, and what would run.

use super::record::Place;
use super::{Cluster, ControllerArgs, read, servers};
use crate::check::savings::{self, Levers};
use crate::check::{self, Report, Running};
use crate::config::controller::ControllerFile;
use headroom_console::{Document, Failure, Stop};
use headroom_control::LawName;
use headroom_node::ours;
use headroom_runtime::live::undo;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;

/// All that the start would refuse, and else what would run; nothing where it was stopped. Changes nothing.
pub fn checked(args: &ControllerArgs, file: &Path, command: &str) -> Result<Option<Report>, Failure> {
    let (config, document) = read(args, file, command)?;
    let running = Running::with_config(command, file);
    let mut report = Report::default();
    let admin = check::record_and_admin(&config.record, &config.admin, &document, &running, &mut report)?;
    drop(admin);
    let run_dir = undo::run_dir(args.run_dir.as_deref())?;
    let place = Place::of(&run_dir, file)?;
    if config.resizes() {
        ours::check_make(place.path()).map_err(Failure::usage)?;
    }
    let stop = Stop::at_signals()?;
    let looks_only = ControllerArgs {
        dry_run: true,
        check: true,
        run: args.run.clone(),
        config: None,
        run_dir: None,
        ..*args
    };
    let Some(mut cluster) = Cluster::open(&looks_only, (&config, &document), &place, &stop)? else {
        return Ok(None);
    };
    let law = config.law.names.to_string();
    report.fact("law", "law", &law, law.as_str());
    report.slo(config.slo.slo(&document)?);
    for (name, address) in config.agent_addresses(&document)? {
        let value = json!({ "name": name, "address": address.to_string() });
        report.item("node", "nodes", format_args!("{name} at {address}"), value);
    }
    for (name, address) in &config.gateways {
        let value = json!({ "name": name, "address": address });
        report.item("gateway", "gateways", format_args!("{name} at {address}"), value);
    }
    if cluster.machine.is_some() {
        report.plant(&cluster.plant, "the agents", "the agents");
        let (text, value) = match cluster.source {
            Some(source) => (format!("the agents' ({source})"), source.as_str().into()),
            None => ("the agents', of several sources".to_owned(), Value::Null),
        };
        report.fact("meter", "meter", text, value);
    }
    report.gateway_levers(&cluster.plant);
    report.oncall_levers(&cluster.plant);
    let mut notes = cluster.warnings.clone();
    if let Some(found) = &mut cluster.servers {
        if let Some(name) = found.unheard().first() {
            let why = format!(
                "nobody listens there, and {name} answers at its check: what comes to it would not be counted, and too few servers be on; give the \
                 port at which it serves"
            );
            return Err(document.error(&format!("nodes.{name}.accept_queue"), why).into());
        }
        notes.append(&mut servers::describe(&config, found, &mut report));
    }
    if let Some(telemetry) = &config.telemetry {
        let (slo, failed) = (config.slo.slo(&document)?, config.slo.failed_status);
        let statistics = config.statistics();
        telemetry.try_open(&document, slo, failed, statistics, running.pid(), &mut report)?;
    }
    notes.into_iter().for_each(|note| report.note(note));
    let before = place.record()?;
    if cluster.commanded > 0 {
        let which = match cluster.commanded == config.gateways.len() {
            true => "the gateways are".to_owned(),
            false => format!("{} of {} gateways are", cluster.commanded, config.gateways.len()),
        };
        let whose = running
            .pid()
            .map_or_else(String::new, |pid| format!(" (pid {pid})"));
        report.note(format_args!(
            "{which} commanded by another controller{whose}, so what they have was not asked; all else was. That controller reads [gateways] and \
             maintenance of its file again at SIGHUP; before another starts, stop it"
        ));
    }
    for note in &cluster.notes {
        report.note(note);
    }
    if let Some(before) = &before {
        report.note(format_args!(
            "a run of this file (pid {}) has the servers, or was killed and may have left some off: the next start starts them, \
             and so does `headroom release --run-dir {}`",
            before.pid,
            run_dir.display()
        ));
    }
    describe_savings(&config, &document, &cluster, &mut report)?;
    Ok(Some(report))
}

/// Says what each lever can save: on the nodes whose agents answered, and on those whose figures are configured.
fn describe_savings(
    config: &ControllerFile,
    document: &Document,
    cluster: &Cluster,
    report: &mut Report,
) -> Result<(), Failure> {
    let is_configured = |name: &String| {
        config.machine.is_some() || config.nodes.get(name).is_some_and(|n| n.machine.is_some())
    };
    let figures = match cluster.machines.is_empty() {
        true => config.machines(document, &BTreeMap::new(), &cluster.plant)?,
        false => cluster.machines.clone(),
    };
    let (mut machines, mut unknown) = (Vec::new(), Vec::new());
    for ((name, node), figures) in config.nodes.iter().zip(figures) {
        let levers = match cluster.descriptions.get(name) {
            Some(description) => Levers::of_node(description),
            None if is_configured(name) => Levers::unknown("its agent was not asked, or did not answer"),
            None => {
                unknown.push(name.as_str());
                continue;
            }
        };
        let is_switched = config.switching_law().is_some() && node.server.power.is_some();
        machines.push((
            name.clone(),
            figures,
            Levers {
                is_switched,
                ..levers
            },
        ));
    }
    savings::describe_cluster(&machines, report);
    // Who only switches servers has no other lever.
    let sets_machines = |law: LawName| !law.resizes() && !law.of_gateways();
    if !unknown.is_empty() && config.law.names.iter().any(sets_machines) {
        report.note(format_args!(
            "what levers save on {} is not known: give [machine], or an agent that answers",
            unknown.join(", ")
        ));
    }
    Ok(())
}
