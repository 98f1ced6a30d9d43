//! A port of this machine.

use super::Watching;
use super::cpu::{GroupCpu, ServiceCpu};
use super::watch::Watch;
use headroom_console::Failure;
use headroom_node::cgroup::TargetSpec;
use headroom_node::queue::{QueueError, QueueMeter, QueueMethod, QueueOptions, listening_ports, open};

/// Ports that a remark names.
const MAX_NAMED: usize = 12;

type Meter = Box<dyn QueueMeter>;

/// A method's meter, and a second one for the samples in between, where those would make its CPU utilisation one of
/// hundredths of a second.
fn open_one(method: QueueMethod, options: &QueueOptions) -> Result<(Meter, Option<Meter>), QueueError> {
    let meter = open(method, options);
    let between = (method == QueueMethod::Kernel)
        .then(|| open(method, options))
        .transpose();
    Ok((meter?, between?))
}

impl Watching {
    /// Opens what works here, and keeps why the others do not.
    pub(super) fn open_here(
        &mut self,
        options: &QueueOptions,
        group: Option<TargetSpec>,
    ) -> Result<(), Failure> {
        let group = group.map(|spec| GroupCpu::open(&options.roots, &spec));
        let mut cpu = group.transpose().map_err(Failure::usage)?;
        let methods = self.plan.methods.clone();
        if let Some(cpu) = cpu.as_ref().filter(|_| methods.contains(&QueueMethod::Kernel)) {
            self.remarks
                .push(format!("the CPU utilisation by /proc is that of {}", cpu.name()));
        }
        for method in methods {
            match open_one(method, options) {
                Ok((meter, between)) => {
                    let cpu = cpu
                        .take_if(|_| method == QueueMethod::Kernel)
                        .map(|cpu| Box::new(cpu) as Box<dyn ServiceCpu>);
                    let watch = Watch::new(meter, between, cpu, &self.plan, self.started);
                    self.watches.push(watch.map_err(Failure::usage)?);
                }
                Err(error @ QueueError::NobodyListens { .. }) => return Err(Failure::usage(error)),
                Err(error) => self.pass_over(method, error.to_string()),
            }
        }
        self.remark_ports(options)
    }

    /// What a reader must know of the port and of this machine.
    fn remark_ports(&mut self, options: &QueueOptions) -> Result<(), Failure> {
        let others: Vec<String> = listening_ports()?
            .into_iter()
            .filter(|other| *other != self.plan.port)
            .map(|other| other.to_string())
            .collect();
        if !others.is_empty() {
            let named = match others.len() {
                0..=MAX_NAMED => others.join(", "),
                more => format!("{} and {} more", others[..MAX_NAMED].join(", "), more - MAX_NAMED),
            };
            self.remark_machine(&format!("port {named}"));
        }
        let sockets = open(QueueMethod::Kernel, options).and_then(|mut meter| meter.sample());
        if let Ok(sample) = sockets {
            self.remark_sockets(sample.listeners.len(), sample.places());
        }
        Ok(())
    }
}
