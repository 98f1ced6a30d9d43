//! The request fields that an answer depends on (Vary), and their values in a request as one keyed hash (RFC 9111 section 4.1).

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::LazyLock;

use http::header::{self, HeaderMap, HeaderName};

use crate::headers::{is_protected, specific};

/// Bytes of a request's selecting fields, at most: what was selected by more is not stored. No client needs them, and a hash of more is
/// work that a client could make for others.
const MAX_SELECTING_BYTES: usize = 1024;
/// Fields that an answer may depend on, at most: what depends on more is not stored.
const MAX_NAMES: usize = 32;

/// Two keys that no client knows: two requests with different fields are taken for the same with a chance of 2^-128.
static KEYS: LazyLock<[RandomState; 2]> = LazyLock::new(|| [RandomState::new(), RandomState::new()]);

/// The fields that an answer's Vary names, each once and in one order. `None` where no request is known to select it: Vary is `*`, has a
/// member that is no field name, names too many, or one that the gateway writes or removes, so that the origin saw another value
/// than the client sent.
pub(super) fn selecting(answer: &HeaderMap) -> Option<Vec<HeaderName>> {
    let mut names = Vec::new();
    for line in answer.get_all(header::VARY) {
        let members = line
            .as_bytes()
            .split(|byte| *byte == b',')
            .map(<[u8]>::trim_ascii);
        for member in members.filter(|member| !member.is_empty()) {
            let name = HeaderName::from_bytes(member).ok()?;
            if member == b"*" || is_written(&name) {
                return None;
            }
            names.push(name);
        }
    }
    names.sort_unstable_by(|one, other| one.as_str().cmp(other.as_str()));
    names.dedup();
    (names.len() <= MAX_NAMES).then_some(names)
}

/// Whether the gateway writes or removes this field of a request. Host, which it may replace, is part of what is asked for.
fn is_written(name: &HeaderName) -> bool {
    let own = [
        header::EXPECT,
        // Those that the cache asks the origin with.
        header::IF_NONE_MATCH,
        header::IF_MODIFIED_SINCE,
        header::IF_RANGE,
        header::RANGE,
    ];
    specific(name) != 0 || own.contains(name) || (is_protected(name.as_str()) && *name != header::HOST)
}

/// The request fields that selected an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Selection {
    names: Box<[HeaderName]>,
    values: u128,
}

impl Selection {
    /// Of an answer's Vary and its request; `None` where it selects nothing that could be stored.
    pub(super) fn of(answer: &HeaderMap, request: &HeaderMap) -> Option<Self> {
        let names = selecting(answer)?.into_boxed_slice();
        let values = values(&names, request)?;
        Some(Self { names, values })
    }

    /// Whether every request is selected.
    pub(super) fn is_of_all(&self) -> bool {
        self.names.is_empty()
    }

    /// What it takes of the cache, bytes.
    pub(super) fn weight(&self) -> usize {
        let names = self.names.iter();
        size_of::<Self>()
            + names
                .map(|name| size_of::<HeaderName>() + name.as_str().len())
                .sum::<usize>()
    }
}

/// What a request selects of several answers. It is worked out once for those that depend on the same fields.
pub(super) struct Selector<'a> {
    request: &'a HeaderMap,
    known: Option<(&'a [HeaderName], Option<u128>)>,
}

impl<'a> Selector<'a> {
    pub(super) fn of(request: &'a HeaderMap) -> Self {
        Self { request, known: None }
    }

    /// Whether the request has the values of this selection.
    pub(super) fn selects(&mut self, selection: &'a Selection) -> bool {
        if selection.is_of_all() {
            return true;
        }
        let values = match self.known {
            Some((names, values)) if names == &*selection.names => values,
            _ => values(&selection.names, self.request),
        };
        self.known = Some((&selection.names, values));
        values == Some(selection.values)
    }
}

/// Whether spaces around the commas of a field, and how it is divided, make no difference, so that more requests share an answer (RFC 9111
/// section 4.1). Of any other field they may.
fn is_list(name: &HeaderName) -> bool {
    [header::ACCEPT, header::ACCEPT_ENCODING, header::ACCEPT_LANGUAGE].contains(name)
}

/// The values of these fields, as a hash; `None` of too many bytes.
fn values(names: &[HeaderName], request: &HeaderMap) -> Option<u128> {
    let lines = names.iter().flat_map(|name| request.get_all(name));
    if lines.map(|line| line.len()).sum::<usize>() > MAX_SELECTING_BYTES {
        return None;
    }
    let mut hashers = KEYS.each_ref().map(|key| key.build_hasher());
    let mut write = |bytes: &[u8]| {
        for hasher in &mut hashers {
            hasher.write(bytes);
        }
    };
    for name in names {
        // No field value has a line feed in it: what begins with one is the next field, or its next line.
        write(b"\n");
        for (number, line) in request.get_all(name).iter().enumerate() {
            write(if number == 0 { b"\n" } else { b", " });
            if !is_list(name) {
                write(line.as_bytes());
                continue;
            }
            for (number, member) in line.as_bytes().split(|byte| *byte == b',').enumerate() {
                if number > 0 {
                    write(b", ");
                }
                write(member.trim_ascii());
            }
        }
    }
    let [one, other] = hashers.map(|hasher| hasher.finish());
    Some(u128::from(one) << 64 | u128::from(other))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use proptest::prelude::*;

    fn map(lines: &[(&'static str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in lines {
            map.append(*name, HeaderValue::from_str(value).unwrap());
        }
        map
    }

    fn same(vary: &str, one: &[(&'static str, &str)], other: &[(&'static str, &str)]) -> bool {
        let selection = Selection::of(&map(&[("vary", vary)]), &map(one)).unwrap();
        Selector::of(&map(other)).selects(&selection)
    }

    #[test]
    fn a_selection_is_of_all_lines_of_each_field() {
        let one = [("a", "1"), ("a", "2")];
        assert!(same("a, B,, c", &one, &[("a", "1"), ("a", "2"), ("d", "x")]));
        assert!(same("a", &one, &[("a", "1, 2")]), "lines are joined");
        for other in [
            &[][..],
            &[("a", "1")],
            &[("a", "2"), ("a", "1")],
            &[("a", "1"), ("a", "2"), ("c", "x")],
            &[("a", "1, 2, 3")],
            &[("a", "1,2")],
            &[("a", "1 , 2")],
        ] {
            assert!(!same("a, b, c", &one, other), "{other:?}");
        }
        assert!(!same("a, b", &[("a", "1")], &[("b", "1")]));
        assert!(!same("a", &[("a", "")], &[]));
        let of = |vary| Selection::of(&map(vary), &map(&one)).unwrap();
        assert_eq!(
            of(&[("vary", "C,A"), ("vary", "b")]),
            of(&[("vary", "a, b, c, a")])
        );
    }

    #[test]
    fn only_the_lists_that_a_client_prefers_by_are_taken_for_lists() {
        for (name, same_value) in [
            ("accept-encoding", true),
            ("accept-language", true),
            ("accept", true),
            ("cookie", false),
            ("x-user", false),
        ] {
            assert_eq!(
                same(name, &[(name, "u=smith,john")], &[(name, "u=smith , john")]),
                same_value
            );
        }
    }

    #[test]
    fn what_no_request_is_known_to_select_is_not_stored() {
        for vary in [
            "*",
            "accept, *",
            "a b",
            "Cookie; Accept",
            "X-Forwarded-For",
            "accept, forwarded",
            "x-forwarded-proto",
            "X-Forwarded-Host",
            "via",
            "TE",
            "upgrade",
            "expect",
            "connection",
            "keep-alive",
            "if-none-match",
            "range",
        ] {
            assert_eq!(selecting(&map(&[("vary", vary)])), None, "{vary}");
        }
        assert_eq!(
            selecting(&map(&[("vary", "host, x-forwarded-by")]))
                .unwrap()
                .len(),
            2
        );
        let many: Vec<String> = (0..=MAX_NAMES).map(|number| format!("f{number}")).collect();
        assert_eq!(selecting(&map(&[("vary", &many.join(","))])), None);
        let long = "x".repeat(MAX_SELECTING_BYTES + 1);
        assert_eq!(Selection::of(&map(&[("vary", "a")]), &map(&[("a", &long)])), None);
        assert!(!same("a", &[("a", "1")], &[("a", &long)]));
    }

    proptest! {
        #[test]
        fn it_selects_what_has_its_values_and_nothing_else(one in "[a, ]{0,6}", other in "[a, ]{0,6}") {
            let (one, other) = (one.trim(), other.trim());
            prop_assert_eq!(same("cookie", &[("cookie", one)], &[("cookie", other)]), one == other);
        }
    }
}
