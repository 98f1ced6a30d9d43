//! Load that is changed while it runs.

use crate::common::get;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Requests at a rate that can be changed, each on a connection of its own.
pub struct Load {
    per_s: Arc<AtomicU64>,
    answered: Arc<AtomicU64>,
    wrong: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    pub fn to(address: SocketAddr, per_s: u64) -> Self {
        Self::of_clients(8, address, per_s)
    }

    /// So many clients share the rate, each waiting for its answer.
    pub fn of_clients(clients: u64, address: SocketAddr, rate: u64) -> Self {
        let mut load = Self {
            per_s: Arc::new(AtomicU64::new(rate)),
            answered: Arc::default(),
            wrong: Arc::default(),
            stop: Arc::default(),
            threads: Vec::new(),
        };
        let start = Instant::now();
        for number in 0..clients {
            let (per_s, stop) = (Arc::clone(&load.per_s), Arc::clone(&load.stop));
            let (answered, wrong) = (Arc::clone(&load.answered), Arc::clone(&load.wrong));
            load.threads.push(std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    // Of a grid that all share, so that no stall makes them send together from then on.
                    let interval = clients as f64 / per_s.load(Ordering::Relaxed) as f64;
                    let phase = number as f64 / clients as f64;
                    let turn = (start.elapsed().as_secs_f64() / interval - phase).floor() + 1.0;
                    let due = Duration::from_secs_f64((turn + phase).max(0.0) * interval);
                    std::thread::sleep(due.saturating_sub(start.elapsed()));
                    let right = get(address, "/").is_ok_and(|answer| answer.status == 200);
                    if right { &answered } else { &wrong }.fetch_add(1, Ordering::Relaxed);
                }
            }));
        }
        load
    }

    pub fn at(&self, per_s: u64) {
        self.per_s.store(per_s, Ordering::Relaxed);
    }

    pub fn counts(&self) -> (u64, u64) {
        (
            self.answered.load(Ordering::Relaxed),
            self.wrong.load(Ordering::Relaxed),
        )
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
