//! The CPU utilisation of one service, where it is not alone on the machine.

use headroom_node::Roots;
use headroom_node::cgroup::{Target, TargetSpec};
use headroom_node::cpu::quota::allowance;
use headroom_node::cpu::usage::UsageMeter;
use headroom_units::{Cores, Ratio};

/// What a control group uses of what it may use.
pub struct GroupCpu {
    roots: Roots,
    target: Target,
    meter: UsageMeter,
    /// How often its counters had started anew.
    rebases: u64,
}

impl GroupCpu {
    /// Opens it.
    ///
    /// # Errors
    /// There is no such group, or nothing counts its CPU time.
    pub fn open(roots: &Roots, spec: &TargetSpec) -> anyhow::Result<Self> {
        let target = Target::resolve(roots, spec)?;
        allowance(roots, &target)?;
        let meter = UsageMeter::open(roots, &target)?;
        Ok(Self {
            roots: roots.clone(),
            target,
            meter,
            rebases: 0,
        })
    }

    /// Which group.
    pub fn name(&self) -> &str {
        &self.target.name
    }

    /// The share used since this was last asked; nothing where it cannot be read now.
    pub fn busy(&mut self) -> Option<Ratio> {
        let used = self.meter.sample().ok()?;
        let steady = std::mem::replace(&mut self.rebases, used.rebases) == used.rebases;
        let most = allowance(&self.roots, &self.target).ok()?;
        (most > Cores::ZERO && steady).then(|| Ratio::new((used.busy / most).min(1.0)))
    }
}
