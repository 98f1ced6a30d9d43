//! The CPU utilisation of one service, where it is not alone on the machine.

use crate::cluster::AgentGroup;
use headroom_node::Roots;
use headroom_node::cgroup::{Target, TargetSpec};
use headroom_node::cpu::{GroupMeter, GroupUsage};
use headroom_units::Ratio;

/// What one service uses of what it may use.
pub trait ServiceCpu: Send {
    /// The share used since this was last asked, which it is after each sample; nothing where that cannot be
    /// compared with what was read then: its counters began anew, or what it may use changed by more than a quarter.
    ///
    /// # Errors
    /// Why it cannot be read now, in words.
    fn busy(&mut self) -> Result<Option<Ratio>, String>;
}

/// What a control group of this machine uses of what it may use.
pub struct GroupCpu {
    meter: GroupMeter,
    before: Option<GroupUsage>,
}

impl GroupCpu {
    /// Opens it.
    ///
    /// # Errors
    /// There is no such group, or nothing counts its CPU time.
    pub fn open(roots: &Roots, spec: &TargetSpec) -> anyhow::Result<Self> {
        let target = Target::resolve(roots, spec)?;
        Ok(Self {
            meter: GroupMeter::open(roots, &target)?,
            before: None,
        })
    }

    /// Which group.
    pub fn name(&self) -> &str {
        self.meter.name()
    }
}

impl ServiceCpu for GroupCpu {
    fn busy(&mut self) -> Result<Option<Ratio>, String> {
        let now = self.meter.sample()?;
        let before = self.before.replace(now);
        Ok(before.and_then(|before| now.share_since(&before)))
    }
}

impl ServiceCpu for AgentGroup {
    fn busy(&mut self) -> Result<Option<Ratio>, String> {
        Self::busy(self)
    }
}
