//! The dates that HAProxy writes.

use super::format::DateStyle;
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, Offset, TimeZone};

const MONTHS: [&[u8; 3]; 12] = [
    b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec",
];

/// A time as a log has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Written {
    /// Milliseconds since 1970, if what is written were UTC.
    pub as_utc_ms: i64,
    /// The zone is known, so [`Written::as_utc_ms`] is UTC.
    pub zoned: bool,
}

impl Written {
    /// The same, so much later.
    pub(super) fn later_by_ms(self, length_ms: u64) -> Self {
        Self {
            as_utc_ms: self
                .as_utc_ms
                .saturating_add(i64::try_from(length_ms).unwrap_or(i64::MAX)),
            ..self
        }
    }

    /// How long ago this was, in seconds; negative where the clock there is ahead. HAProxy writes local times without their
    /// zone: they are taken to be of `zone`, and of the two readings in the hour that a zone repeats the nearer one to now.
    /// Where HAProxy's zone is another, this is off by their difference.
    pub(super) fn ago_s(self, now_utc_ms: i64, zone: &TimeZone) -> f64 {
        let ago_ms = now_utc_ms.saturating_sub(self.as_utc_ms);
        let ago_ms = match self.zoned {
            true => ago_ms,
            false => ago_ms.saturating_add(self.east_of_utc_ms(ago_ms, zone)),
        };
        ago_ms as f64 / 1e3
    }

    /// How far `zone` is east of UTC at this local time, of which it is said how long ago it would have been by UTC.
    fn east_of_utc_ms(self, ago_utc_ms: i64, zone: &TimeZone) -> i64 {
        // A date that was parsed is within jiff's range.
        let Ok(local) = Timestamp::from_millisecond(self.as_utc_ms) else {
            return 0;
        };
        let local = Offset::UTC.to_datetime(local);
        let ms = |offset: Offset| i64::from(offset.seconds()) * 1000;
        match zone.to_ambiguous_timestamp(local).offset() {
            AmbiguousOffset::Unambiguous { offset } => ms(offset),
            AmbiguousOffset::Gap { before, after } | AmbiguousOffset::Fold { before, after } => {
                let both = [ms(before), ms(after)];
                let nearer = |east: &i64| ago_utc_ms.saturating_add(*east).unsigned_abs();
                both.into_iter().min_by_key(nearer).unwrap_or(0)
            }
        }
    }
}

/// How many bytes a date of a style takes.
pub(super) const fn written_length(style: DateStyle) -> usize {
    match style {
        DateStyle::Milliseconds => 24,
        DateStyle::Zone => 26,
        DateStyle::Epoch => 1,
    }
}

/// How many bytes of `rest` have the shape of a date, or `None`. Whether it is one is for [`parse`] to say.
pub(super) fn length(style: DateStyle, rest: &[u8]) -> Option<usize> {
    let length = written_length(style);
    let date = rest.get(..length)?;
    let shaped =
        date[2] == b'/' && date[6] == b'/' && date[11] == b':' && date[14] == b':' && date[17] == b':';
    let ended = match style {
        DateStyle::Milliseconds => date[20] == b'.',
        DateStyle::Zone => date[20] == b' ' && matches!(date[21], b'+' | b'-'),
        DateStyle::Epoch => return None,
    };
    (shaped && ended).then_some(length)
}

/// The time that a date says; `None` where it is no date.
pub(super) fn parse(style: DateStyle, date: &[u8]) -> Option<Written> {
    if style == DateStyle::Epoch {
        let seconds: i64 = std::str::from_utf8(date).ok()?.parse().ok()?;
        return Some(Written {
            as_utc_ms: seconds.checked_mul(1000)?,
            zoned: true,
        });
    }
    let number = |from: usize, to: usize| {
        date.get(from..to)?.iter().try_fold(0_i64, |number, digit| {
            digit
                .is_ascii_digit()
                .then(|| number * 10 + i64::from(digit - b'0'))
        })
    };
    let month = date.get(3..6)?;
    let month = MONTHS.iter().position(|name| *name == month)?;
    let minute = DateTime::new(
        number(7, 11)? as i16,
        month as i8 + 1,
        number(0, 2)? as i8,
        number(12, 14)? as i8,
        number(15, 17)? as i8,
        0,
        0,
    );
    // A leap second is written as 60.
    let second = number(18, 20).filter(|second| *second <= 60)?;
    let (milliseconds, east_s) = match style {
        DateStyle::Milliseconds => (number(21, 24)?, 0),
        _ => {
            let offset_s = number(22, 24)? * 3600 + number(24, 26)? * 60;
            (0, if date[21] == b'-' { -offset_s } else { offset_s })
        }
    };
    let offset = Offset::from_seconds(east_s as i32).ok()?;
    let minute = offset.to_timestamp(minute.ok()?).ok()?;
    Some(Written {
        as_utc_ms: minute.as_millisecond() + second * 1000 + milliseconds,
        zoned: style == DateStyle::Zone,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn utc_ms(style: DateStyle, text: &str) -> Option<i64> {
        let length = length(style, text.as_bytes())?;
        parse(style, &text.as_bytes()[..length]).map(|written| written.as_utc_ms)
    }

    #[test]
    fn the_dates_of_the_format_are_read() {
        // As `date -u -d ... +%s` has them.
        assert_eq!(
            utc_ms(DateStyle::Milliseconds, "06/Feb/2009:12:14:14.655] http-in"),
            Some(1_233_922_454_655)
        );
        assert_eq!(
            utc_ms(DateStyle::Zone, "06/Feb/2009:12:14:14 +0100"),
            Some(1_233_918_854_000)
        );
        assert_eq!(
            utc_ms(DateStyle::Zone, "29/Feb/2024:23:59:60 -0330"),
            Some(1_709_263_800_000)
        );
        assert_eq!(
            parse(DateStyle::Epoch, b"1233922454").map(|w| w.as_utc_ms),
            Some(1_233_922_454_000)
        );
    }

    #[test]
    fn what_is_no_date_is_refused() {
        for wrong in [
            "31/Feb/2009:12:14:14.655",
            "00/Feb/2009:12:14:14.655",
            "06/Feb/2009:24:14:14.655",
            "06/Foo/2009:12:14:14.655",
            "06/Feb/2009:12:14:14.x55",
            "06/Feb/2009:12:14:14",
        ] {
            assert_eq!(utc_ms(DateStyle::Milliseconds, wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_bare_date_is_of_this_machines_zone() {
        let bare = |text: &str| parse(DateStyle::Milliseconds, text.as_bytes()).unwrap();
        // Central European time, as POSIX writes it: two hours east of UTC from the last Sunday of March to that of October.
        let berlin = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        let utc = |text: &str| text.parse::<Timestamp>().unwrap().as_millisecond();
        for (written, now, ago_s) in [
            ("06/Feb/2026:13:14:14.500", "2026-02-06T12:14:16Z", 1.5),
            ("06/Jul/2026:14:14:14.500", "2026-07-06T12:14:16Z", 1.5),
            // Seven and a half minutes and more are no other zone.
            ("06/Jul/2026:14:00:00.000", "2026-07-06T12:10:00Z", 600.0),
            ("06/Jul/2026:13:00:00.000", "2026-07-06T12:00:00Z", 3600.0),
            // The hour before the clocks go back, and the same hour again; a request on either side of that.
            ("25/Oct/2026:02:30:00.000", "2026-10-25T00:30:01Z", 1.0),
            ("25/Oct/2026:02:30:00.000", "2026-10-25T01:30:01Z", 1.0),
            ("25/Oct/2026:02:59:59.000", "2026-10-25T01:00:01Z", 2.0),
            ("29/Mar/2026:01:59:59.000", "2026-03-29T01:00:01Z", 2.0),
        ] {
            let lag_s = bare(written).ago_s(utc(now), &berlin);
            assert!((lag_s - ago_s).abs() < 1e-9, "{written} {now}: {lag_s}");
        }
        let ahead = bare("06/Feb/2026:12:14:16.500").ago_s(utc("2026-02-06T12:14:16Z"), &TimeZone::UTC);
        assert!((ahead + 0.5).abs() < 1e-9, "{ahead}");
        let zoned = parse(DateStyle::Zone, b"06/Feb/2026:12:14:14 +0000").unwrap();
        assert!((zoned.ago_s(utc("2026-02-06T12:14:16Z"), &berlin) - 2.0).abs() < 1e-9);
    }
}
