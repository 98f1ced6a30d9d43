//! The part of a body that a request wants (RFC 9110 section 14).

/// What a Range comes to of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// All of it: it says nothing that is understood, or wants several parts.
    Whole,
    /// From the first byte up to, not including, the second.
    Of(usize, usize),
    /// None of it.
    Beyond,
}

/// What this Range comes to of a body of so many bytes.
pub(super) fn part(range: &[u8], length: usize) -> Part {
    let Some(one) = range
        .split_at_checked(6)
        .and_then(|(unit, set)| unit.eq_ignore_ascii_case(b"bytes=").then_some(set.trim_ascii()))
    else {
        return Part::Whole;
    };
    let Some(dash) = one.iter().position(|byte| *byte == b'-') else {
        return Part::Whole;
    };
    // A place that no body reaches is as good as any other such.
    let place = |digits: &[u8]| -> Option<usize> {
        let digits = std::str::from_utf8(digits).ok()?;
        let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        plain.then(|| digits.parse().unwrap_or(usize::MAX))
    };
    let (first, last) = (&one[..dash], &one[dash + 1..]);
    match (first.is_empty(), place(first), last.is_empty(), place(last)) {
        // The last so many.
        (true, _, false, Some(0)) => Part::Beyond,
        (true, _, false, Some(_)) if length == 0 => Part::Beyond,
        (true, _, false, Some(count)) => Part::Of(length.saturating_sub(count), length),
        (false, Some(from), true, _) if from >= length => Part::Beyond,
        (false, Some(from), true, _) => Part::Of(from, length),
        (false, Some(from), false, Some(to)) if from > to => Part::Whole,
        (false, Some(from), false, Some(_)) if from >= length => Part::Beyond,
        (false, Some(from), false, Some(to)) => Part::Of(from, length.min(to.saturating_add(1))),
        _ => Part::Whole,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn each_form_comes_to_its_part() {
        for (range, comes_to) in [
            ("bytes=0-4", Part::Of(0, 5)),
            ("Bytes=0-4", Part::Of(0, 5)),
            ("bytes=5-", Part::Of(5, 10)),
            ("bytes=-3", Part::Of(7, 10)),
            ("bytes=-30", Part::Of(0, 10)),
            ("bytes=8-99999999999999999999999", Part::Of(8, 10)),
            ("bytes=10-", Part::Beyond),
            ("bytes=-0", Part::Beyond),
            ("bytes=4-2", Part::Whole),
            ("bytes=0-1,4-5", Part::Whole),
            ("bytes=", Part::Whole),
            ("bytes=-", Part::Whole),
            ("items=0-1", Part::Whole),
            ("byt", Part::Whole),
        ] {
            assert_eq!(part(range.as_bytes(), 10), comes_to, "{range}");
        }
        assert_eq!(part(b"bytes=0-", 0), Part::Beyond);
        assert_eq!(part(b"bytes=-1", 0), Part::Beyond);
    }

    proptest! {
        #[test]
        fn no_part_is_outside_of_the_body(range in "bytes=[0-9]{0,4}-[0-9]{0,4}(,[0-9]?-)?|[ -~]{0,20}", length in 0usize..2000) {
            if let Part::Of(from, to) = part(range.as_bytes(), length) {
                prop_assert!(from < to && to <= length);
            }
        }
    }
}
