//! What a `--check` says: all that the start would refuse, with the same words, and otherwise what would run.
//!
//! A check asks the functions that the start asks and leaves nothing behind. What it finds in use by the running headroom of
//! the same run directory or configuration is no mistake: the start would have it after that one was stopped.

mod owner;
pub mod savings;

pub use owner::Running;

use crate::config::{AdminConfig, RecordConfig};
use crate::start::unusable_record;
use headroom_console::Failure;
use headroom_console::say;
use headroom_console::{ConfigError, Document};
use headroom_control::{Plant, Slo};
use headroom_node::cap::LimitError;
use headroom_node::power::MeterError;
use headroom_node::restore::{self, RestoreError};
use headroom_record::Recorder;
use headroom_runtime::live::admin;
use headroom_runtime::oncall::LEVERS;
use headroom_units::{Lever, LeverRange};
use serde_json::{Map, Value, json};
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;

/// The columns that a label takes at least.
const MIN_LABEL: usize = 9;

/// What would run, in the order in which it is said.
#[derive(Debug, Default)]
pub struct Report {
    lines: Vec<(String, String)>,
    values: Map<String, Value>,
}

impl Report {
    /// Says something there is one of: under this label, and under this key in JSON.
    pub fn fact(&mut self, label: &str, key: &str, text: impl std::fmt::Display, value: impl Into<Value>) {
        self.line(label, text);
        self.values.insert(key.to_owned(), value.into());
    }

    /// Says something there may be several of; in JSON they are a list.
    pub fn item(&mut self, label: &str, key: &str, text: impl std::fmt::Display, value: impl Into<Value>) {
        self.line(label, text);
        let list = self.values.entry(key).or_insert_with(|| json!([]));
        if let Value::Array(list) = list {
            list.push(value.into());
        }
    }

    /// What the user should know.
    pub fn note(&mut self, text: impl std::fmt::Display) {
        let text = text.to_string();
        self.item("note", "notes", &text, text.as_str());
    }

    /// The SLO.
    pub fn slo(&mut self, slo: Slo) {
        let (percentile, target_ms) = (slo.percentile().as_percent(), slo.target().as_millis());
        self.fact(
            "slo",
            "slo",
            format_args!("P{percentile} under {target_ms} ms"),
            json!({ "percentile": percentile, "target_ms": target_ms }),
        );
    }

    /// A place that is listened on, for what, and who has it now.
    pub fn listener(&mut self, what: &str, place: &str, running: Option<u32>) {
        let now = running.map_or(String::new(), |pid| {
            format!(", in use by the running headroom (pid {pid})")
        });
        self.item(
            "listen",
            "listeners",
            format_args!("{place} ({what}){now}"),
            json!({ "for": what, "address": place, "in_use_by": running }),
        );
    }

    /// What a lever can be set to, and by what where that is known here.
    pub fn lever(&mut self, lever: Lever, range: LeverRange, by: Option<&str>) {
        let (name, info) = (lever.name(), lever.info());
        let (unit, scale) = info.shown;
        let step = Some(range.step).filter(|step| *step > 0.0);
        let steps = step.map_or_else(String::new, |step| {
            let count = (range.max - range.min) / step;
            let even = (count - count.round()).abs() < 1e-3;
            match even || lever != Lever::Frequency {
                true => format!(" in steps of {:.2}", step / scale),
                // A driver's own frequencies, of which the smallest gap is known.
                false => format!(" in uneven steps of {:.2} or more", step / scale),
            }
        });
        let named = by.map_or_else(String::new, |by| format!(", by {by}"));
        self.item(
            name,
            "levers",
            format_args!("{:.2} to {:.2} {unit}{steps}{named}", range.min / scale, range.max / scale),
            json!({
                "lever": name, "minimum": range.min, "maximum": range.max, "step": step, "unit": info.unit, "by": by,
            }),
        );
    }

    /// What can be allocated, and by what.
    pub fn plant(&mut self, plant: &Plant, cores_by: &str, cap_by: &str) {
        let (cores, power) = (plant.cores(), plant.power());
        let stepped = |min: f64, max: f64, step: f64| LeverRange {
            step,
            ..LeverRange::between(min, max)
        };
        let full = power.limit(cores.max()).get();
        self.lever(
            Lever::Cores,
            stepped(cores.min().get(), cores.max().get(), cores.step().get()),
            Some(cores_by),
        );
        self.lever(
            Lever::Cap,
            LeverRange::between(power.lowest_cap.get(), full),
            Some(cap_by),
        );
        match plant.frequency() {
            Some(range) => self.lever(
                Lever::Frequency,
                stepped(range.min().get(), range.max().get(), range.step().get()),
                Some("cpufreq"),
            ),
            None => self.line("speed", "is not limited (`headroom doctor` says why)"),
        }
        self.fact(
            "power",
            "power",
            format_args!(
                "{:.2} W + {:.2} W per core",
                power.base.get(),
                power.per_core.get()
            ),
            json!({ "base_w": power.base.get(), "per_core_w": power.per_core.get() }),
        );
    }

    /// What laws can set of a server on call, or of those of all nodes.
    pub fn oncall_levers(&mut self, plant: &Plant) {
        for (lever, _) in LEVERS {
            if let Some(range) = plant.range(lever) {
                self.lever(lever, range, Some("the server on call"));
            }
        }
    }

    /// What laws can set of the gateways.
    pub fn gateway_levers(&mut self, plant: &Plant) {
        for (lever, range) in plant.of_cluster() {
            self.lever(lever, range, Some("the gateway"));
        }
    }

    /// Several reports as one, each under its name; one alone is itself.
    pub fn joined(key: &str, mut reports: Vec<(String, Self)>) -> Self {
        if reports.len() == 1 {
            return reports.remove(0).1;
        }
        let mut all = Self::default();
        for (name, report) in reports {
            all.lines.push((name.clone(), String::new()));
            all.lines.extend(report.lines);
            let list = all.values.entry(key).or_insert_with(|| json!([]));
            if let Value::Array(list) = list {
                list.push(Value::Object(report.values));
            }
        }
        all
    }

    /// A line without a value of its own.
    pub fn line(&mut self, label: &str, text: impl std::fmt::Display) {
        self.lines.push((label.to_owned(), text.to_string()));
    }

    fn text(&self) -> String {
        let labels = self.lines.iter().map(|(label, _)| label.len() + 1);
        let width = labels.fold(MIN_LABEL, usize::max);
        let line = |(label, text): &(String, String)| format!("{label:<width$}{text}\n");
        self.lines.iter().map(line).collect()
    }

    fn json(mut self) -> Value {
        self.values.insert("ok".to_owned(), Value::Bool(true));
        Value::Object(self.values)
    }
}

/// Prints how a check ended; a failure fails the command as the start's would.
///
/// # Errors
/// The check's own; standard output that cannot be written.
pub fn conclude(as_json: bool, checked: Result<Report, Failure>) -> Result<(), Failure> {
    match checked {
        Ok(report) if as_json => say::result(report.json()),
        Ok(report) => say::result(report.text() + "nothing was changed"),
        Err(failure) => {
            if as_json {
                say::result(json!({ "ok": false, "errors": described(&failure) }))?;
            }
            Err(failure)
        }
    }
}

/// What went wrong, each as JSON: file, line, key and message, `null` where it has none.
fn described(failure: &Failure) -> Vec<Value> {
    let each = failure.each().into_iter();
    each.map(|(text, place)| match place {
        Some(error) => json!({
            "file": error.file,
            "line": error.line,
            "key": error.key(),
            "message": error.message,
        }),
        None => json!({ "file": null, "line": null, "key": null, "message": text }),
    })
    .collect()
}

/// What a check objects to so far: one objection is no reason not to look for the next.
#[derive(Debug, Default)]
pub struct Objections(Vec<Failure>);

impl Objections {
    /// Keeps the objection to one part; what is right of it is returned.
    pub fn of<T>(&mut self, part: Result<T, impl Into<Failure>>) -> Option<T> {
        part.map_err(|failure| self.0.push(failure.into())).ok()
    }

    /// The levers of a service that were asked for and are another's, each at the key that it is used by.
    pub fn of_levers(&mut self, document: &Document, service_key: &str) {
        let mut known = Vec::new();
        for error in restore::global().refused() {
            let RestoreError::InUse { lever, .. } = &error else {
                continue;
            };
            if !known.contains(lever) {
                known.push(lever.clone());
                let key = lever_key(lever).unwrap_or(service_key);
                self.0.push(document.error(key, &error).into());
            }
        }
    }

    /// Whether there is none.
    ///
    /// # Errors
    /// All of them.
    pub fn done(mut self) -> Result<(), Failure> {
        match self.0.len() {
            0 => Ok(()),
            1 => Err(self.0.remove(0)),
            _ => Err(Failure::Several(self.0)),
        }
    }
}

/// The key of `[power]` that a lever's file is used by; `None` where it is the service's own.
fn lever_key(lever: &Path) -> Option<&'static str> {
    let has = |names: &[&str]| {
        let mut parts = lever.iter().map(|part| part.to_string_lossy());
        parts.any(|part| names.contains(&&*part))
    };
    match () {
        () if has(&["cpufreq"]) => Some("power.frequency"),
        () if has(&["powercap", "hwmon", "hsmp"]) => Some("power.cap_lever"),
        () => None,
    }
}

/// What [`crate::start::open`] opens, tried and let go.
///
/// # Errors
/// As there.
pub fn record_and_admin(
    record: &RecordConfig,
    admin: &AdminConfig,
    document: &Document,
    running: &Running,
    report: &mut Report,
) -> Result<Option<TcpListener>, Failure> {
    self::record(record, document, report)?;
    admin_port(admin.listen, document, running, report)
}

/// The record, tried.
///
/// # Errors
/// One that cannot be opened.
pub fn record(record: &RecordConfig, document: &Document, report: &mut Report) -> Result<(), ConfigError> {
    Recorder::check(&record.db, record.limits()).map_err(|error| unusable_record(document, &error))?;
    let place = record.db.display().to_string();
    report.fact("record", "record", &place, place.as_str());
    Ok(())
}

/// The admin port, bound for as long as what is returned lives: another listener of the same configuration must not take it.
///
/// # Errors
/// An address that cannot be listened on, unless the running headroom does.
pub fn admin_port(
    listen: Option<SocketAddr>,
    document: &Document,
    running: &Running,
    report: &mut Report,
) -> Result<Option<TcpListener>, Failure> {
    let Some(address) = listen else {
        report.line("listen", "nowhere for metrics: admin.listen is off");
        return Ok(None);
    };
    let bound = admin::bind(address);
    let in_use = |error: &anyhow::Error| {
        let cause = error.root_cause().downcast_ref::<std::io::Error>();
        cause.is_some_and(|cause| cause.kind() == ErrorKind::AddrInUse)
    };
    match bound {
        Ok(bound) => {
            report.listener("admin", &address.to_string(), None);
            Ok(Some(bound))
        }
        Err(error) => match running.holding(address).filter(|_| in_use(&error)) {
            Some(pid) => {
                report.listener("admin", &address.to_string(), Some(pid));
                Ok(None)
            }
            None => Err(document.error("admin.listen", format!("{error:#}")).into()),
        },
    }
}

/// The key that an error about meters and levers is about, where it is about one of those.
pub fn power_key(error: &anyhow::Error) -> Option<&'static str> {
    if error.is::<MeterError>() {
        return Some("power.meter");
    }
    limit_key(error.downcast_ref()?)
}

/// As [`power_key`].
pub fn limit_key(error: &LimitError) -> Option<&'static str> {
    match error {
        LimitError::Meter(_) => Some("power.meter"),
        LimitError::Power(_) | LimitError::NoLever { .. } => Some("power.cap_lever"),
        LimitError::Frequency(_) => Some("power.frequency"),
        _ => None,
    }
}

/// The running headroom of a run directory.
pub fn running_in(run_dir: &Path) -> Running {
    match restore::left(run_dir) {
        restore::Left::OfRunning(pid) => Running::of(pid.parse().ok()),
        _ => Running::of(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_and_what_is_told_as_json_are_the_same() {
        let mut report = Report::default();
        report.fact("law", "law", "fixed", "fixed");
        report.listener("gateway", "127.0.0.1:80", None);
        report.listener("admin", "127.0.0.1:81", Some(7));
        report.note("a");
        assert_eq!(
            report.text(),
            "law      fixed\nlisten   127.0.0.1:80 (gateway)\nlisten   127.0.0.1:81 (admin), in use by the running headroom \
             (pid 7)\nnote     a\n"
        );
        let json = report.json();
        assert_eq!(json["ok"], true);
        assert_eq!(json["listeners"][1]["in_use_by"], 7);
        assert_eq!(json["notes"], json!(["a"]));
    }

    #[test]
    fn steps_that_are_not_even_are_said_so() {
        let said = |min: f64, max: f64, step: f64| {
            let mut report = Report::default();
            let range = LeverRange {
                step: step * 1e9,
                ..LeverRange::between(min * 1e9, max * 1e9)
            };
            report.lever(Lever::Frequency, range, Some("cpufreq"));
            report.text()
        };
        let uneven = said(2.0, 2.83, 0.33);
        assert!(
            uneven.contains("2.00 to 2.83 GHz in uneven steps of 0.33 or more, by cpufreq"),
            "{uneven}"
        );
        let even = said(0.8, 2.1, 0.1);
        assert!(
            even.contains("0.80 to 2.10 GHz in steps of 0.10, by cpufreq"),
            "{even}"
        );
    }

    #[test]
    fn an_error_keeps_its_place_and_its_key() {
        let document = Document::shipped("headroom.toml", "[slo]\ntarget_ms = 0\n");
        let failure = Failure::from(document.error("slo.target_ms", "is 0: no"));
        assert_eq!(
            described(&failure),
            [
                json!({ "file": "headroom.toml", "line": 2, "key": "slo.target_ms", "message": "slo.target_ms: is 0: no" })
            ]
        );
        let failure = Failure::usage(anyhow::anyhow!("no: way"));
        assert_eq!(described(&failure)[0]["message"], "no: way");
    }

    #[test]
    fn a_lever_of_another_is_at_the_key_that_it_is_used_by() {
        for (lever, key) in [
            (
                "/sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq",
                Some("power.frequency"),
            ),
            (
                "/sys/devices/virtual/powercap/intel-rapl/intel-rapl:0/constraint_0_power_limit_uw",
                Some("power.cap_lever"),
            ),
            ("/dev/hsmp", Some("power.cap_lever")),
            ("/sys/fs/cgroup/web.slice/cpu.max", None),
        ] {
            assert_eq!(lever_key(Path::new(lever)), key, "{lever}");
        }
    }
}
