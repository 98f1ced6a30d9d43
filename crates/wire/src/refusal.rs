//! Why a request was refused: in words for people, as data for programs, as a gRPC code for everything between.

use crate::check::Invalid;
use crate::message::Range;
use headroom_units::Setting;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;
use tonic::metadata::MetadataValue;
use tonic::{Code, Status};

/// The trailer that carries a [`Refusal`] as JSON.
pub const TRAILER: &str = "headroom-refusal-bin";

/// Who serves: an agent or a gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Server {
    /// The agent of a node.
    Agent,
    /// A gateway's control port.
    Gateway,
}

impl Server {
    /// Its word in messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Gateway => "gateway",
        }
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why an agent or a gateway refused a request. Nothing was changed, save where [`Refusal::MachineRefused`] says what.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
pub enum Refusal {
    /// Another holder's lease lives.
    #[error(
        "the node is held by {holder:?} for another {remaining:.1} s: stop that controller, or wait until its lease \
         ends", remaining = remaining.as_secs_f64()
    )]
    HeldByAnother {
        /// The controller that holds the node.
        holder: String,
        /// How long its lease lives if it is not renewed.
        remaining: Duration,
    },
    /// A value outside its range.
    #[error(
        "{field} is {value} {unit}, outside {minimum} to {maximum} {unit}",
        minimum = accepted.minimum, maximum = accepted.maximum
    )]
    OutOfRange {
        /// The field.
        field: String,
        /// What was given.
        #[serde(with = "as_text")]
        value: f64,
        /// What is accepted.
        accepted: Range,
        /// The unit of the three.
        unit: String,
    },
    /// A value that is none.
    #[error(transparent)]
    Malformed(#[from] Invalid),
    /// A sequence number that is not newer than the last.
    #[error(
        "sequence {given} is not newer than {last}, which was accepted already: a later request overtook this one"
    )]
    Stale {
        /// What was given.
        given: u64,
        /// The last accepted.
        last: u64,
    },
    /// A sequence number that was accepted with another content.
    #[error(
        "sequence {sequence} was accepted with another content: a repetition must be the same, a new request needs a larger \
         number"
    )]
    Conflict {
        /// What was given, which is the last accepted.
        sequence: u64,
    },
    /// A call that the peer's role does not allow.
    #[error("{call} is not for {peer:?}, which has here the access of {access}; it needs {needed}: {remedy}")]
    Forbidden {
        /// What was called.
        call: String,
        /// Who the peer proved to be.
        peer: String,
        /// What it may do.
        access: String,
        /// What it would need.
        needed: String,
        /// What would help.
        remedy: String,
    },
    /// A lever that the node does not have.
    #[error(
        "this node cannot set {field}: {reason}{sep}{remedy}",
        sep = if remedy.is_empty() { "" } else { "; " }
    )]
    NoLever {
        /// For what.
        field: String,
        /// Why not.
        reason: String,
        /// What would help; empty where nothing does.
        remedy: String,
    },
    /// A limit of the server was reached.
    #[error("the {server} serves {limit} {what} and no more: close one, or try again later")]
    Busy {
        /// Whose.
        server: Server,
        /// Of what.
        what: String,
        /// How many are served at once.
        limit: u64,
    },
    /// The machine refused a write or a read.
    #[error("the machine refused: {why}; in force now: {in_force}")]
    MachineRefused {
        /// What, where and why.
        why: String,
        /// What is in force now; a box, for it is larger than all else that a refusal says.
        in_force: Box<Setting>,
    },
    /// Something that the server's configuration does not allow.
    #[error("{field} {value:?} may not be asked for: {allowed}")]
    NotAllowed {
        /// The field.
        field: String,
        /// What was given, cut to 80 characters.
        value: String,
        /// What is allowed, in words.
        allowed: String,
    },
    /// The server is ending.
    #[error(
        "the {_0} is ending{put_back} and takes no more requests",
        put_back = match _0 { Server::Agent => ", has put everything back", Server::Gateway => "" }
    )]
    Ending(
        /// The server that ends.
        Server,
    ),
}

impl Refusal {
    /// The gRPC code of this refusal.
    pub const fn code(&self) -> Code {
        match self {
            Self::HeldByAnother { .. } | Self::NoLever { .. } => Code::FailedPrecondition,
            Self::OutOfRange { .. } | Self::Malformed(_) => Code::InvalidArgument,
            Self::Stale { .. } | Self::Conflict { .. } => Code::Aborted,
            Self::Busy { .. } => Code::ResourceExhausted,
            Self::MachineRefused { .. } => Code::Internal,
            Self::NotAllowed { .. } | Self::Forbidden { .. } => Code::PermissionDenied,
            Self::Ending(_) => Code::Unavailable,
        }
    }

    /// Refuses a value outside a range.
    ///
    /// # Errors
    /// [`Refusal::OutOfRange`].
    pub fn check_range(field: &str, value: f64, accepted: Range, unit: &str) -> Result<(), Self> {
        if accepted.contains(value) {
            Ok(())
        } else {
            Err(Self::OutOfRange {
                field: field.into(),
                value,
                accepted,
                unit: unit.into(),
            })
        }
    }

    /// The refusal that a status carries; `None` where it carries none that this version understands.
    pub fn from_status(status: &Status) -> Option<Self> {
        let bytes = status.metadata().get_bin(TRAILER)?.to_bytes().ok()?;
        serde_json::from_slice(&bytes).ok()
    }
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Self {
        let mut status = Status::new(refusal.code(), refusal.to_string());
        match serde_json::to_vec(&refusal) {
            Ok(json) => {
                let value = MetadataValue::from_bytes(&json);
                status.metadata_mut().insert_bin(TRAILER, value);
            }
            // The status says the same in words.
            Err(error) => tracing::error!(%error, "a refusal cannot be written as JSON"),
        }
        status
    }
}

/// A number as text: JSON has none for NaN, which is among what is refused.
mod as_text {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(value)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_units::Lever;

    fn all() -> Vec<Refusal> {
        let in_force = Setting::default().with(Lever::Cores, Some(1.5));
        vec![
            Refusal::HeldByAnother {
                holder: "a".into(),
                remaining: Duration::from_millis(7300),
            },
            Refusal::OutOfRange {
                field: "cap".into(),
                value: 9.0,
                accepted: Range::new(40.0, 92.0),
                unit: "W".into(),
            },
            Refusal::Malformed(Invalid::new("cores", f64::NAN, "a number")),
            Refusal::Stale { given: 3, last: 4 },
            Refusal::NoLever {
                field: "cap".into(),
                reason: "no RAPL".into(),
                remedy: String::new(),
            },
            Refusal::Busy {
                server: Server::Gateway,
                what: "observers".into(),
                limit: 16,
            },
            Refusal::MachineRefused {
                why: "cpu.max: EINVAL".into(),
                in_force: Box::new(in_force),
            },
            Refusal::NotAllowed {
                field: "cpu_group".into(),
                value: "/db".into(),
                allowed: "this agent tells that of cgroup /web alone".into(),
            },
            Refusal::Ending(Server::Agent),
            Refusal::Ending(Server::Gateway),
            Refusal::Conflict { sequence: 4 },
            Refusal::Forbidden {
                call: "Apply".into(),
                peer: "grafana".into(),
                access: "reader".into(),
                needed: "operator".into(),
                remedy: "use another certificate".into(),
            },
        ]
    }

    #[test]
    fn every_refusal_survives_the_way_over_a_status() {
        for refusal in all() {
            let status = Status::from(refusal.clone());
            assert_eq!(status.code(), refusal.code());
            assert_eq!(status.message(), refusal.to_string());
            assert_eq!(Refusal::from_status(&status), Some(refusal));
        }
    }

    #[test]
    fn a_value_that_is_no_number_survives_too() {
        let refused = |value| Refusal::check_range("cap", value, Range::new(40.0, 92.0), "W").unwrap_err();
        for (value, words) in [(f64::NAN, "cap is NaN W"), (f64::INFINITY, "cap is inf W")] {
            let read = Refusal::from_status(&Status::from(refused(value))).unwrap();
            assert!(read.to_string().starts_with(words), "{read}");
        }
    }

    #[test]
    fn the_words_name_the_holder_the_value_and_the_range() {
        let words: Vec<String> = all().iter().map(ToString::to_string).collect();
        assert!(words[0].contains("\"a\" for another 7.3 s"), "{}", words[0]);
        assert_eq!(words[1], "cap is 9 W, outside 40 to 92 W");
        assert_eq!(words[4], "this node cannot set cap: no RAPL");
        let not_allowed =
            "cpu_group \"/db\" may not be asked for: this agent tells that of cgroup /web alone";
        assert_eq!(words[7], not_allowed);
        let forbidden = "Apply is not for \"grafana\", which has here the access of reader; it needs operator: use another certificate";
        assert_eq!(words[11], forbidden);
    }

    #[test]
    fn a_status_of_somebody_else_carries_no_refusal() {
        assert_eq!(Refusal::from_status(&Status::internal("x")), None);
        let mut garbage = Status::internal("x");
        garbage
            .metadata_mut()
            .insert_bin(TRAILER, MetadataValue::from_bytes(&[0xff, 0xff]));
        assert_eq!(Refusal::from_status(&garbage), None);
    }
}
