//! In which ways the accept queue of a port can be measured.

use super::tools::{CAP_BPF, CAP_PERFMON, CAP_SYS_ADMIN};
use super::{Finding, Kind, Machine, State, finding, in_words, remedy_for};
use crate::file;
use crate::process::installed;
use crate::queue::TOOLS;

/// The finding that says whether accept queues can be measured by eBPF.
pub const QUEUE_BY_EBPF: &str = "accept queue by eBPF";
/// The finding that says whether they can be by what the kernel exports.
pub const QUEUE_BY_KERNEL: &str = "accept queue by sock_diag and /proc";

/// The SNMP agent's port, as `/proc/net/udp` writes it behind a local address.
const SNMP_PORT: &str = ":00A1";

pub(super) fn findings(machine: &Machine<'_>) -> Vec<Finding> {
    vec![ebpf(machine), kernel(machine), tools(machine), snmp(machine)]
}

fn ebpf(machine: &Machine<'_>) -> Finding {
    const WHAT: &str = QUEUE_BY_EBPF;
    let types = machine.roots.sys("kernel/btf/vmlinux");
    let no = |why: String, remedy: &str| {
        finding(WHAT, Kind::Meter, State::Unusable, &types, why)
            .remedy(format!("{remedy}; until then, sock_diag"))
    };
    if let Err(reason) = headroom_queue_bpf::object() {
        let why = format!("Headroom was built without its eBPF program: {reason}");
        return no(why, headroom_queue_bpf::REMEDY);
    }
    if !types.exists() {
        return no(
            "the program cannot be fit to this kernel's types".into(),
            "use a kernel with CONFIG_DEBUG_INFO_BTF",
        );
    }
    let may = machine.has_capability(CAP_SYS_ADMIN)
        || (machine.has_capability(CAP_BPF) && machine.has_capability(CAP_PERFMON));
    if !may {
        return no(
            "this process may not load tracing programs".into(),
            "run as root, or with CAP_BPF and CAP_PERFMON",
        );
    }
    let release = file::read(&machine.roots.proc_("sys/kernel/osrelease")).unwrap_or_default();
    if version(&release).is_some_and(|version| version < (6, 2)) {
        let why = format!(
            "Linux {} lacks the tracepoint sk_data_ready",
            file::shorten(&release)
        );
        return no(why, "use Linux 6.2 or later");
    }
    let why =
        "the queue that each arrival sees, and what is enqueued, accepted and dropped, for each listener";
    finding(WHAT, Kind::Meter, State::Usable, types, why)
}

/// The first two numbers of a kernel's release.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

fn kernel(machine: &Machine<'_>) -> Finding {
    const WHAT: &str = QUEUE_BY_KERNEL;
    let path = machine.roots.proc_("net/netstat");
    match machine.permissions.read(&path) {
        Ok(()) => {
            let why = "each listener's queue, limit and drops; arrivals of the machine as a whole";
            finding(WHAT, Kind::Meter, State::Usable, path, why)
        }
        Err(errno) => {
            finding(WHAT, Kind::Meter, State::Unusable, path, in_words(errno)).remedy(remedy_for(errno))
        }
    }
}

fn tools(machine: &Machine<'_>) -> Finding {
    const WHAT: &str = "accept queue by vmstat, ss and netstat";
    let path = machine.roots.proc_("net/netstat");
    let missing: Vec<&str> = TOOLS
        .iter()
        .filter(|(tool, _)| installed(tool).is_none())
        .map(|(_, package)| *package)
        .collect();
    match missing[..] {
        [] => finding(WHAT, Kind::Meter, State::Usable, path, "all three are installed"),
        _ => finding(
            WHAT,
            Kind::Meter,
            State::Unusable,
            path,
            "not all three are installed",
        )
        .remedy(format!("apt install {}", missing.join(" "))),
    }
}

fn snmp(machine: &Machine<'_>) -> Finding {
    const WHAT: &str = "accept queue by SNMP";
    let path = machine.roots.proc_("net/udp");
    let listens = file::read(&path).unwrap_or_default().lines().any(|line| {
        let local = line.split_whitespace().nth(1);
        local.is_some_and(|local| local.ends_with(SNMP_PORT))
    });
    match listens {
        true => {
            let why = "an agent is there; whether it shows its TCP counters is seen when it is asked";
            finding(WHAT, Kind::Meter, State::Limited, path, why)
                .remedy("in snmpd.conf, a community without a view (-V): rocommunity public localhost")
        }
        false => finding(
            WHAT,
            Kind::Meter,
            State::Unusable,
            path,
            "no agent listens on UDP port 161",
        )
        .remedy("apt install snmpd"),
    }
}

#[cfg(test)]
mod tests {
    use super::version;

    #[test]
    fn a_release_is_compared_by_its_numbers() {
        assert_eq!(version("6.18.44-fc-v769"), Some((6, 18)));
        assert_eq!(version("5.4"), Some((5, 4)));
        assert!(version("6.10.1") > version("6.2.0"));
        for none in ["", "six", "6"] {
            assert_eq!(version(none), None);
        }
    }
}
