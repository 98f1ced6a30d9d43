//! How many file descriptors this process may have open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit to what the system lets: the soft one is a default for programs that use `select`, which nothing here
/// does. Each connection of a client and to a backend is a descriptor.
pub fn raise_limit() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum {
        return;
    }
    let wanted = Rlimit {
        current: maximum,
        maximum,
    };
    match setrlimit(Resource::Nofile, wanted) {
        Ok(()) => tracing::info!(from = current, to = maximum, "the limit of open files was raised"),
        Err(error) => tracing::warn!(
            %error,
            limit = current,
            "the limit of open files cannot be raised: raise it for this program (LimitNOFILE=, ulimit -n)"
        ),
    }
}
