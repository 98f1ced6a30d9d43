//! A stored response, and what it answers to a request.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use http::header::{self, HeaderMap, HeaderName};
use http::{HeaderValue, Method, StatusCode, request};

use super::how::How;
use super::range::{Part, part};
use super::selection::Selection;
use super::terms::{Terms, date};
use crate::body::Body;
use crate::layer::Answer;

/// What a stored response takes beside its fields and body.
const OVERHEAD_BYTES: usize = 512;
/// What a field takes beside its name and value.
const FIELD_BYTES: usize = 64;

/// The first pause after a revalidation in the background that failed; each further failure doubles it.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// What a date must be older than the message that says it for being known to the second (RFC 9110 section 8.8.2.2).
const DATE_UNIT: Duration = Duration::from_secs(1);

/// The fields of a stored response that go with a 304 (RFC 9110 section 15.4.5), and what other caches said.
const OF_NOT_MODIFIED: [HeaderName; 8] = [
    header::CACHE_CONTROL,
    header::CONTENT_LOCATION,
    header::DATE,
    header::ETAG,
    header::EXPIRES,
    header::VARY,
    header::LAST_MODIFIED,
    super::CACHE_STATUS,
];

/// The fields of a stored response that one about it does not change: they are of the body.
const OF_BODY: [HeaderName; 3] = [
    header::CONTENT_LENGTH,
    header::CONTENT_ENCODING,
    header::CONTENT_RANGE,
];

/// A response that may be used again.
#[derive(Debug)]
pub(super) struct Stored {
    pub status: StatusCode,
    /// Its fields, without Age.
    pub headers: HeaderMap,
    pub body: Bytes,
    pub terms: Terms,
    pub selection: Selection,
    /// What it takes of the cache, bytes.
    weight: usize,
    failures: Failures,
}

/// What failed of asking in the background whether a response is still so.
#[derive(Debug, Default)]
struct Failures {
    in_a_row: AtomicU32,
    /// Milliseconds of age at this cache before which nobody asks again.
    paused_until_ms: AtomicU64,
}

impl Stored {
    /// Of a whole answer to a request with this selection.
    pub(super) fn new(
        status: StatusCode,
        headers: &HeaderMap,
        body: Bytes,
        terms: Terms,
        selection: Selection,
    ) -> Self {
        // The body is sent with its length from here on, however it came.
        let left_out = [header::AGE, header::CONTENT_LENGTH, header::TRAILER];
        let mut headers = compact(headers, &left_out);
        // RFC 9110 section 6.6.1: whoever stores what has no date gives it that of its receipt.
        if !headers.contains_key(header::DATE)
            && let Ok(date) = HeaderValue::try_from(httpdate::fmt_http_date(terms.date()))
        {
            headers.insert(header::DATE, date);
        }
        if !bodiless(status) {
            headers.insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
        }
        let fields = headers.iter();
        let fields = fields.map(|(name, value)| name.as_str().len() + value.len() + FIELD_BYTES);
        let weight = OVERHEAD_BYTES + body.len() + selection.weight() + fields.sum::<usize>();
        Self {
            status,
            selection,
            headers,
            body,
            terms,
            weight,
            failures: Failures::default(),
        }
    }

    /// Whether it may be asked for again in the background: not for a while after that failed.
    pub(super) fn may_be_asked_for(&self, now: Instant) -> bool {
        let age_ms = u64::try_from(self.terms.resident(now).as_millis()).unwrap_or(u64::MAX);
        age_ms >= self.failures.paused_until_ms.load(Ordering::Relaxed)
    }

    /// Asking for it again in the background failed.
    pub(super) fn failed(&self, now: Instant) {
        let before = self.failures.in_a_row.fetch_add(1, Ordering::Relaxed);
        let pause = (FIRST_PAUSE * (1 << before.min(5))).min(LONGEST_PAUSE);
        let until = self.terms.resident(now) + pause;
        let until_ms = u64::try_from(until.as_millis()).unwrap_or(u64::MAX);
        self.failures.paused_until_ms.store(until_ms, Ordering::Relaxed);
    }

    /// With what a 304 says of it; `None` where that is about another response (RFC 9111 section 4.3.4).
    pub(super) fn updated(&self, answer: &HeaderMap) -> Option<HeaderMap> {
        let is_same = |name: &HeaderName| match (self.headers.get(name), answer.get(name)) {
            (Some(had), Some(has)) => matches_weakly(had.as_bytes(), has.as_bytes()),
            _ => true,
        };
        // What names no tag names its response by the date, if by anything.
        let other_date = !answer.contains_key(header::ETAG) && !is_same(&header::LAST_MODIFIED);
        if !is_same(&header::ETAG) || other_date {
            return None;
        }
        let mut headers = self.headers.clone();
        // The answer is of now; where it has no date it is given that of its receipt.
        headers.remove(header::DATE);
        for name in answer.keys().filter(|name| !OF_BODY.contains(name)) {
            headers.remove(name);
            for value in answer.get_all(name) {
                headers.append(name, value.clone());
            }
        }
        Some(headers)
    }

    /// What it takes of the cache, bytes.
    pub(super) fn weight(&self) -> usize {
        self.weight
    }

    /// Adds to a request what asks whether this is still so; the client's own conditions, which are of what it has, go.
    pub(super) fn ask(&self, request: &mut HeaderMap) {
        remove_conditions(request);
        let pairs = [
            (header::ETAG, header::IF_NONE_MATCH),
            (header::LAST_MODIFIED, header::IF_MODIFIED_SINCE),
        ];
        for (validator, condition) in pairs {
            if let Some(value) = self.headers.get(validator) {
                request.insert(condition, value.clone());
            }
        }
    }

    /// Answers a request whose selection it is.
    pub(super) fn answer(self: &Arc<Self>, request: &request::Parts, now: Instant, how: How) -> Answer {
        let (fresh, stale) = (self.terms.fresh_for(now), self.terms.stale_for(now));
        let seconds = |time: Duration| i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
        let fresh_s = seconds(fresh) - seconds(stale);
        let mut answer = match self.status {
            StatusCode::OK if self.is_known_to(&request.headers) => self.not_modified(),
            StatusCode::OK if request.method == Method::GET => self.in_parts(&request.headers),
            _ => self.whole(),
        };
        if request.method == Method::HEAD {
            answer.body = Body::Empty;
        }
        let headers = answer.fields.map();
        let age = self.terms.age(now).as_secs();
        headers.insert(header::AGE, HeaderValue::from(age));
        // Behind what caches nearer to the origin said (RFC 9211 section 2).
        headers.append(super::CACHE_STATUS, how.value(Some(fresh_s)));
        answer
    }

    fn whole(&self) -> Answer {
        let body = match self.body.is_empty() {
            true => Body::Empty,
            false => Body::Memory(self.body.clone()),
        };
        self.with(self.status, self.headers.clone(), body)
    }

    fn with(&self, status: StatusCode, headers: HeaderMap, body: Body) -> Answer {
        Answer::new(status, headers, body)
    }

    fn not_modified(&self) -> Answer {
        let mut headers = HeaderMap::with_capacity(OF_NOT_MODIFIED.len());
        for name in OF_NOT_MODIFIED {
            for value in self.headers.get_all(&name) {
                headers.append(name.clone(), value.clone());
            }
        }
        self.with(StatusCode::NOT_MODIFIED, headers, Body::Empty)
    }

    /// The part that a request wants, or the whole.
    fn in_parts(&self, request: &HeaderMap) -> Answer {
        let wanted = request
            .get(header::RANGE)
            .filter(|_| self.is_of_range(request))
            .map(|range| part(range.as_bytes(), self.body.len()));
        match wanted {
            None | Some(Part::Whole) => self.whole(),
            Some(Part::Of(from, to)) => {
                let mut headers = self.headers.clone();
                let of = format!("bytes {from}-{}/{}", to - 1, self.body.len());
                let of = HeaderValue::try_from(of).unwrap_or(HeaderValue::from_static("bytes"));
                headers.insert(header::CONTENT_RANGE, of);
                headers.insert(header::CONTENT_LENGTH, HeaderValue::from(to - from));
                let body = Body::Memory(self.body.slice(from..to));
                self.with(StatusCode::PARTIAL_CONTENT, headers, body)
            }
            Some(Part::Beyond) => {
                let mut headers = self.headers.clone();
                headers.remove(header::CONTENT_TYPE);
                headers.remove(header::CONTENT_ENCODING);
                let of = format!("bytes */{}", self.body.len());
                let of = HeaderValue::try_from(of).unwrap_or(HeaderValue::from_static("bytes"));
                headers.insert(header::CONTENT_RANGE, of);
                headers.insert(header::CONTENT_LENGTH, HeaderValue::from(0));
                self.with(StatusCode::RANGE_NOT_SATISFIABLE, headers, Body::Empty)
            }
        }
    }

    /// Whether the client has what is stored (RFC 9110 section 13.2.2).
    fn is_known_to(&self, request: &HeaderMap) -> bool {
        if request.contains_key(header::IF_NONE_MATCH) {
            let own = self.headers.get(header::ETAG).map(HeaderValue::as_bytes);
            let listed = request.get_all(header::IF_NONE_MATCH).iter();
            return listed
                .flat_map(|value| entity_tags(value.as_bytes()))
                .any(|tag| tag == b"*" || own.is_some_and(|own| matches_weakly(own, tag)));
        }
        let since = request.get(header::IF_MODIFIED_SINCE).and_then(date);
        let modified = self.headers.get(header::LAST_MODIFIED);
        let modified = modified.or(self.headers.get(header::DATE)).and_then(date);
        since
            .zip(modified)
            .is_some_and(|(since, modified)| modified <= since)
    }

    /// Whether a range is wanted of this very response (RFC 9110 section 13.1.5).
    fn is_of_range(&self, request: &HeaderMap) -> bool {
        let Some(condition) = request.get(header::IF_RANGE) else {
            return true;
        };
        let is = |name: HeaderName| self.headers.get(name) == Some(condition);
        let weak = condition.as_bytes().starts_with(b"W/");
        !weak && (is(header::ETAG) || (is(header::LAST_MODIFIED) && self.is_dated_to_the_second()))
    }

    /// Whether what has its Last-Modified is the same byte by byte: it was not sent within the second that it was changed in
    /// (RFC 9110 section 8.8.2.2).
    fn is_dated_to_the_second(&self) -> bool {
        let of = |name: HeaderName| self.headers.get(name).and_then(date);
        of(header::LAST_MODIFIED)
            .zip(of(header::DATE))
            .and_then(|(modified, sent)| sent.duration_since(modified).ok())
            .is_some_and(|between| between >= DATE_UNIT)
    }
}

/// These fields but some, their values in memory of their own: what came is part of a buffer that may be much larger.
fn compact(headers: &HeaderMap, left_out: &[HeaderName]) -> HeaderMap {
    let kept = || headers.iter().filter(|(name, _)| !left_out.contains(name));
    let mut values = BytesMut::with_capacity(kept().map(|(_, value)| value.len()).sum());
    for (_, value) in kept() {
        values.extend_from_slice(value.as_bytes());
    }
    let mut values = values.freeze();
    // One more for a date, and one for a length.
    let mut compact = HeaderMap::with_capacity(headers.len() + 2);
    for (name, value) in kept() {
        // A value's bytes are a value.
        if let Ok(value) = HeaderValue::from_maybe_shared(values.split_to(value.len())) {
            compact.append(name, value);
        }
    }
    compact
}

/// Whether an answer with this status has no body, and no length of one (RFC 9110 section 8.6).
fn bodiless(status: StatusCode) -> bool {
    status.is_informational() || status == StatusCode::NO_CONTENT || status == StatusCode::NOT_MODIFIED
}

/// Removes what a request says of what its client has.
pub(super) fn remove_conditions(request: &mut HeaderMap) {
    for name in [
        header::IF_NONE_MATCH,
        header::IF_MODIFIED_SINCE,
        header::IF_RANGE,
        header::RANGE,
    ] {
        request.remove(name);
    }
}

/// Whether two entity tags are of responses that serve as well (RFC 9110 section 8.8.3.2).
fn matches_weakly(one: &[u8], other: &[u8]) -> bool {
    let opaque = |tag: &[u8]| tag.strip_prefix(b"W/").unwrap_or(tag).to_vec();
    opaque(one) == opaque(other)
}

/// The entity tags of a field; a comma in quotes does not separate.
fn entity_tags(field: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut quoted = false;
    field
        .split(move |byte| {
            quoted ^= *byte == b'"';
            *byte == b',' && !quoted
        })
        .map(<[u8]>::trim_ascii)
        .filter(|tag| !tag.is_empty())
}

#[cfg(test)]
#[path = "stored_tests.rs"]
mod tests;
