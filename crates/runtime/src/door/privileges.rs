//! Giving up every privilege, for good.

use anyhow::{Context, bail, ensure};
use nix::unistd::User;
use rustix::process::{Gid, Uid, geteuid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, clear_ambient_capability_set, remove_capability_from_bounding_set,
    set_capabilities, set_no_new_privs, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};
use std::time::{Duration, Instant};

/// So long a thread that has ended may be listed.
const THREAD_ENDS: Duration = Duration::from_secs(1);

/// Whom the gateway runs as where nobody says: the first of these that there is.
const USUAL: [&str; 2] = ["headroom", "nobody"];

/// Whether this process is root's, so that it can become another user's.
pub fn is_root() -> bool {
    geteuid().is_root()
}

/// Makes this process one of a user without any privilege: no groups, no capabilities, no way to new ones. A process that
/// is not root's keeps its user.
///
/// # Errors
/// A user that there is not, a process that has threads already (they would keep what this one gives up), a kernel that
/// refuses.
pub fn give_up(user: Option<&str>) -> anyhow::Result<()> {
    let threads = lasting_threads();
    ensure!(
        threads == 1,
        "{threads} threads run, and only one would give up its privileges"
    );
    if let Some((uid, gid)) = whom(user)? {
        let all = || -> rustix::io::Result<()> {
            set_thread_groups(&[])?;
            clear_ambient_capability_set()?;
            for capability in CapabilitySet::all().iter() {
                match remove_capability_from_bounding_set(capability) {
                    // A kernel that is older than the capability; a container that may not, where what follows keeps
                    // the process from new ones all the same.
                    Ok(()) | Err(rustix::io::Errno::INVAL | rustix::io::Errno::PERM) => {}
                    Err(error) => return Err(error),
                }
            }
            set_thread_res_gid(gid, gid, gid)?;
            set_thread_res_uid(uid, uid, uid)
        };
        all().with_context(|| {
            format!(
                "the gateway cannot become user {} (group {})",
                uid.as_raw(),
                gid.as_raw()
            )
        })?;
        ensure!(
            uid.is_root() || set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT).is_err(),
            "root was given up and is had again"
        );
    }
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, none).context("the gateway cannot give up its capabilities")?;
    set_no_new_privs(true).context("the gateway cannot give up what set-user-id programs would give it")
}

/// Closes all that whoever started this had open, but for the standard streams: it is nothing of this process's.
pub fn close_inherited() {
    let open = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let numbers: Vec<i32> = open
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    for number in numbers.into_iter().filter(|number| *number > 2) {
        // The one that listed them is closed already.
        let _ = nix::unistd::close(number);
    }
}

/// Whom [`give_up`] makes this process; `None` where it stays its user's.
///
/// # Errors
/// A user that there is not.
pub fn whom(user: Option<&str>) -> anyhow::Result<Option<(Uid, Gid)>> {
    geteuid().is_root().then(|| find(user)).transpose()
}

/// The threads that run, without those that have ended: whoever waited for the end of one goes on a moment before the kernel has taken it
/// from its list, which on a busy machine is a long one.
fn lasting_threads() -> usize {
    let threads = || std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count);
    let until = Instant::now() + THREAD_ENDS;
    loop {
        match threads() {
            more if more > 1 && Instant::now() < until => std::thread::sleep(THREAD_ENDS / 100),
            threads => return threads,
        }
    }
}

fn find(user: Option<&str>) -> anyhow::Result<(Uid, Gid)> {
    let named = |name: &str| -> anyhow::Result<Option<(Uid, Gid)>> {
        let found =
            User::from_name(name).with_context(|| format!("the user {name:?} cannot be looked up"))?;
        Ok(found.map(|user| (Uid::from_raw(user.uid.as_raw()), Gid::from_raw(user.gid.as_raw()))))
    };
    let Some(name) = user else {
        for name in USUAL {
            if let Some(found) = named(name)? {
                return Ok(found);
            }
        }
        bail!(
            "there is neither a user {} nor {}: name one that there is",
            USUAL[0],
            USUAL[1]
        );
    };
    if let Some(found) = named(name)? {
        return Ok(found);
    }
    // A container's users often have numbers only; its group has the same then.
    let number: Option<u32> = name.parse().ok().filter(|number| *number < u32::MAX);
    let Some(number) = number else {
        bail!("there is no user {name:?} on this machine: make it, or name another");
    };
    Ok((Uid::from_raw(number), Gid::from_raw(number)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_name_or_number_and_a_missing_one_is_named() {
        assert!(find(Some("root")).unwrap().0.is_root());
        assert_eq!(find(Some("4711")).unwrap().1.as_raw(), 4711);
        let error = find(Some("no-such-user")).unwrap_err();
        assert_eq!(
            format!("{error:#}"),
            "there is no user \"no-such-user\" on this machine: make it, or name another"
        );
    }

    #[test]
    fn a_process_of_several_threads_is_refused() {
        // A test has the harness's thread beside its own.
        assert!(give_up(None).unwrap_err().to_string().contains("threads"));
    }
}
