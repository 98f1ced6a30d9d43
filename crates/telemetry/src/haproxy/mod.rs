//! An existing HAProxy as the source of telemetry: its HTTP log and its statistics socket.
//!
//! # What HAProxy must be told
//!
//! ```text
//! global
//!     log 127.0.0.1:5514 len 4096 local0          # or a Unix datagram socket, or a syslog daemon's file
//!     stats socket /run/haproxy/headroom.sock mode 660 level admin   # `level user` if weights are not to be changed
//! defaults
//!     mode http
//!     log global
//!     option httplog                              # or a `log-format` that has the fields of LogFormat::compile
//! ```
//!
//! These make the log tell less than the truth and must be off: `option logasap` (writes the line before the answer
//! has ended; such lines are refused and counted), `option dontlog-normal` and `http-request set-log-level silent`
//! (leave requests out), `log … sample` (leaves most out), and a `maxlevel` under `info`: where the log accounts for fewer than
//! 90 % of the requests that the statistics count, over some periods, the telemetry is called lost, with the reason; so it is
//! where it has more requests than arrived. `option dontlognull` and
//! `option http-ignore-probes` do no harm. HAProxy writes a line when a request *ends*, and does not buffer it.
//!
//! # What is taken from where
//!
//! | value | with a statistics socket | without |
//! |---|---|---|
//! | latency, completions, failures, requests by server | log | log |
//! | arrivals | counter raised as requests arrive: `req_tot` of the frontends, or, where backends are named, their `stot`; less the requests that HAProxy answered itself | the requests that ended, see below |
//! | in flight | `scur` of the backends | unknown |
//! | age of the oldest in flight | `show sess`, where something is in flight and nothing ended | unknown |
//! | health | status of the servers | unknown |
//! | lines that did not come | log lines against counted responses; `DroppedLogs` | unknown; the kernel's drops of UDP |
//!
//! Without the statistics socket an arrival is known only when its request has ended. Counting by the accept date in
//! the line does not help: at the end of a period the requests still being served have no line yet, so a period
//! would be short of arrival rate times latency on average, whereas those that end in it number the same as those
//! that arrive while the load is steady, and each request is counted once. What remains is a delay of one latency.
//! The accept date serves another purpose: with the total time it says when the request ended, hence how late the
//! line came. The clocks may differ: a lag that is constant is their difference, said once and allowed for; one that grows, or is
//! irregular, is a late log (`clock`). Dates without a zone are of this machine's.
//!
//! # Which latency
//!
//! [`LatencyFrom`]: with `%Tw`, `%Tc` and `%Tr` from the request complete to the first byte of the answer, so that a client that is
//! slow is no slow service; with `%TR` and `%Ta` also that to the last byte, apart.
//!
//! Processes of a multi-process HAProxy (`nbproc`, until 2.4) each have their own statistics socket; only one can be
//! read, so give none and rely on the log.

mod clock;
mod counters;
mod coverage;
mod csv;
mod date;
mod envelope;
mod format;
mod latency;
mod line;
mod outcome;
mod quoting;
mod source;
mod statistics;
mod tally;
mod telemetry;
#[cfg(test)]
mod tests;

pub use counters::{NoSuchName, StartError};
pub use date::Written;
pub use format::{FormatError, LogFormat, WORKING_LOG_FORMAT};
pub use latency::LatencyFrom;
pub use line::{Entry, LineError};
pub use outcome::Outcome;
pub use source::{LogSource, SourceError};
pub use statistics::{
    Responses, Row, RowKind, ServerRow, ServerState, Statistics, StatisticsAddress, StatisticsError,
    StatisticsSocket,
};
pub use tally::Scope;
pub use telemetry::{HaproxyConfig, HaproxyError, HaproxyTelemetry};
