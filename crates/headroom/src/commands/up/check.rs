//! What `headroom up --check` finds.

use super::UpArgs;
use super::{Limits, Service, prepare, read};
use crate::check::{self, Report, Running};
use headroom_console::Failure;
use headroom_gateway::Gateway;
use headroom_node::Roots;
use headroom_node::restore;
use headroom_runtime::door;
use headroom_runtime::live::undo;
use serde_json::json;
use std::path::Path;

/// All that the start would refuse, and else what would run. Changes nothing.
pub(super) fn checked(args: &UpArgs, run_dir: &Path) -> Result<Report, Failure> {
    let configs = read(args)?;
    restore::usable(run_dir).map_err(Failure::usage)?;
    restore::global().only_ask(run_dir);
    let limits = match restore::left(run_dir) {
        restore::Left::Nothing => Limits::AsFound,
        restore::Left::OfRunning(_) | restore::Left::OfKilled => Limits::OfARun,
    };
    let services = prepare(configs, run_dir, &args.trees.roots(), limits)?;
    let running = check::running_in(run_dir);
    let mut reports = Vec::new();
    for service in services {
        let name = service.world.target.name.clone();
        reports.push((name, of(service, run_dir, &running, &args.trees.roots())?));
    }
    Ok(Report::joined("services", reports))
}

fn of(service: Service, run_dir: &Path, running: &Running, roots: &Roots) -> Result<Report, Failure> {
    let Service {
        config,
        document,
        world,
        dir,
        notes,
    } = service;
    let mut report = Report::default();
    world.describe(&config, &document, &mut report)?;
    check::savings::describe(&world.figures, roots, &mut report);
    let admin = check::record_and_admin(&config.record, &config.admin, &document, running, &mut report)?;
    if let Some(gateway) = &config.gateway {
        // What a killed run's gateway listens on is taken over.
        let ours = |address| running.holding(address).is_some() || door::is_left(&dir, address);
        Gateway::check(gateway, ours).map_err(|error| {
            let (key, why) = door::gateway_objection(gateway, &error);
            document.error(&key, why)
        })?;
        door::whom(gateway.user.as_deref())
            .map_err(|error| document.error("gateway.user", format!("{error:#}")))?;
        let left = running.pid().is_none().then(|| door::left(&dir, gateway));
        if let Some((pid, same)) = left.flatten() {
            let then = match same {
                true => "will be taken over",
                false => "has another configuration: another is started, and it finishes what it serves",
            };
            report.fact(
                "gateway",
                "left_gateway",
                format_args!("the gateway (pid {pid}) that a killed run left {then}"),
                json!({ "pid": pid, "taken_over": same }),
            );
        }
        let tls = gateway.tls.iter().map(|tls| (tls.listen, "gateway, TLS"));
        for (address, what) in gateway
            .listen
            .iter()
            .map(|address| (*address, "gateway"))
            .chain(tls)
        {
            report.listener(what, &address.to_string(), running.holding(address));
        }
        for backend in &gateway.backends {
            report.item("backend", "backends", &backend.url, backend.url.as_str());
        }
    }
    if let Some(telemetry) = &config.telemetry {
        let failed_status = config.slo.failed_status;
        telemetry.try_open(
            &document,
            config.slo(&document)?,
            failed_status,
            running.pid(),
            &mut report,
        )?;
    }
    drop(admin);
    report.fact(
        "running",
        "running",
        match running.pid() {
            Some(pid) => format!("yes, pid {pid}: stop it first, a second start is refused"),
            None => "no other headroom in this run directory".to_owned(),
        },
        running.pid(),
    );
    for note in world
        .machine
        .notes()
        .into_iter()
        .chain(notes)
        .chain(undo::note_of_left(run_dir))
    {
        report.note(note);
    }
    Ok(report)
}
