//! Which of a listener's drops were its full queue's.
//!
//! A server that sets TCP_DEFER_ACCEPT (Apache does) wants a connection only once the client has sent something. The
//! kernel then drops the client's bare acknowledgement on purpose, and counts it among the socket's drops: one for every
//! connection, however short the queue (`tcp_check_req`, tcp_minisocks.c). Handshakes that the client broke off are
//! counted there too. Two counters of the network namespace tell them apart: `TCPDeferAcceptDrop` has those on purpose,
//! `ListenDrops` those for want of room. What is neither on purpose nor beyond `ListenDrops` is taken for this port's.
//! Where other ports of the machine defer accepts as well, that may be too few.

use super::counter::Ledger;
use super::kernel::Advance;
use super::procfs::Exported;
use std::time::Instant;

/// Drops of a port's listeners for want of room, since the first reading.
#[derive(Debug)]
pub(super) struct Deferred {
    /// Dropped on purpose, and for want of room, on the machine.
    machine: Ledger<2>,
    /// The sockets' drops when the ledger was begun, and at the last reading.
    base: u64,
    last: u64,
    /// Drops for want of room before the ledger was begun, and in it.
    before: u64,
    here: u64,
}

impl Deferred {
    pub(super) fn new() -> Self {
        Self {
            machine: Self::ledger(),
            base: 0,
            last: 0,
            before: 0,
            here: 0,
        }
    }

    fn ledger() -> Ledger<2> {
        Ledger::new([usize::BITS; 2])
    }

    /// Whether the machine's counters are needed for this reading: while no socket dropped anything they say nothing.
    pub(super) fn is_needed(&self, parts: &Advance) -> bool {
        !self.machine.has_begun() || !parts.steady || parts.drops.is_some_and(|drops| drops != self.last)
    }

    /// The same of the drops for want of room alone.
    pub(super) fn take(&mut self, at: Instant, parts: &Advance, machine: Option<&Exported>) -> Advance {
        let Some(drops) = parts.drops else {
            return *parts;
        };
        let of = |drops, full_seen| Advance {
            drops: Some(drops),
            full_seen,
            steady: parts.steady,
        };
        let total = self.before + self.here;
        let grown = drops - self.last;
        self.last = drops;
        let Some(machine) = machine else {
            return of(total, 0);
        };
        if !parts.steady {
            // Sockets came or went: what they dropped meanwhile is not among the parts' drops.
            self.begin(drops);
        }
        let counts = [Some(machine.deferred), Some(machine.listen_drops)];
        let (counted, steady) = self.machine.advance(at, counts);
        if !steady {
            self.begin(drops);
            self.machine.advance(at, counts);
            return of(total, 0);
        }
        let [deferred, for_want] = counted.map(|count| count.unwrap_or(0));
        let found = (drops - self.base).saturating_sub(deferred).min(for_want);
        // The counters are not read at one instant: for a moment it can seem to be less.
        self.here = self.here.max(found);
        let real = self.before + self.here - total;
        let full_seen = match grown {
            0 => 0,
            grown => (parts.full_seen as f64 * (real as f64 / grown as f64).min(1.0)).round() as u64,
        };
        of(self.before + self.here, full_seen)
    }

    fn begin(&mut self, drops: u64) {
        self.before += self.here;
        self.here = 0;
        self.base = drops;
        self.machine = Self::ledger();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn taken(
        account: &mut Deferred,
        at: Instant,
        parts: &Advance,
        machine: Option<&Exported>,
    ) -> (Option<u64>, u64) {
        let found = account.take(at, parts, machine);
        (found.drops, found.full_seen)
    }

    fn parts(drops: u64, grown: u64, steady: bool) -> Advance {
        Advance {
            drops: Some(drops),
            full_seen: grown * 65,
            steady,
        }
    }

    fn machine(deferred: u64, listen_drops: u64) -> Exported {
        Exported {
            deferred,
            listen_drops,
            ..Exported::default()
        }
    }

    #[test]
    fn what_the_kernel_drops_on_purpose_is_no_drop() {
        let start = Instant::now();
        let at = |s| start + Duration::from_secs(s);
        let mut account = Deferred::new();
        assert!(account.is_needed(&parts(0, 0, true)), "the first");
        assert_eq!(
            taken(&mut account, at(0), &parts(0, 0, true), Some(&machine(900, 70))),
            (Some(0), 0)
        );
        assert!(!account.is_needed(&parts(0, 0, true)));
        // 200 connections, each deferred once; the counters were read before the last two.
        assert_eq!(
            taken(
                &mut account,
                at(1),
                &parts(200, 200, true),
                Some(&machine(1_098, 70))
            ),
            (Some(0), 0)
        );
        // 100 more, and 30 that found no room.
        assert_eq!(
            taken(
                &mut account,
                at(2),
                &parts(330, 130, true),
                Some(&machine(1_200, 100))
            ),
            (Some(30), 30 * 65)
        );
        assert_eq!(
            taken(&mut account, at(3), &parts(330, 0, true), None),
            (Some(30), 0)
        );
        // Another port's drops are not this one's.
        assert_eq!(
            taken(
                &mut account,
                at(4),
                &parts(340, 10, true),
                Some(&machine(1_210, 900))
            ),
            (Some(30), 0)
        );
    }

    #[test]
    fn without_deferring_every_drop_counts() {
        let start = Instant::now();
        let at = |s| start + Duration::from_secs(s);
        let mut account = Deferred::new();
        taken(&mut account, at(0), &parts(0, 0, true), Some(&machine(0, 5)));
        assert_eq!(
            taken(&mut account, at(1), &parts(8, 8, true), Some(&machine(0, 13))),
            (Some(8), 8 * 65)
        );
        // Another socket: nothing is known of the time between, and what was counted stays.
        assert_eq!(
            taken(&mut account, at(2), &parts(8, 0, false), Some(&machine(0, 40))),
            (Some(8), 0)
        );
        assert_eq!(
            taken(&mut account, at(3), &parts(10, 2, true), Some(&machine(0, 42))),
            (Some(10), 2 * 65)
        );
        // A counter that went back begins anew.
        assert_eq!(
            taken(&mut account, at(4), &parts(12, 2, true), Some(&machine(0, 1))),
            (Some(10), 0)
        );
        assert_eq!(
            taken(&mut account, at(5), &parts(13, 1, true), Some(&machine(0, 2))),
            (Some(11), 65)
        );
        let unknown = Advance {
            drops: None,
            full_seen: 0,
            steady: true,
        };
        assert_eq!(taken(&mut account, at(6), &unknown, None), (None, 0));
    }
}
