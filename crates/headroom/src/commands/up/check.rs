//! What `headroom up --check` finds.

use super::UpArgs;
use super::{Limits, Service, read};
use crate::check::{self, Objections, Report, Running};
use crate::config::Config;
use headroom_console::{Document, Failure};
use headroom_gateway::{Gateway, GatewayConfig};
use headroom_node::restore;
use headroom_runtime::door;
use headroom_runtime::live::undo;
use serde_json::json;
use std::path::Path;

/// All that the start would refuse, and else what would run. Changes nothing. The mistakes of the files come first and alone: what
/// the machine says is of a file that makes sense.
pub(super) fn checked(args: &UpArgs, run_dir: &Path) -> Result<Report, Failure> {
    let configs = read(args)?;
    let mut found = Objections::default();
    found.of(restore::usable(run_dir).map_err(Failure::usage));
    restore::global().only_ask(run_dir);
    let limits = match restore::left(run_dir) {
        restore::Left::Nothing => Limits::AsFound,
        restore::Left::OfRunning(_) | restore::Left::OfKilled => Limits::OfARun,
    };
    let (running, roots) = (check::running_in(run_dir), args.trees.roots());
    let several = configs.len() > 1;
    let (mut services, mut reports) = (Vec::new(), Vec::new());
    for (config, document) in configs {
        let mut report = Report::default();
        let configured = (config.clone(), document.clone());
        let service = Service::prepare(configured, (run_dir, several), &roots, limits, &services);
        let service = found.of(service);
        found.of_levers(&document, config.service.target_key());
        if let Some(service) = &service {
            found.of(service.world.describe(&config, &document, &mut report));
            check::savings::describe(&service.world.figures, &roots, &mut report);
        }
        let place = Place {
            config: &config,
            document: &document,
            dir: service.as_ref().map(|service| &*service.dir),
            running: &running,
        };
        place.check(&mut found, &mut report);
        if let Some(service) = &service
            && let Some(on_call) = &service.oncall
        {
            found.of(on_call.check((&document, running.pid()), &mut report));
        }
        if let Some(service) = &service {
            let notes = service.world.machine.notes().into_iter();
            notes
                .chain(service.notes.iter().cloned())
                .chain(undo::note_of_left(run_dir))
                .for_each(|note| report.note(note));
        }
        let name = service.as_ref().map(|service| service.world.target.name.clone());
        reports.push((name.unwrap_or_default(), report));
        services.extend(service);
    }
    found.done()?;
    Ok(Report::joined("services", reports))
}

/// Where a service's gateway, record and metrics are to be.
struct Place<'a> {
    config: &'a Config,
    document: &'a Document,
    /// Where its gateway's process leaves its record; `None` where the service itself is not there.
    dir: Option<&'a Path>,
    running: &'a Running,
}

impl Place<'_> {
    fn check(&self, found: &mut Objections, report: &mut Report) {
        let Self {
            config,
            document,
            running,
            ..
        } = *self;
        found.of(check::record(&config.record, document, report));
        // Bound for as long as the gateway's addresses are tried: none of them is to be the same.
        let admin = found.of(check::admin_port(config.admin.listen, document, running, report));
        if let Some(gateway) = &config.gateway {
            self.check_gateway(gateway, found, report);
        }
        if let Some(telemetry) = &config.telemetry
            && let Some(slo) = found.of(config.slo(document))
        {
            let failed_status = config.slo.failed_status;
            found.of(telemetry.try_open(document, slo, failed_status, None, running.pid(), report));
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
    }

    fn check_gateway(&self, gateway: &GatewayConfig, found: &mut Objections, report: &mut Report) {
        let Self {
            document,
            running,
            dir,
            ..
        } = *self;
        // What a killed run's gateway listens on is taken over.
        let ours = |address| {
            running.holding(address).is_some() || dir.is_some_and(|dir| door::is_left(dir, address))
        };
        found.of(Gateway::check(gateway, ours).map_err(|error| {
            let (key, why) = door::gateway_objection(gateway, &error);
            document.error(&key, why)
        }));
        let user = door::whom(gateway.user.as_deref());
        found.of(user.map_err(|error| document.error("gateway.user", format!("{error:#}"))));
        let left = dir.filter(|_| running.pid().is_none());
        if let Some((pid, same)) = left.and_then(|dir| door::left(dir, gateway)) {
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
        let clear = gateway.listen.iter().map(|address| (*address, "gateway"));
        let http = gateway.http.iter().map(|http| (http.listen, "gateway"));
        for (address, what) in clear.chain(tls).chain(http) {
            report.listener(what, &address.to_string(), running.holding(address));
        }
        for backend in &gateway.backends {
            report.item("backend", "backends", &backend.url, backend.url.as_str());
        }
    }
}
