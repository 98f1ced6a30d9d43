//! What the loaders of eBPF programs have in common: refusals in words.

use std::error::Error;

/// The kernel's answer among the causes of an error.
pub(crate) fn errno(error: &(dyn Error + 'static)) -> Option<rustix::io::Errno> {
    let mut at = Some(error);
    while let Some(error) = at {
        if let Some(number) = error
            .downcast_ref::<std::io::Error>()
            .and_then(std::io::Error::raw_os_error)
        {
            return Some(rustix::io::Errno::from_raw_os_error(number));
        }
        at = error.source();
    }
    None
}

/// The first cause of an error, on one line of bounded length: a refusal may carry pages of the verifier's log.
pub(crate) fn innermost(error: &(dyn Error + 'static)) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    let text = last.to_string();
    text.lines()
        .next()
        .unwrap_or_default()
        .chars()
        .take(200)
        .collect()
}

/// What helps where the kernel refuses a program.
pub(crate) fn remedy(error: &(dyn Error + 'static), no_tracepoint: &'static str) -> &'static str {
    use rustix::io::Errno;
    match errno(error) {
        Some(Errno::PERM | Errno::ACCESS) => {
            "run as root, or with CAP_BPF and CAP_PERFMON; in a container, its seccomp profile must allow bpf(2)"
        }
        Some(Errno::NOENT) => no_tracepoint,
        Some(Errno::NOSYS) => "use a kernel with CONFIG_BPF_SYSCALL",
        Some(Errno::NOMEM) => "the program's maps need memory: see the limits of its cgroup",
        _ => "this kernel does not take the program: report it with the kernel's version (uname -r)",
    }
}
