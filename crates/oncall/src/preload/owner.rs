//! The process whose threads are on call: the first of which one serves a client, and when that has ended, however it did, the next one. A
//! server of threads has another process after it was reloaded (httpd's worker MPM), after so many connections, or where a script starts it
//! again. While both are there, as where the old one still serves its last clients, the new one's are served as without us. What was first may
//! have been another program beside the server, an exporter of metrics say: a server of processes takes over from it, too.

use super::layout::{Region, mode};
use super::lock;
use super::rounds::state;
use super::sys;
use super::table;
use super::watch::{self, Began};
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// When our own thread has ended, the other threads of its process have been killed too, and may run for a moment, until the process has ended.
/// Where that cannot be told, as where another process has its number already, so long is enough.
const ENDS_WITHIN_NS: u64 = 1_000_000_000;

/// Whether threads of this process are on call: see [`begun`].
static BEGUN: AtomicU32 = AtomicU32::new(begun::NOT_ASKED);

/// What [`begun`] says.
pub mod begun {
    pub const NOT_ASKED: u32 = 0;
    /// It is being found out.
    pub const BEING_MADE: u32 = 1;
    pub const OURS: u32 = 2;
    /// Those of another process are, or processes: it is asked again with the next client when that has ended.
    pub const ELSEWHERE: u32 = 3;
    /// They would be, and what it takes could not be had, descriptors or a thread: it is asked again with the next client.
    pub const FAILED: u32 = 4;
}

/// Whether the threads of this process are the ones on call.
pub fn begun(region: &'static Region) -> u32 {
    let may_begin = || table::decide(region, mode::THREADS) && is_vacant(region);
    let asks = |known| {
        BEGUN
            .compare_exchange(known, begun::BEING_MADE, Acquire, Relaxed)
            .is_ok()
    };
    let is_elsewhere = || BEGUN.load(Acquire) == begun::ELSEWHERE;
    if !(asks(begun::NOT_ASKED) || is_elsewhere() && may_begin() && asks(begun::ELSEWHERE)) {
        // Another thread may be about to.
        let mut patience = 0;
        while BEGUN.load(Acquire) == begun::BEING_MADE && patience < 1000 {
            sys::futex_wait(&BEGUN, begun::BEING_MADE, Some(sys::now() + 1_000_000), false);
            patience += 1;
        }
        return BEGUN.load(Acquire);
    }
    let began = match may_begin() {
        false => Began::Elsewhere,
        true if lock::make_own() && table::make_key() => watch::begin(region),
        true => Began::Lacks,
    };
    let became = match began {
        Began::Yes => {
            table::forget_inherited();
            table::put_in_use(Some(region));
            begun::OURS
        }
        Began::Elsewhere => begun::ELSEWHERE,
        Began::Lacks => begun::FAILED,
    };
    let kept = match became {
        begun::FAILED => begun::NOT_ASKED,
        decided => decided,
    };
    BEGUN.store(kept, Release);
    became
}

/// In a forked child: it has no thread of ours.
pub fn forked() {
    BEGUN.store(begun::NOT_ASKED, Relaxed);
}

/// Whether no process's threads are on call, so that those of this one may be.
fn is_vacant(region: &Region) -> bool {
    if lock::is_held(&region.serving) {
        return false;
    }
    let owner = region.owner.load(Acquire);
    // One that has our number was here before: it executed this program, or has ended for long.
    if owner == 0 || owner == sys::process() || sys::has_ended(owner) {
        return true;
    }
    let now = sys::now();
    match region.ended_ns.compare_exchange(0, now, Relaxed, Relaxed) {
        Ok(_) => {
            // Another may have become it since the first look; then this is no time of its end.
            if lock::is_held(&region.serving) {
                region.ended_ns.store(0, Relaxed);
            }
            false
        }
        Err(since) => now.saturating_sub(since) > ENDS_WITHIN_NS,
    }
}

/// Makes this process the owner, for as long as the calling thread lives: whether no other one was before it. Before any of its threads is on
/// call, for what the process before it left is cleared.
pub fn become_owner(region: &Region) -> bool {
    if !lock::hold(&region.serving) {
        return false;
    }
    if region.owner.load(Relaxed) != 0 {
        clear(region);
    }
    region.ended_ns.store(0, Relaxed);
    region.owner.store(sys::process(), Release);
    true
}

/// Has processes be on call that serve a client each, in the place of a process of threads that has ended: whether they are. In a forked worker.
pub fn give_to_processes(region: &Region) -> bool {
    if !is_vacant(region) || !lock::hold(&region.serving) {
        return false;
    }
    // Another may have done so since.
    if region.mode.load(Acquire) == mode::THREADS {
        clear(region);
        region.ended_ns.store(0, Relaxed);
        region.owner.store(table::loader(), Relaxed);
        region.mode.store(mode::PROCESSES, Release);
    }
    true
}

/// Forgets the connections of a process that has ended, who of them waits, and which slots they have. What was counted goes on, and what is
/// commanded holds.
fn clear(region: &Region) {
    let lists = &region.lists;
    let top = lists.top.load(Relaxed) as usize;
    for connection in region.connections.iter().take(top) {
        if connection.generation.load(Relaxed) % 2 == 1 {
            region.buried.fetch_add(1, Relaxed);
            connection.generation.fetch_add(1, Release);
        }
        connection.state.store(state::RUNNING, Relaxed);
        let words = [
            &connection.slot,
            &connection.blocked,
            &connection.pausing,
            &connection.pinned,
            &connection.tid,
        ];
        words.into_iter().for_each(|word| word.store(0, Relaxed));
    }
    let words = [
        &region.running,
        &region.waiting,
        &region.blocked,
        &region.pausing,
        &lists.hint,
        &lists.top,
        &lists.divided,
    ];
    words.into_iter().for_each(|word| word.store(0, Relaxed));
    region.blocked_until_ns.store(0, Relaxed);
    lists.clear();
    lists.running.iter().for_each(|running| running.store(0, Relaxed));
    let of_rounds = [
        &lists.served,
        &lists.began_ns,
        &lists.granted_ns,
        &lists.not_before,
    ];
    of_rounds
        .into_iter()
        .flatten()
        .for_each(|long| long.store(0, Relaxed));
}

#[cfg(test)]
mod tests {
    use super::super::lock::tests::{fork, raise, region, signal, waitpid};
    use super::super::rounds::locked;
    use super::super::table::claim;
    use super::*;
    use std::time::Duration;

    /// A child that is the owner, and does nothing.
    fn stopped_owner(region: &Region) -> i32 {
        // SAFETY: the child makes system calls alone, and is killed.
        let child = unsafe { fork() };
        if child == 0 {
            lock::hold(&region.serving);
            region.owner.store(sys::process(), Relaxed);
            // SAFETY: SIGSTOP.
            unsafe { raise(19) };
        }
        let mut status = 0;
        // SAFETY: our child; WUNTRACED is 2.
        assert_eq!(unsafe { waitpid(child, &raw mut status, 2) }, child);
        child
    }

    #[test]
    fn what_a_process_left_is_cleared_by_the_next_when_it_has_ended() {
        let region = region();
        // What is left, in the lists too; by processes, since the lock of threads is one of each process.
        let places = [5, 6].map(|fd| locked(region, |lock| claim(lock, fd, ([0; 2], 0))));
        let [first, second] = places.map(|claimed| claimed.flatten().unwrap());
        let connections = [first, second].map(|(place, _)| &region.connections[usize::from(place)]);
        locked(region, |lock| {
            lock.take_slot(connections[0]);
            lock.enqueue(second.0);
        });
        region.mode.store(mode::THREADS, Relaxed);
        region.queries.store(9, Relaxed);
        region.lists.not_before[0].store(u64::MAX, Relaxed);
        assert!(is_vacant(region));
        let (child, mut status) = (stopped_owner(region), 0);
        // However long it does nothing, it may go on.
        region.ended_ns.store(1, Relaxed);
        assert!(!is_vacant(region) && !become_owner(region));
        region.ended_ns.store(0, Relaxed);
        signal(child, "-KILL");
        // Also where nobody waits for it.
        while !sys::has_ended(child as u32) {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(is_vacant(region));
        // Where another process had its number already, it would be known by the time.
        region.owner.store(1, Relaxed);
        assert!(!is_vacant(region) && !is_vacant(region));
        let seen = region.ended_ns.load(Relaxed);
        region.ended_ns.store(seen - 2 * ENDS_WITHIN_NS, Relaxed);
        assert!(is_vacant(region));
        region.owner.store(child as u32, Relaxed);
        // SAFETY: our child.
        assert_eq!(unsafe { waitpid(child, &raw mut status, 0) }, child);
        assert!(is_vacant(region) && become_owner(region));
        assert_eq!(region.owner.load(Relaxed), sys::process());
        assert!(!is_vacant(region), "it is ours");
        let counts = [&region.running, &region.waiting, &region.lists.running[0]];
        assert_eq!(counts.map(|count| count.load(Relaxed)), [0; 3]);
        assert!((0..4).all(|list| region.lists.is_empty(list)));
        assert_eq!(region.lists.not_before[0].load(Relaxed), 0);
        for (connection, (_, generation)) in connections.into_iter().zip([first, second]) {
            assert_eq!(connection.generation.load(Relaxed), generation + 1);
            assert_eq!(connection.slot.load(Relaxed), 0);
        }
        assert_eq!(
            (region.queries.load(Relaxed), region.buried.load(Relaxed)),
            (9, 2)
        );
    }

    #[test]
    fn processes_take_over_from_one_of_threads_that_has_ended() {
        let region = region();
        region.mode.store(mode::THREADS, Relaxed);
        let (place, _) = locked(region, |lock| claim(lock, 5, ([0; 2], 0)))
            .flatten()
            .unwrap();
        let (child, mut status) = (stopped_owner(region), 0);
        assert!(!give_to_processes(region), "it may go on");
        signal(child, "-KILL");
        // SAFETY: our child.
        assert_eq!(unsafe { waitpid(child, &raw mut status, 0) }, child);
        assert!(give_to_processes(region) && lock::is_shared(region));
        assert_eq!(region.owner.load(Relaxed), table::loader());
        assert_eq!(
            region.connections[usize::from(place)].generation.load(Relaxed) % 2,
            0
        );
        // From then on as from the beginning.
        assert!(table::decide(region, mode::PROCESSES) && !table::decide(region, mode::THREADS));
        assert!(
            locked(region, |lock| claim(lock, 5, ([0; 2], 0)))
                .flatten()
                .is_some()
        );
    }
}
