//! What parts of Headroom need of the kernel to run: counters, programs in the kernel, file systems, networks.

use super::{Finding, Kind, Machine, State, finding, in_words, remedy_for};
use crate::file;
use std::path::PathBuf;

/// Capability numbers (include/uapi/linux/capability.h).
pub(super) const CAP_SYS_ADMIN: u32 = 21;
pub(super) const CAP_PERFMON: u32 = 38;
pub(super) const CAP_BPF: u32 = 39;

pub(super) fn findings(machine: &Machine<'_>) -> Vec<Finding> {
    vec![
        perf(machine),
        ebpf(machine),
        fuse(machine),
        network_namespaces(machine),
    ]
}

fn perf(machine: &Machine<'_>) -> Finding {
    const WHAT: &str = "perf events";
    let path = machine.own.proc_("sys/kernel/perf_event_paranoid");
    let level = file::read(&path).ok().and_then(|text| text.parse::<i64>().ok());
    let may = machine.has_capability(CAP_PERFMON) || machine.has_capability(CAP_SYS_ADMIN);
    let remedy = "run as root or with CAP_PERFMON, or: sysctl kernel.perf_event_paranoid=0";
    match level {
        None => finding(WHAT, Kind::Tool, State::Unusable, path, "the kernel has none")
            .remedy("use a kernel with CONFIG_PERF_EVENTS"),
        Some(_) if may => finding(
            WHAT,
            Kind::Tool,
            State::Usable,
            path,
            "this process may count everything",
        ),
        Some(level) if level <= 0 => finding(
            WHAT,
            Kind::Tool,
            State::Usable,
            path,
            format!("level {level}: everybody may count the machine"),
        ),
        Some(level) if level <= 2 => {
            let why = format!("level {level}: this user may count its own processes only");
            finding(WHAT, Kind::Tool, State::Limited, path, why).remedy(remedy)
        }
        Some(level) => finding(
            WHAT,
            Kind::Tool,
            State::Unusable,
            path,
            format!("level {level}: only root may count"),
        )
        .remedy(remedy),
    }
}

fn ebpf(machine: &Machine<'_>) -> Finding {
    const WHAT: &str = "eBPF";
    let switch = machine.own.proc_("sys/kernel/unprivileged_bpf_disabled");
    if !switch.exists() {
        return finding(WHAT, Kind::Tool, State::Unusable, switch, "the kernel has none")
            .remedy("use a kernel with CONFIG_BPF_SYSCALL");
    }
    let may = machine.has_capability(CAP_SYS_ADMIN)
        || (machine.has_capability(CAP_BPF) && machine.has_capability(CAP_PERFMON));
    if !may {
        return finding(
            WHAT,
            Kind::Tool,
            State::Unusable,
            switch,
            "this process may not load tracing programs",
        )
        .remedy("run as root, or with CAP_BPF and CAP_PERFMON");
    }
    let types = machine.own.sys("kernel/btf/vmlinux");
    match types.exists() {
        true => finding(
            WHAT,
            Kind::Tool,
            State::Usable,
            types,
            "programs may be loaded, and fit to this kernel's types",
        ),
        false => finding(
            WHAT,
            Kind::Tool,
            State::Limited,
            types,
            "programs may be loaded, but not fit to this kernel's types",
        )
        .remedy("use a kernel with CONFIG_DEBUG_INFO_BTF"),
    }
}

fn fuse(machine: &Machine<'_>) -> Finding {
    const WHAT: &str = "FUSE (emulated hardware)";
    let device = PathBuf::from("/dev/fuse");
    match machine.permissions.write(&device) {
        Ok(()) => finding(
            WHAT,
            Kind::Tool,
            State::Usable,
            device,
            "the device may be opened",
        ),
        Err(rustix::io::Errno::NOENT) => finding(
            WHAT,
            Kind::Tool,
            State::Unusable,
            device,
            "the device does not exist",
        )
        .remedy("modprobe fuse; in a container, pass it in (--device /dev/fuse)"),
        Err(errno) => {
            finding(WHAT, Kind::Tool, State::Unusable, device, in_words(errno)).remedy(remedy_for(errno))
        }
    }
}

fn network_namespaces(machine: &Machine<'_>) -> Finding {
    const WHAT: &str = "network namespaces";
    let own = machine.own.proc_("self/ns/net");
    if std::fs::symlink_metadata(&own).is_err() {
        return finding(WHAT, Kind::Tool, State::Unusable, own, "the kernel has none")
            .remedy("use a kernel with CONFIG_NET_NS");
    }
    if machine.has_capability(CAP_SYS_ADMIN) {
        return finding(WHAT, Kind::Tool, State::Usable, own, "this process may make them");
    }
    let limit = machine.own.proc_("sys/user/max_user_namespaces");
    match file::read_u64(&limit) {
        Ok(most) if most > 0 => {
            let why = "only inside a user namespace of one's own, cut off from the machine's network";
            finding(WHAT, Kind::Tool, State::Limited, limit, why).remedy("run as root")
        }
        _ => finding(
            WHAT,
            Kind::Tool,
            State::Unusable,
            own,
            "this process may not make them",
        )
        .remedy("run as root"),
    }
}
