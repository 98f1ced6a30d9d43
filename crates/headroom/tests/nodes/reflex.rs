//! The reflex between two decisions, in earnest: a real gateway notices, `headroom up` raises, and what is read is the file that
//! the (emulated) kernel has for the processors' frequency.

use crate::both::alone;
use crate::common::{Config, Emulator, Load, Up, fuse_or_skipped, headroom, succeeds, until};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The highest frequency of the emulated server, kilohertz.
const HIGHEST_KHZ: u64 = 2_100_000;
/// The time between two decisions, long enough that a raise in between is not the next decision's.
const PERIOD_MS: u64 = 1_000;
/// Requests a second beside the bursts, so that there is something to decide by.
const RATE: u64 = 40;

/// Answers at once, but for `/hang`: that is answered never.
fn backend() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            std::thread::spawn(move || serve(client));
        }
    });
    at
}

fn serve(mut client: TcpStream) {
    let mut bytes = [0; 4096];
    let mut head = Vec::new();
    loop {
        match client.read(&mut bytes) {
            Ok(count) if count > 0 => head.extend_from_slice(&bytes[..count]),
            _ => return,
        }
        if !head.ends_with(b"\r\n\r\n") {
            continue;
        }
        if !head.starts_with(b"GET /hang")
            && client
                .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
                .is_err()
        {
            return;
        }
        head.clear();
    }
}

/// `headroom up` with the law "joint" on an emulated server.
struct Place {
    up: Up,
    config: Config,
    frequency: PathBuf,
    load: Load,
    _emulator: Emulator,
    _dir: TempDir,
}

impl Place {
    fn new(name: &str, more: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let emulator = Emulator::start(dir.path(), name, 0.3);
        let config = Config::of(Path::new("/web"), backend())
            .with("\"slo-power\"", "\"joint\"")
            .with("[law.slo-power]\nguard = 0.8", "[law.joint]\nlate = 0.05")
            .with("period_ms = 200", &format!("period_ms = {PERIOD_MS}"));
        let sys = emulator.sys().to_str().unwrap();
        let proc = format!("{sys}/headroom-testbed/proc");
        let trees = ["--sys", sys, "--proc", &proc];
        let up = Up::start_with(&config, &[&trees[..], more].concat());
        let load = Load::to(up.gateway, RATE);
        let policy = emulator.sys().join("devices/system/cpu/cpufreq/policy0");
        Self {
            up,
            config,
            frequency: policy.join("scaling_max_freq"),
            load,
            _emulator: emulator,
            _dir: dir,
        }
    }

    fn khz(&self) -> u64 {
        fs::read_to_string(&self.frequency).unwrap().trim().parse().unwrap()
    }

    fn bound(&self) -> Option<usize> {
        let status: Value = self.up.status();
        status["decided"]["reflex"]["bound"].as_u64().map(|bound| bound as usize)
    }

    /// Waits for a decision that lowers the frequency and has a reflex; its bound, just after it was made.
    fn lowered(&self) -> usize {
        until("the frequency is lowered under a reflex", || {
            let periods = self.up.metric("headroom_periods_total");
            until("another period ends", || {
                (self.up.metric("headroom_periods_total") > periods).then_some(())
            });
            (self.khz() < HIGHEST_KHZ).then(|| self.bound())?
        })
    }

    /// Opens as many connections as pass the bound, each with a request that nobody answers, as fast as they can be sent; they
    /// are taken back at the end.
    fn burst(&self, bound: usize) -> Vec<TcpStream> {
        let connect = |_| TcpStream::connect(self.up.gateway).unwrap();
        let mut clients: Vec<_> = (0..=bound).map(connect).collect();
        for client in &mut clients {
            client.write_all(b"GET /hang HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
        }
        clients
    }

    fn ends(mut self) {
        assert_eq!(self.load.counts().1, 0, "{}", self.up.program.err());
        drop(self.load);
        self.up.program.signal(Signal::TERM);
        let status = self.up.program.wait();
        assert!(status.success(), "{}", self.up.program.err());
        let khz = fs::read_to_string(&self.frequency).unwrap();
        assert_eq!(khz.trim(), HIGHEST_KHZ.to_string());
    }
}

/// Prints how long it takes from the first request over the bound to the frequency that the kernel has; asserts that it is raised in
/// the period of the burst, without a decision. `REFLEX_BURSTS` says how many bursts, by default three.
#[test]
fn a_burst_raises_what_the_kernel_has_before_the_next_decision_and_how_soon_is_printed() {
    if !fuse_or_skipped("the reflex on emulated hardware") {
        return;
    }
    let _alone = alone();
    let bursts = std::env::var("REFLEX_BURSTS").map_or(3, |bursts| bursts.parse().unwrap());
    let place = Place::new("headroom-reflex", &[]);
    let mut took_ms = Vec::new();
    for burst in 1..=bursts {
        let bound = place.lowered();
        let periods = place.up.metric("headroom_periods_total");
        let begin = Instant::now();
        let clients = place.burst(bound);
        // What the background load has in flight may pass the bound a request earlier: counted from the last, it is the least.
        let sent = Instant::now();
        while place.khz() < HIGHEST_KHZ {
            assert!(sent.elapsed() < Duration::from_secs(30), "{}", place.up.program.err());
        }
        took_ms.push(begin.elapsed().as_secs_f64() * 1e3);
        drop(clients);
        until("the law sees that it happened", || {
            (place.up.metric("headroom_reflexes_total") >= f64::from(burst)).then_some(())
        });
        // A decision takes place at the end of a period only, and none had ended.
        assert!(
            begin.elapsed() > Duration::from_millis(PERIOD_MS)
                || place.up.metric("headroom_periods_total") <= periods + 1.0
        );
    }
    took_ms.sort_by(f64::total_cmp);
    let at = |share: f64| took_ms[((took_ms.len() - 1) as f64 * share).round() as usize];
    println!(
        "from the first request of a burst that passes the bound to the frequency in force, {bursts} bursts: P50 {:.1} ms, P99 {:.1} ms, most {:.1} ms",
        at(0.5),
        at(0.99),
        at(1.0)
    );
    place.ends();
}

/// What an operator paused, and what somebody else wrote, no reflex touches.
#[test]
fn a_reflex_touches_nothing_that_is_paused_or_somebody_else_s() {
    if !fuse_or_skipped("the reflex on emulated hardware") {
        return;
    }
    let _alone = alone();
    let place = Place::new("headroom-reflex-kept", &[]);
    let bound = place.lowered();
    fs::write(&place.frequency, "1200000").unwrap();
    let clients = place.burst(bound);
    place.up.counts("headroom_periods_total", 2.0);
    assert_eq!(place.khz(), 1_200_000, "{}", place.up.program.err());
    drop(clients);

    let operate = |command: &str| {
        let mut command = headroom(command);
        command.arg("--run-dir").arg(place.config.run_dir());
        succeeds(command)
    };
    operate("resume");
    let bound = place.lowered();
    operate("pause");
    assert_eq!(place.khz(), HIGHEST_KHZ);
    let reflexes = place.up.metric("headroom_reflexes_total");
    let clients = place.burst(bound);
    place.up.counts("headroom_periods_total", 2.0);
    assert_eq!(place.up.metric("headroom_reflexes_total"), reflexes);
    drop(clients);
    place.ends();
}

/// A dry run decides, and writes nothing, a reflex's raise included.
#[test]
fn in_a_dry_run_no_reflex_writes() {
    if !fuse_or_skipped("the reflex on emulated hardware") {
        return;
    }
    let _alone = alone();
    let place = Place::new("headroom-reflex-dry", &["--dry-run"]);
    let low = HIGHEST_KHZ - 600_000;
    fs::write(&place.frequency, low.to_string()).unwrap();
    let bound = until("a decision has a reflex", || place.bound());
    let clients = place.burst(bound);
    place.up.counts("headroom_periods_total", 2.0);
    assert_eq!(place.khz(), low);
    assert_eq!(place.up.metric("headroom_reflexes_total"), 0.0);
    drop(clients);
    fs::write(&place.frequency, HIGHEST_KHZ.to_string()).unwrap();
    place.ends();
}
