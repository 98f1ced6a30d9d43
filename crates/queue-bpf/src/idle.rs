//! The kernel side of measuring idle periods: two programs, of which one is attached, and each core's record of the
//! lengths of its idle periods.
//!
//! The source is `idle.bpf.c`.

/// The program that counts by idle states, and the raw tracepoint it belongs on.
pub const CPU_IDLE: &str = "cpu_idle";
/// The program that counts by the idle task, and the raw tracepoint it belongs on.
pub const SCHED_SWITCH: &str = "sched_switch";
/// The constant that says over which lengths time is added up: `[u64; MAX_THRESHOLDS]`, nanoseconds.
pub const THRESHOLDS: &str = "thresholds";
/// How many.
pub const MAX_THRESHOLDS: usize = 4;
/// The map of records: per processor, one [`Record`].
pub const RECORDS: &str = "records";
/// The map with the epoch, one `u64`, which the reader advances before each reading.
pub const EPOCHS: &str = "epochs";

/// Lengths of 2 to this power in nanoseconds and more have a class of their own; shorter ones share the first.
const FIRST_POWER: u32 = 10;
/// Lengths of 2 to this power in nanoseconds and more share the last class.
const LAST_POWER: u32 = 34;
/// Classes in an octave.
const EACH: u64 = 4;
/// How many classes of lengths there are.
pub const CLASSES: usize = (LAST_POWER - FIRST_POWER) as usize * EACH as usize + 2;
/// How many periods that were running at a reading a record remembers.
pub const CROSSINGS: usize = 2;

/// One core's record, as the kernel side writes it: by [`field`].
pub type Record = [u64; field::WRITING + 1];

/// Places in a [`Record`]; times are nanoseconds of `CLOCK_MONOTONIC`.
pub mod field {
    use super::{CLASSES, CROSSINGS, MAX_THRESHOLDS};

    /// Writes that are complete: the record is whole where it is equal to [`WRITING`].
    pub const WRITTEN: usize = 0;
    /// When the first event was, 0 before.
    pub const FIRST: usize = 1;
    /// When the running period began, 0 where the core is busy.
    pub const BEGAN: usize = 2;
    /// The epoch in which it began.
    pub const EPOCH: usize = 3;
    /// How many periods ended in another epoch than they began in.
    pub const CROSSED: usize = 4;
    /// The last [`CROSSINGS`] of those: beginning and length of each.
    pub const CROSSING: usize = 5;
    /// Time in periods longer than each threshold.
    pub const LONGER: usize = CROSSING + 2 * CROSSINGS;
    /// Periods of each class.
    pub const PERIODS: usize = LONGER + MAX_THRESHOLDS;
    /// Time in the periods of each class.
    pub const TIME: usize = PERIODS + CLASSES;
    /// Writes that began.
    pub const WRITING: usize = TIME + CLASSES;
}

/// The shortest length of a class, nanoseconds; the next class's is the first that it does not have.
pub fn class_from_ns(class: usize) -> u64 {
    let Some(above) = (class as u64).checked_sub(1) else {
        return 0;
    };
    let octave = 1 << (u64::from(FIRST_POWER) + above / EACH);
    octave + octave / EACH * (above % EACH)
}

/// The class of a length in nanoseconds, as the kernel side computes it.
pub fn class_of_ns(length: u64) -> usize {
    let last = 1 << LAST_POWER;
    if length < 1 << FIRST_POWER {
        return 0;
    }
    if length >= last {
        return CLASSES - 1;
    }
    let power = length.ilog2();
    let within = (length >> (power - EACH.ilog2())) % EACH;
    1 + (u64::from(power - FIRST_POWER) * EACH + within) as usize
}

/// Why there is no object; empty where there is one.
#[cfg(any(test, not(idle_compiled)))]
const REASON: &str = include_str!(concat!(env!("OUT_DIR"), "/idle_reason.txt"));

#[cfg(idle_compiled)]
static COMPILED: &crate::Aligned<[u8]> =
    &crate::Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/idle.o")));

/// The compiled object.
///
/// # Errors
/// Why it was left out of this build, with no remedy: [`crate::REMEDY`] is that.
pub fn object() -> Result<&'static [u8], &'static str> {
    #[cfg(idle_compiled)]
    return Ok(&COMPILED.0);
    #[cfg(not(idle_compiled))]
    return Err(REASON);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_an_object_for_the_kernel_or_a_reason() {
        let names = [CPU_IDLE, SCHED_SWITCH, THRESHOLDS, RECORDS, EPOCHS];
        crate::tests::is_for_the_kernel_or_has_a_reason(object(), REASON, &names);
    }

    #[test]
    fn classes_are_quarters_of_octaves_and_every_length_has_the_one_that_it_is_in() {
        assert_eq!([0, 1, 2, 5, 6].map(class_from_ns), [0, 1024, 1280, 2048, 2560]);
        assert_eq!(class_from_ns(CLASSES - 1), 1 << 34);
        for class in 0..CLASSES {
            let from = class_from_ns(class);
            assert_eq!(class_of_ns(from), class, "{from}");
            if let Some(last_before) = from.checked_sub(1) {
                assert_eq!(class_of_ns(last_before), class - 1, "{last_before}");
            }
        }
        assert_eq!(class_of_ns(u64::MAX), CLASSES - 1);
    }
}
