//! Cache-Control (RFC 9111 section 5.2), read as leniently as its senders are careless and never to a longer life than was meant.

use http::HeaderMap;
use http::header::{self, AsHeaderName};

/// Seconds at most (RFC 9111 section 1.2.2): what is longer is this.
pub(super) const MAX_DELTA_S: u64 = 1 << 31;

/// The directives of a message that this cache acts on, of a request or a response; the others are without effect.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Directives {
    pub no_store: bool,
    pub no_cache: bool,
    pub private: bool,
    pub public: bool,
    pub must_revalidate: bool,
    pub proxy_revalidate: bool,
    pub must_understand: bool,
    pub only_if_cached: bool,
    pub no_transform: bool,
    pub max_age: Option<u64>,
    pub s_maxage: Option<u64>,
    pub min_fresh: Option<u64>,
    /// A request accepts what is stale for so long; without a value, for ever.
    pub max_stale: Option<u64>,
    pub stale_while_revalidate: Option<u64>,
    pub stale_if_error: Option<u64>,
}

impl Directives {
    /// Those of the fields of this name.
    ///
    /// Of a directive that comes twice the first counts. Seconds that are no number are none at all: what was to be fresh for so
    /// long is stale. A no-cache or private that names fields is taken for one that does not: it is never less strict.
    pub(crate) fn of(headers: &HeaderMap, name: impl AsHeaderName) -> Self {
        let mut found = Self::default();
        for value in headers.get_all(name) {
            let mut elements = Elements::of(value.as_bytes());
            for (name, argument) in &mut elements {
                found.take(name, argument);
            }
            // A quote that nothing ends may hide what forbids: the strictest is taken to be meant.
            if elements.is_broken {
                (found.no_store, found.private) = (true, true);
            }
        }
        found
    }

    /// Those of a message's Cache-Control.
    pub(crate) fn of_message(headers: &HeaderMap) -> Self {
        Self::of(headers, header::CACHE_CONTROL)
    }

    fn take(&mut self, name: &[u8], argument: Option<&[u8]>) {
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        let flags = [
            ("no-store", &mut self.no_store),
            ("no-cache", &mut self.no_cache),
            ("private", &mut self.private),
            ("public", &mut self.public),
            ("must-revalidate", &mut self.must_revalidate),
            ("proxy-revalidate", &mut self.proxy_revalidate),
            ("must-understand", &mut self.must_understand),
            ("only-if-cached", &mut self.only_if_cached),
            ("no-transform", &mut self.no_transform),
        ];
        for (known, flag) in flags {
            if is(known) {
                *flag = true;
                return;
            }
        }
        let seconds = [
            ("max-age", &mut self.max_age, 0),
            ("s-maxage", &mut self.s_maxage, 0),
            ("min-fresh", &mut self.min_fresh, MAX_DELTA_S),
            ("max-stale", &mut self.max_stale, MAX_DELTA_S),
            ("stale-while-revalidate", &mut self.stale_while_revalidate, 0),
            ("stale-if-error", &mut self.stale_if_error, 0),
        ];
        for (known, value, otherwise) in seconds {
            if is(known) {
                let given = argument.and_then(delta);
                // max-stale alone among these has a meaning without a value.
                let given = given.unwrap_or(if known == "max-stale" && argument.is_some() {
                    0
                } else {
                    otherwise
                });
                value.get_or_insert(given);
                return;
            }
        }
    }
}

/// Seconds of digits and nothing else, bounded.
pub(crate) fn delta(text: &[u8]) -> Option<u64> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let seconds = text.iter().fold(0_u64, |sum, digit| {
        sum.saturating_mul(10).saturating_add(u64::from(digit - b'0'))
    });
    Some(seconds.min(MAX_DELTA_S))
}

/// The comma-separated `name`, `name=token` and `name="quoted"` of a field, a comma in quotes not separating. An argument is without
/// its quotes.
struct Elements<'a> {
    rest: &'a [u8],
    /// A quote was met that nothing ends.
    is_broken: bool,
}

impl<'a> Elements<'a> {
    fn of(field: &'a [u8]) -> Self {
        Self {
            rest: field,
            is_broken: false,
        }
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = (&'a [u8], Option<&'a [u8]>);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if self.rest.is_empty() {
                return None;
            }
            let (mut quoted, mut escaped) = (false, false);
            let end = self.rest.iter().position(|byte| {
                match byte {
                    _ if escaped => escaped = false,
                    b'\\' if quoted => escaped = true,
                    b'"' => quoted = !quoted,
                    b',' => return !quoted,
                    _ => {}
                }
                false
            });
            self.is_broken |= end.is_none() && quoted;
            let end = end.unwrap_or(self.rest.len());
            let (element, rest) = self.rest.split_at(end);
            self.rest = rest.get(1..).unwrap_or_default();
            let element = element.trim_ascii();
            if element.is_empty() {
                continue;
            }
            let Some(equals) = element.iter().position(|byte| *byte == b'=') else {
                return Some((element, None));
            };
            let name = element[..equals].trim_ascii_end();
            // Spaces around the sign are none of the grammar: what forbids is meant all the same, and what allows says nothing.
            let argument = match name.len() == equals {
                true => &element[equals + 1..],
                false => b"",
            };
            let unquoted = argument
                .strip_prefix(b"\"")
                .and_then(|argument| argument.strip_suffix(b"\""));
            return Some((name, Some(unquoted.unwrap_or(argument))));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use proptest::prelude::*;

    fn parse(values: &[&str]) -> Directives {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(header::CACHE_CONTROL, HeaderValue::from_str(value).unwrap());
        }
        Directives::of_message(&headers)
    }

    #[test]
    fn what_is_understood_whatever_its_case_and_place() {
        let all = parse(&[
            "Max-Age=60, no-CACHE",
            ",, private=\"set-cookie, x\" , s-maxage=\"30\"",
        ]);
        assert_eq!((all.max_age, all.s_maxage), (Some(60), Some(30)));
        assert!(all.no_cache && all.private && !all.no_store);
        // In quotes it is an argument.
        assert!(!parse(&["extension=\"a, no-store, b\""]).no_store);
        assert!(!parse(&["extension=\"a\\\", no-store\""]).no_store);
        assert!(parse(&["extension=\"a\", no-store"]).no_store);
        // What is in a quote that nothing ends may be meant as it stands.
        assert!(parse(&["extension=\"a, no-store"]).no_store);
        assert!(parse(&["extension=\"a\\\", private", "max-age=60"]).no_store);
        // With spaces around the sign what forbids is meant, and what allows is not.
        let spaced = parse(&["private =\"x\", max-age =60, s-maxage= 60"]);
        assert_eq!(
            (spaced.private, spaced.max_age, spaced.s_maxage),
            (true, Some(0), Some(0))
        );
    }

    #[test]
    fn of_two_the_first_counts_and_what_is_no_number_is_nothing() {
        assert_eq!(parse(&["max-age=1, max-age=3600"]).max_age, Some(1));
        for bad in [
            "max-age",
            "max-age=",
            "max-age=-1",
            "max-age=3600.0",
            "max-age=3600s",
            "max-age='60'",
        ] {
            assert_eq!(parse(&[bad]).max_age, Some(0), "{bad}");
        }
        assert_eq!(
            parse(&["max-age=99999999999999999999999"]).max_age,
            Some(MAX_DELTA_S)
        );
        assert_eq!(parse(&["max-stale"]).max_stale, Some(MAX_DELTA_S));
        assert_eq!(parse(&["max-stale=x"]).max_stale, Some(0));
    }

    proptest! {
        #[test]
        fn nothing_that_is_sent_panics_or_gives_a_longer_life(value in "[ -~]{0,80}") {
            if let Ok(value) = HeaderValue::from_str(&value) {
                let mut headers = HeaderMap::new();
                headers.insert(header::CACHE_CONTROL, value);
                let found = Directives::of_message(&headers);
                prop_assert!(found.max_age.is_none_or(|seconds| seconds <= MAX_DELTA_S));
            }
        }

        #[test]
        fn a_number_of_seconds_is_itself(seconds in 0..MAX_DELTA_S) {
            prop_assert_eq!(parse(&[&format!("a=b, max-age={seconds}")]).max_age, Some(seconds));
        }
    }
}
