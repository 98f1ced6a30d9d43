//! Requests by the size of their answers: what each core learns of the routes, and where the classes go.
//!
//! A route is a method, a host and a path without its query. The method, for what a POST answers says nothing of a GET; the host, for
//! one gateway serves several; no query, for it is where clients put what makes each request another (a session, a time stamp), and
//! where it does choose what is answered, its sizes are averaged. Each core learns for itself, in a table of fixed memory
//! ([`table::Table`]); keys are kept as hashes with a secret of this process, so that nobody outside can make two of one. A route that is not
//! in the table has the size of its group, the routes of the same directory and extension, where their sizes are of one class.

mod counts;
mod estimate;
mod routes;
mod table;

use std::cell::RefCell;
use std::hash::{BuildHasher, Hasher, RandomState};

use http::{Method, StatusCode, header, request};

use crate::config::SizesConfig;
pub use counts::{COARSE_BUCKETS, ClassCounts, ClassOnBackend, CoarseHistogram};
use estimate::{Group, Typical, octaves};
pub use routes::ClassRoute;
pub(crate) use routes::{CoreRoutes, SharedRoutes};
use table::Table;

/// Groups remembered, for so many routes one.
const ROUTES_PER_GROUP: usize = 8;

/// What was known of the size of a request's answer when it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sized {
    route: u64,
    group: u64,
    /// Its class, the smallest 0; the last one is of those whose size nobody knew.
    pub class: u8,
    /// Its answer has the content that the size is of.
    has_content: bool,
}

/// What one core knows of its routes.
pub(crate) struct Sizes {
    /// The upper bounds of the classes, in octaves.
    bounds: Vec<f32>,
    secret: RandomState,
    known: RefCell<Known>,
}

struct Known {
    routes: Table<Typical>,
    groups: Table<Group>,
}

impl Sizes {
    /// Nothing known yet; `None` where it is not configured.
    pub(crate) fn new(config: &SizesConfig) -> Option<Self> {
        let classes = config.classes();
        (classes > 0).then(|| Self {
            bounds: config.bounds_bytes.iter().copied().map(octaves).collect(),
            secret: RandomState::new(),
            known: RefCell::new(Known {
                routes: Table::new(config.routes),
                groups: Table::new(config.routes.div_ceil(ROUTES_PER_GROUP)),
            }),
        })
    }

    fn class(&self, octaves: f32) -> u8 {
        let class = self.bounds.iter().take_while(|bound| octaves > **bound).count();
        u8::try_from(class).unwrap_or(u8::MAX)
    }

    /// The hashes of a request's route and group.
    fn keys(&self, request: &request::Parts) -> (u64, u64) {
        let uri = &request.uri;
        let host = match uri.authority() {
            Some(authority) => authority.as_str().as_bytes(),
            None => request
                .headers
                .get(header::HOST)
                .map_or(&b""[..], |host| host.as_bytes()),
        };
        let path = uri.path();
        let (directory, file) = path.split_at(path.rfind('/').map_or(0, |slash| slash + 1));
        let extension = file.rfind('.').map_or("", |dot| &file[dot..]);
        let mut hasher = self.secret.build_hasher();
        for part in [request.method.as_str().as_bytes(), host, directory.as_bytes()] {
            hasher.write(part);
            // What ends one part and begins another is told apart.
            hasher.write_u8(0xff);
        }
        let mut group = hasher.clone();
        hasher.write(file.as_bytes());
        group.write_u8(0xff);
        group.write(extension.as_bytes());
        (hasher.finish(), group.finish())
    }

    /// What is known of a request that came.
    pub(crate) fn of(&self, request: &request::Parts) -> Sized {
        let (route, group) = self.keys(request);
        let known = &mut *self.known.borrow_mut();
        let by_route = known
            .routes
            .get(route)
            .and_then(Typical::get)
            .map(|octaves| self.class(octaves));
        let by_group = || {
            let (low, high) = known.groups.get(group)?.range()?;
            let class = self.class(low);
            (class == self.class(high)).then_some(class)
        };
        // One bound more than classes below it: the largest class, then the unknown.
        let unknown = u8::try_from(self.bounds.len() + 1).unwrap_or(u8::MAX);
        Sized {
            route,
            group,
            class: by_route.or_else(by_group).unwrap_or(unknown),
            has_content: request.method != Method::HEAD,
        }
    }

    /// A request was answered whole, with so many bytes of content.
    pub(crate) fn learn(&self, sized: Sized, status: StatusCode, bytes: u64) {
        if !sized.has_content || !says_size(status) {
            return;
        }
        let known = &mut *self.known.borrow_mut();
        if known.routes.change(sized.route, |typical| typical.learn(bytes)) {
            known.groups.change(sized.group, |group| group.learn(bytes));
        }
    }
}

/// Whether the content of an answer with this status is what the route has: not a part of it (206), none because the client has it (304),
/// and not what another request would not be told (an error of the client's or the server's).
fn says_size(status: StatusCode) -> bool {
    let is_route = status.is_success() || status.is_redirection();
    let is_whole = status != StatusCode::PARTIAL_CONTENT && status != StatusCode::NOT_MODIFIED;
    (is_route && is_whole) || matches!(status, StatusCode::NOT_FOUND | StatusCode::GONE)
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
