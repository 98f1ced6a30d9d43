//! Profiles: how many bytes a second a machine serves for a watt, by the size of the requests and by how much of the time they come.
//!
//! A profile is one file (JSON, [`Profile::SCHEMA`]) that can be kept, shared, read by another version, and compared with others
//! ([`compare`]). It holds every window as it was measured, so that whoever doubts an interval can make it again, and so that one that
//! was interrupted goes on where it ended. The measure and its name, throughput per power (KB/s/W), are those of Yamada, Kawai and
//! Oshima (power characteristics of servers by request, Tables 1 and 2).
//!
//! ```
//! use headroom_record::profile::{Cell, Window};
//!
//! let window = |requests: u64| Window {
//!     length_s: 5.0,
//!     sending_share: 1.0,
//!     completed: requests,
//!     content_bytes: requests * 1024,
//!     power_w: Some(50.0),
//!     ..Window::default()
//! };
//! let mut cell = Cell::new(1024, 1.0);
//! cell.windows = vec![window(50_000), window(50_500), window(49_500)];
//! // 10,000 answers of 1 KB a second at 50 W.
//! let per_power = cell.throughput_per_power().unwrap();
//! assert_eq!(per_power.mean.round(), 200.0);
//! assert!(per_power.half_width.unwrap() < 6.0);
//! ```

mod agreement;
mod bound;
mod cell;
mod check;
pub mod compare;
mod file;
mod lock;
mod rows;

pub use agreement::{Agreement, Answer, Apart, agreement};
pub use bound::{Bound, FULL};
pub use cell::{Cell, Latencies, Mark, Window};
pub use file::{
    Baseline, BaselineKind, Link, MachineFacts, Meter, Plan, Profile, ProfileError, Protocol, ServiceFacts,
};
pub use lock::Lock;
pub use rows::{Comparison, Row, Verdict, rows};

/// Bytes of a kilobyte here, as of the paper's and of `ab`'s figures.
pub const KB: f64 = 1024.0;

/// A size as people write it: `1 KB`, `999 KB`, `1.5 MB`, `700 B`.
pub fn size_text(bytes: u64) -> String {
    let kb = bytes as f64 / KB;
    let number = |value: f64| {
        let text = format!("{value:.1}");
        text.strip_suffix(".0").map(str::to_owned).unwrap_or(text)
    };
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{} KB", number(kb)),
        _ => format!("{} MB", number(kb / KB)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        let texts = [700, 1024, 10 * 1024, 999 * 1024, 1536, 3 << 20].map(size_text);
        assert_eq!(texts, ["700 B", "1 KB", "10 KB", "999 KB", "1.5 KB", "3 MB"]);
    }
}
