//! What a profile's file may say: figures that can be, and text that a terminal only shows. Profiles are shared, and changed by hand.

use super::cell::{Cell, Window};
use super::file::Profile;
use serde_json::Value;

/// More than any one machine draws.
const MAX_WATTS: f64 = 1e6;
/// More cores than any one machine has.
const MAX_CORES: f64 = 1e5;
/// More requests, and more bytes, than any one machine serves in a second.
const MAX_REQUESTS_PER_S: f64 = 1e10;
const MAX_BYTES_PER_S: f64 = 1e14;
/// How many times as large, and as small, the mean answer may be as the size of its cell: only answers of that size count as completed.
const SIZE_FACTOR: f64 = 2.0;

/// Figures that cannot be.
///
/// # Errors
/// The first of them, in words.
pub(super) fn check(profile: &Profile) -> Result<(), String> {
    for (at, cell) in profile.cells.iter().enumerate() {
        let Cell {
            size_bytes, density, ..
        } = cell;
        if *size_bytes == 0 {
            return Err(format!("a cell's size is 0 bytes, at density {density}"));
        }
        if !(*density > 0.0 && *density <= 1.0) {
            return Err(format!(
                "a cell's density is {density}: it must be above 0 and at most 1"
            ));
        }
        let same = |other: &&Cell| other.size_bytes == *size_bytes && (other.density - density).abs() < 1e-9;
        if profile.cells[..at].iter().any(|other| same(&other)) {
            return Err(format!(
                "the cell of {size_bytes} bytes at density {density} is there twice"
            ));
        }
        for window in &cell.windows {
            check_window(cell, window)
                .map_err(|why| format!("a window of {size_bytes} bytes at density {density} {why}"))?;
        }
    }
    for baseline in &profile.baselines {
        within(&[
            ("power_w", baseline.power_w, MAX_WATTS),
            ("busy_cores", baseline.busy_cores, MAX_CORES),
            ("softirq_cores", baseline.softirq_cores, MAX_CORES),
            ("link_bytes_per_s", baseline.link_bytes_per_s, MAX_BYTES_PER_S),
        ])
        .map_err(|why| format!("the baseline {} {why}", baseline.kind.as_str()))?;
    }
    let bits = profile.machine.link.as_ref().and_then(|link| link.bits_per_s);
    if bits.is_some_and(|bits| !(bits > 0.0 && bits <= 8.0 * MAX_BYTES_PER_S)) {
        return Err(format!(
            "the link's bits_per_s is {}: it must be above 0",
            bits.unwrap_or_default()
        ));
    }
    Ok(())
}

/// Figures that a machine can have, by their names.
fn within(figures: &[(&str, Option<f64>, f64)]) -> Result<(), String> {
    for (name, value, most) in figures {
        if let Some(value) = value.filter(|value| !(0.0..=*most).contains(value)) {
            return Err(format!(
                "has a {name} of {value}: it must be between 0 and {most}"
            ));
        }
    }
    Ok(())
}

fn check_window(cell: &Cell, window: &Window) -> Result<(), String> {
    if !(window.length_s > 0.0 && window.length_s.is_finite()) {
        return Err(format!("is {} s long", window.length_s));
    }
    if !(window.sending_share > 0.0 && window.sending_share <= 1.0) {
        return Err(format!("sends for a share of {}", window.sending_share));
    }
    let (completed, bytes) = (window.completed as f64, window.content_bytes as f64);
    let rate = |count: f64| Some(count / window.length_s);
    let figures = [
        ("power_w", window.power_w, MAX_WATTS),
        ("busy_cores", window.busy_cores, MAX_CORES),
        ("softirq_cores", window.softirq_cores, MAX_CORES),
        ("received_per_s", window.received_per_s, MAX_BYTES_PER_S),
        ("sent_per_s", window.sent_per_s, MAX_BYTES_PER_S),
        ("client_cores", Some(window.client_cores), MAX_CORES),
        ("completed for each second", rate(completed), MAX_REQUESTS_PER_S),
        (
            "failed for each second",
            rate(window.failed as f64),
            MAX_REQUESTS_PER_S,
        ),
        ("content_bytes for each second", rate(bytes), MAX_BYTES_PER_S),
    ];
    within(&figures)?;
    let size = cell.size_bytes as f64;
    if window.completed > 0 && !(size / SIZE_FACTOR..=size * SIZE_FACTOR).contains(&(bytes / completed)) {
        return Err(format!(
            "has {} content_bytes of {} completed, which are not of {} bytes each",
            window.content_bytes, window.completed, cell.size_bytes
        ));
    }
    Ok(())
}

/// Takes what a terminal acts on out of all text.
pub(super) fn plain(value: &mut Value) {
    match value {
        Value::String(text) if text.chars().any(char::is_control) => {
            let shown = |c: char| match c {
                '\n' | '\t' => ' ',
                c if c.is_control() => '\u{fffd}',
                c => c,
            };
            *text = text.chars().map(shown).collect();
        }
        Value::Array(values) => values.iter_mut().for_each(plain),
        Value::Object(values) => values.values_mut().for_each(plain),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::super::file::Plan;
    use super::*;
    use serde_json::json;

    fn window() -> Window {
        Window {
            length_s: 5.0,
            sending_share: 1.0,
            completed: 10,
            content_bytes: 10_240,
            ..Window::default()
        }
    }

    #[test]
    fn figures_that_cannot_be_are_named_with_cell_and_value() {
        let why = |change: fn(&mut Cell)| {
            let plan = Plan {
                sizes_bytes: vec![1024],
                densities: vec![1.0, 0.5],
                ..Plan::default()
            };
            let mut profile = Profile::new("web1", plan);
            profile.cells[0].windows.push(window());
            change(&mut profile.cells[0]);
            check(&profile).err().unwrap_or_default()
        };
        assert_eq!(why(|_| {}), "");
        let says = |change: fn(&mut Cell), part: &str| {
            let why = why(change);
            assert!(why.contains(part), "{part}: {why}");
        };
        says(|cell| cell.size_bytes = 0, "size is 0 bytes");
        says(|cell| cell.density = 1.5, "density is 1.5");
        says(
            |cell| cell.density = 0.5,
            "1024 bytes at density 0.5 is there twice",
        );
        says(
            |cell| cell.windows[0].length_s = -1.0,
            "at density 1 is -1 s long",
        );
        says(|cell| cell.windows[0].power_w = Some(1e308), "power_w of 1000000");
        says(|cell| cell.windows[0].power_w = Some(-2.0), "power_w of -2");
        says(|cell| cell.windows[0].power_w = Some(f64::NAN), "power_w of NaN");
        says(
            |cell| cell.windows[0].completed = 1 << 63,
            "completed for each second of 1844674407370955",
        );
        says(
            |cell| cell.windows[0].content_bytes = 0,
            "0 content_bytes of 10 completed, which are not of 1024 bytes each",
        );
    }

    #[test]
    fn figures_of_baselines_and_links_are_named_too() {
        use super::super::file::{Baseline, BaselineKind, Link};
        let with = |power_w: f64, bits_per_s: f64| {
            let mut profile = Profile::new("web1", Plan::default());
            profile.baselines = vec![Baseline {
                power_w: Some(power_w),
                ..Baseline::new(BaselineKind::Idle)
            }];
            profile.machine.link = Some(Link {
                name: "eth0".to_owned(),
                bits_per_s: Some(bits_per_s),
            });
            check(&profile).err().unwrap_or_default()
        };
        assert_eq!(with(20.0, 1e9), "");
        assert!(with(-4.0, 1e9).contains("the baseline idle has a power_w of -4"));
        for bits in [0.0, -1.0, f64::NAN] {
            assert!(with(20.0, bits).contains("the link's bits_per_s is"), "{bits}");
        }
    }

    #[test]
    fn text_only_shows() {
        let mut value =
            json!({"name": "a\u{1b}[31m\u{7}", "notes": ["one\ntwo", {"of": "c\u{9b}"}], "cores": 4});
        plain(&mut value);
        assert_eq!(
            value,
            json!({"name": "a\u{fffd}[31m\u{fffd}", "notes": ["one two", {"of": "c\u{fffd}"}], "cores": 4})
        );
    }
}
