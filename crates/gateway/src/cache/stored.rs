//! A stored response, and what it answers to a request.

use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName};
use http::{HeaderValue, Method, Response, StatusCode, request};

use super::range::{Part, part};
use super::terms::{Terms, date};
use crate::body::Body;
use crate::layer::Answer;

/// What a stored response takes beside its fields and body.
const OVERHEAD_BYTES: usize = 512;
/// What a field takes beside its name and value.
const FIELD_BYTES: usize = 64;

/// The fields of a stored response that go with a 304 (RFC 9110 section 15.4.5).
const OF_NOT_MODIFIED: [HeaderName; 7] = [
    header::CACHE_CONTROL,
    header::CONTENT_LOCATION,
    header::DATE,
    header::ETAG,
    header::EXPIRES,
    header::VARY,
    header::LAST_MODIFIED,
];

/// The fields of a stored response that one about it does not change: they are of the body.
const OF_BODY: [HeaderName; 3] = [
    header::CONTENT_LENGTH,
    header::CONTENT_ENCODING,
    header::CONTENT_RANGE,
];

/// The request fields that an answer depends on, each with its elements then, of all lines (RFC 9111 section 4.1: however these are
/// divided into lines, and whatever spaces are around the commas).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Selection(Vec<(HeaderName, Vec<Vec<u8>>)>);

/// The elements of a field, without the spaces around them; nothing of one that is not there, one that is empty of one that is empty.
fn elements<'a>(request: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a [u8]> {
    let lines = request.get_all(name).iter();
    lines.flat_map(|line| {
        line.as_bytes()
            .split(|byte| *byte == b',')
            .map(<[u8]>::trim_ascii)
    })
}

impl Selection {
    /// Of an answer's Vary and its request. A Vary that names no field, or `*`, has none of its own.
    pub(super) fn of(answer: &HeaderMap, request: &HeaderMap) -> Self {
        let names = answer.get_all(header::VARY).iter();
        let names = names.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
        let mut names: Vec<HeaderName> = names
            .filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok())
            .collect();
        names.sort_unstable_by(|one, other| one.as_str().cmp(other.as_str()));
        names.dedup();
        let values = |name: &HeaderName| elements(request, name).map(<[u8]>::to_vec).collect();
        Self(
            names
                .into_iter()
                .map(|name| (name.clone(), values(&name)))
                .collect(),
        )
    }

    /// Whether a request has these values.
    pub(super) fn selects(&self, request: &HeaderMap) -> bool {
        self.0
            .iter()
            .all(|(name, values)| elements(request, name).eq(values.iter().map(Vec::as_slice)))
    }
}

/// A response that may be used again.
#[derive(Debug)]
pub(super) struct Stored {
    pub status: StatusCode,
    /// Its fields, without Age.
    pub headers: HeaderMap,
    pub body: Bytes,
    pub terms: Terms,
    pub selection: Selection,
}

/// How an answer came about, as Cache-Status (RFC 9211) says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    /// Fresh, or accepted as it is.
    Hit,
    /// The origin said that it is still so.
    Validated,
    /// Nothing was stored for this request.
    Miss,
    /// What was stored is for other requests.
    VaryMiss,
    /// What was stored was stale.
    Stale,
    /// The request asked to ask.
    Asked,
    /// The cache takes no part in such requests.
    Bypass,
}

impl How {
    /// The value of Cache-Status.
    pub(super) fn status(self, fresh_s: Option<u64>) -> HeaderValue {
        let text = match self {
            Self::Hit => format!("headroom; hit; ttl={}", fresh_s.unwrap_or(0)),
            Self::Validated => "headroom; fwd=stale; fwd-status=304".to_owned(),
            Self::Miss => "headroom; fwd=uri-miss".to_owned(),
            Self::VaryMiss => "headroom; fwd=vary-miss".to_owned(),
            Self::Stale => "headroom; fwd=stale".to_owned(),
            Self::Asked => "headroom; fwd=request".to_owned(),
            Self::Bypass => "headroom; fwd=bypass".to_owned(),
        };
        // Of letters, digits and separators alone.
        HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("headroom"))
    }
}

impl Stored {
    /// Of a whole answer to a request.
    pub(super) fn new(
        status: StatusCode,
        mut headers: HeaderMap,
        body: Bytes,
        terms: Terms,
        request: &HeaderMap,
    ) -> Self {
        headers.remove(header::AGE);
        headers.remove(super::CACHE_STATUS);
        // The body is sent with its length from here on, however it came.
        headers.remove(header::CONTENT_LENGTH);
        headers.remove(header::TRAILER);
        // RFC 9110 section 6.6.1: whoever stores what has no date gives it that of its receipt.
        if !headers.contains_key(header::DATE)
            && let Ok(date) = HeaderValue::try_from(httpdate::fmt_http_date(terms.received()))
        {
            headers.insert(header::DATE, date);
        }
        if !bodiless(status) {
            headers.insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
        }
        Self {
            status,
            selection: Selection::of(&headers, request),
            headers,
            body,
            terms,
        }
    }

    /// With what a 304 says of it; `None` where that is about another response (RFC 9111 section 4.3.4).
    pub(super) fn updated(&self, answer: &HeaderMap) -> Option<HeaderMap> {
        let is_same = |name: &HeaderName| match (self.headers.get(name), answer.get(name)) {
            (Some(had), Some(has)) => matches_weakly(had.as_bytes(), has.as_bytes()),
            _ => true,
        };
        if !is_same(&header::ETAG) {
            return None;
        }
        let mut headers = self.headers.clone();
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
        let fields = self.headers.iter();
        let fields = fields.map(|(name, value)| name.as_str().len() + value.len() + FIELD_BYTES);
        OVERHEAD_BYTES + self.body.len() + fields.sum::<usize>()
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
    pub(super) fn answer(self: &Arc<Self>, request: &request::Parts, now: SystemTime, how: How) -> Answer {
        let fresh_s = self.terms.fresh_for(now).as_secs();
        let mut answer = match self.status {
            StatusCode::OK if self.is_known_to(&request.headers) => self.not_modified(),
            StatusCode::OK if request.method == Method::GET => self.in_parts(&request.headers),
            _ => self.whole(),
        };
        if request.method == Method::HEAD {
            *answer.body_mut() = Body::Empty;
        }
        let headers = answer.headers_mut();
        let age = self.terms.age(now).as_secs();
        headers.insert(header::AGE, HeaderValue::from(age));
        headers.insert(super::CACHE_STATUS, how.status(Some(fresh_s)));
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
        let mut answer = Response::new(body);
        *answer.status_mut() = status;
        *answer.headers_mut() = headers;
        answer
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
        !weak && (is(header::ETAG) || is(header::LAST_MODIFIED))
    }
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
