//! Whether a response may be stored, and on what terms it may be used again (RFC 9111 sections 3 and 4, RFC 5861).

use std::time::{Duration, Instant, SystemTime};

use http::header::{self, HeaderMap, HeaderName};
use http::{HeaderValue, StatusCode};

use super::directives::{Directives, delta};
use super::selection::selecting;

/// The share of its age at the origin for which a response without an expiry is taken to be fresh (RFC 9111 section 4.2.2).
const HEURISTIC_SHARE: u32 = 10;
/// The longest such time: what nobody gave a life to should not outlive a day.
const MAX_HEURISTIC: Duration = Duration::from_secs(24 * 3600);

/// On what terms a stored response may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Terms {
    /// When the answer came, on a clock that nobody sets: what was stored grows older whatever becomes of the date.
    received: Instant,
    /// The date then.
    date: SystemTime,
    /// How old it was then.
    age_then: Duration,
    /// For how long it is fresh, from its origin on.
    lifetime: Duration,
    /// It is never used without asking, however fresh.
    always_asks: bool,
    /// Once stale it is never used without asking.
    never_stale: bool,
    while_revalidating: Duration,
    if_error: Duration,
}

/// When a request went out and its answer came.
#[derive(Debug, Clone, Copy)]
pub(super) struct Exchange {
    pub asked: Instant,
    pub answered: Instant,
    /// The date when the answer came: only dates in the answer are compared with it.
    pub date: SystemTime,
}

impl Exchange {
    /// Of a request that went out then and is answered now.
    pub(super) fn since(asked: Instant) -> Self {
        Self {
            asked,
            answered: Instant::now(),
            date: SystemTime::now(),
        }
    }
}

/// Whether a request's own words keep its answer out of a shared cache.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Asked {
    pub authorized: bool,
}

impl Terms {
    /// The terms of an answer to a GET; `None` where it must not be stored, or never could be used.
    pub(super) fn of(
        asked: Asked,
        status: StatusCode,
        headers: &HeaderMap,
        exchange: Exchange,
    ) -> Option<Self> {
        let directives = Directives::of_message(headers);
        let shares = directives.public || directives.s_maxage.is_some();
        // Parts of a body and messages about another response are none by themselves.
        let whole = !status.is_informational()
            && status != StatusCode::PARTIAL_CONTENT
            && status != StatusCode::NOT_MODIFIED;
        // RFC 9111 section 5.2.2.3: who understands the status goes by it, and not by the no-store beside it.
        let understood = is_heuristic(status);
        let refused = match directives.must_understand {
            true => !understood,
            false => directives.no_store,
        };
        // A cookie is one client's, unless the origin says that all may have it.
        let personal = directives.private || (headers.contains_key(header::SET_COOKIE) && !shares);
        let authorized = asked.authorized && !shares && !directives.must_revalidate;
        if !whole || refused || personal || authorized || selecting(headers).is_none() {
            return None;
        }
        let lifetime = match lifetime(&directives, headers, exchange.date) {
            Some(explicit) => explicit,
            None if understood || directives.public => heuristic(headers, exchange.date),
            None => return None,
        };
        let if_error = directives.stale_if_error.unwrap_or(0);
        let revalidating = directives.stale_while_revalidate.unwrap_or(0);
        let can_be_asked_for =
            headers.contains_key(header::ETAG) || headers.contains_key(header::LAST_MODIFIED);
        let stale_is_of_use = if_error > 0 || revalidating > 0 || can_be_asked_for;
        if (lifetime.is_zero() || directives.no_cache) && !stale_is_of_use {
            return None;
        }
        let never_stale = directives.must_revalidate
            || directives.proxy_revalidate
            || directives.s_maxage.is_some()
            || directives.no_cache;
        Some(Self {
            received: exchange.answered,
            date: exchange.date,
            age_then: age_at_receipt(headers, exchange),
            lifetime,
            always_asks: directives.no_cache,
            never_stale,
            while_revalidating: Duration::from_secs(revalidating),
            if_error: Duration::from_secs(if_error),
        })
    }

    /// The date when the answer came.
    pub(super) fn date(&self) -> SystemTime {
        self.date
    }

    /// For how long it has been here.
    pub(super) fn resident(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.received)
    }

    /// How old the response is (RFC 9111 section 4.2.3).
    pub(super) fn age(&self, now: Instant) -> Duration {
        self.age_then + self.resident(now)
    }

    /// For how long it is fresh still; nothing of one that is stale or must be asked for.
    pub(super) fn fresh_for(&self, now: Instant) -> Duration {
        match self.always_asks {
            true => Duration::ZERO,
            false => self.lifetime.saturating_sub(self.age(now)),
        }
    }

    /// For how long it has been stale.
    pub(super) fn stale_for(&self, now: Instant) -> Duration {
        self.age(now).saturating_sub(self.lifetime)
    }

    /// Whether it may be used by a request with these directives without asking.
    pub(super) fn serves(&self, request: &Directives, now: Instant) -> bool {
        if request.no_cache || self.always_asks {
            return false;
        }
        let age = self.age(now);
        if request
            .max_age
            .is_some_and(|most| age > Duration::from_secs(most))
        {
            return false;
        }
        let fresh = self.fresh_for(now);
        if !fresh.is_zero() {
            return request
                .min_fresh
                .is_none_or(|least| fresh >= Duration::from_secs(least));
        }
        !self.never_stale
            && request
                .max_stale
                .is_some_and(|most| self.stale_for(now) <= Duration::from_secs(most))
    }

    /// Whether it may be used now while it is asked for again.
    pub(super) fn serves_while_revalidating(&self, request: &Directives, now: Instant) -> bool {
        !request.no_cache
            && request.max_age.is_none()
            && request.min_fresh.is_none()
            && !self.never_stale
            && !self.while_revalidating.is_zero()
            && self.stale_for(now) <= self.while_revalidating
    }

    /// Whether it may be used where asking for it again failed.
    pub(super) fn serves_if_error(&self, now: Instant) -> bool {
        !self.never_stale && !self.if_error.is_zero() && self.stale_for(now) <= self.if_error
    }
}

/// Statuses whose responses may be given a life by a cache (RFC 9110 section 15.1), and which this one understands.
fn is_heuristic(status: StatusCode) -> bool {
    matches!(
        status.as_u16(),
        200 | 203 | 204 | 300 | 301 | 308 | 404 | 405 | 410 | 414 | 501
    )
}

/// The life that the origin gives it; `None` where it says nothing.
fn lifetime(directives: &Directives, headers: &HeaderMap, received: SystemTime) -> Option<Duration> {
    if let Some(seconds) = directives.s_maxage.or(directives.max_age) {
        return Some(Duration::from_secs(seconds));
    }
    let mut expires = headers.get_all(header::EXPIRES).iter();
    let first = expires.next()?;
    // What is no date, as `0`, was meant to be over.
    let Some(until) = date(first) else {
        return Some(Duration::ZERO);
    };
    let from = headers.get(header::DATE).and_then(date).unwrap_or(received);
    Some(until.duration_since(from).unwrap_or_default())
}

fn heuristic(headers: &HeaderMap, received: SystemTime) -> Duration {
    let of = |name: HeaderName| headers.get(name).and_then(date);
    let from = of(header::DATE).unwrap_or(received);
    of(header::LAST_MODIFIED)
        .and_then(|modified| from.duration_since(modified).ok())
        .map_or(Duration::ZERO, |unchanged| {
            (unchanged / HEURISTIC_SHARE).min(MAX_HEURISTIC)
        })
}

/// RFC 9111 section 4.2.3, corrected_initial_age.
fn age_at_receipt(headers: &HeaderMap, exchange: Exchange) -> Duration {
    let apparent = headers
        .get(header::DATE)
        .and_then(date)
        .and_then(|date| exchange.date.duration_since(date).ok())
        .unwrap_or_default();
    // RFC 9111 section 5.1: the first of several counts, and what is no number says nothing.
    let stated = headers
        .get(header::AGE)
        .and_then(|age| age.as_bytes().split(|byte| *byte == b',').next())
        .and_then(|age| delta(age.trim_ascii()))
        .unwrap_or(0);
    let delay = exchange.answered.saturating_duration_since(exchange.asked);
    apparent.max(Duration::from_secs(stated) + delay)
}

/// A date in one of the three forms of RFC 9110 section 5.6.7.
pub(super) fn date(value: &HeaderValue) -> Option<SystemTime> {
    httpdate::parse_http_date(value.to_str().ok()?).ok()
}

#[cfg(test)]
#[path = "terms_tests.rs"]
mod tests;
