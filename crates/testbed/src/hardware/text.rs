//! Text as the kernel's sysfs handlers parse it.

use rustix::io::Errno;

/// `kstrtoull` with base 10: digits, a plus sign before them allowed, one newline after them allowed.
///
/// # Errors
/// EINVAL for anything else, ERANGE beyond 64 bits.
pub fn decimal(text: &str) -> Result<u64, Errno> {
    digits(text, 10)
}

/// `kstrtoull` with base 0: also `0x` for hexadecimal and a leading 0 for octal.
///
/// # Errors
/// As [`decimal`].
pub fn any_base(text: &str) -> Result<u64, Errno> {
    let bare = text.strip_prefix('+').unwrap_or(text);
    if let Some(hex) = bare.strip_prefix("0x").or(bare.strip_prefix("0X")) {
        return if hex.starts_with('+') {
            Err(Errno::INVAL)
        } else {
            digits(hex, 16)
        };
    }
    let octal = bare.len() > 1 && bare.starts_with('0') && bare.as_bytes()[1].is_ascii_digit();
    digits(text, if octal { 8 } else { 10 })
}

fn digits(text: &str, base: u32) -> Result<u64, Errno> {
    let text = text.strip_suffix('\n').unwrap_or(text);
    let text = text.strip_prefix('+').unwrap_or(text);
    if text.is_empty() || !text.chars().all(|c| c.is_digit(base)) {
        return Err(Errno::INVAL);
    }
    u64::from_str_radix(text, base).map_err(|_| Errno::RANGE)
}

/// `sscanf("%u")`: the number at the beginning; what follows it does not matter.
///
/// # Errors
/// EINVAL where there is none.
pub fn leading(text: &str) -> Result<u64, Errno> {
    let text = text.trim_start();
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().map_err(|_| Errno::INVAL)
}

/// `kstrtobool`: only the first letter counts, for "on" and "off" the second.
///
/// # Errors
/// EINVAL for anything else.
pub fn boolean(text: &str) -> Result<bool, Errno> {
    let mut letters = text.chars().map(|c| c.to_ascii_lowercase());
    match letters.next() {
        Some('y' | 't' | '1') => Ok(true),
        Some('n' | 'f' | '0') => Ok(false),
        Some('o') => match letters.next() {
            Some('n') => Ok(true),
            Some('f') => Ok(false),
            _ => Err(Errno::INVAL),
        },
        _ => Err(Errno::INVAL),
    }
}

/// A list of CPUs, `0-3,8`; empty text is no CPU.
///
/// # Errors
/// EINVAL where it is none, ERANGE for a CPU at or beyond `possible`.
pub fn cpu_list(text: &str, possible: usize) -> Result<Vec<usize>, Errno> {
    let text = text.trim();
    let mut cpus = vec![false; possible];
    for part in text.split(',').filter(|_| !text.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| match text.bytes().all(|b| b.is_ascii_digit()) && !text.is_empty() {
            true => text.parse::<usize>().map_err(|_| Errno::RANGE),
            false => Err(Errno::INVAL),
        };
        let (first, last) = (number(first)?, number(last)?);
        if first > last {
            return Err(Errno::INVAL);
        }
        if last >= possible {
            return Err(Errno::RANGE);
        }
        cpus[first..=last].fill(true);
    }
    Ok(cpus
        .iter()
        .enumerate()
        .filter(|(_, set)| **set)
        .map(|(cpu, _)| cpu)
        .collect())
}

/// CPUs in rising order as the kernel writes them: `0-3,8`.
pub fn write_cpu_list(cpus: impl IntoIterator<Item = usize>) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for cpu in cpus {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => ranges.push((cpu, cpu)),
        }
    }
    let parts: Vec<String> = ranges
        .iter()
        .map(|(first, last)| {
            if first == last {
                first.to_string()
            } else {
                format!("{first}-{last}")
            }
        })
        .collect();
    parts.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_as_the_kernel_reads_them() {
        assert_eq!(decimal("12\n"), Ok(12));
        assert_eq!(decimal("+12"), Ok(12));
        for bad in ["", "\n", "-1", "1 ", " 1", "0x1", "1\n\n", "12W"] {
            assert_eq!(decimal(bad), Err(Errno::INVAL), "{bad:?}");
        }
        assert_eq!(decimal("18446744073709551616"), Err(Errno::RANGE));
        assert_eq!(
            (any_base("0x10"), any_base("010"), any_base("10\n"), any_base("0")),
            (Ok(16), Ok(8), Ok(10), Ok(0))
        );
        assert_eq!(
            (any_base("0x+1"), any_base("08")),
            (Err(Errno::INVAL), Err(Errno::INVAL))
        );
        assert_eq!(
            (leading("800000abc"), leading("x")),
            (Ok(800_000), Err(Errno::INVAL))
        );
        assert_eq!(
            (boolean("1\n"), boolean("off"), boolean("Y"), boolean("2")),
            (Ok(true), Ok(false), Ok(true), Err(Errno::INVAL))
        );
    }

    #[test]
    fn lists_of_cpus() {
        assert_eq!(cpu_list("0-2,5\n", 8), Ok(vec![0, 1, 2, 5]));
        assert_eq!(cpu_list("5,0-2,1", 8), Ok(vec![0, 1, 2, 5]));
        assert_eq!(cpu_list("\n", 8), Ok(vec![]));
        assert_eq!(cpu_list("8", 8), Err(Errno::RANGE));
        for bad in ["3-1", "a", "1,", "-", "1--2"] {
            assert_eq!(cpu_list(bad, 8), Err(Errno::INVAL), "{bad}");
        }
        assert_eq!(write_cpu_list([0, 1, 2, 5, 7, 8]), "0-2,5,7-8");
        assert_eq!(write_cpu_list([]), "");
    }
}
