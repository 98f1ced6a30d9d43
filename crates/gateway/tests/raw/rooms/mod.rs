//! The cases, by what they are about.

mod answers;
mod chunked;
mod connection;
mod expect;
mod fields;
mod framing;
mod host;
mod http2;
mod interim;
mod request_line;
mod upgrade;

use crate::case::Case;

/// Hidden in cases; as a request of its own it would be one more at the backend.
pub const SMUGGLED: &str = "GET /smuggled HTTP/1.1\nHost: t\n\n";

/// Every room with its name.
pub fn all() -> Vec<(&'static str, Vec<Case>)> {
    vec![
        ("The request line", request_line::cases()),
        ("Host", host::cases()),
        ("Framing of requests", framing::cases()),
        ("The chunked coding", chunked::cases()),
        ("Fields", fields::cases()),
        ("Connections", connection::cases()),
        ("Upgrade", upgrade::cases()),
        ("Expectations", expect::cases()),
        ("Interim answers", interim::cases()),
        ("Answers", answers::cases()),
        ("HTTP/2", http2::cases()),
    ]
}
