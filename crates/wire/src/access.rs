//! What a peer may do: nothing, read, or command.
//!
//! A certificate carries the role that it was issued for; lists of names replace that. A certificate that was issued for
//! reading never commands, whatever the lists say. Over a Unix socket it is the user of the peer's process that counts.

use crate::certs::Role;
use std::fmt;

/// Before the number of a user in a list of names.
const USER: &str = "uid:";

/// The most names in one list.
pub const MAX_NAMES: usize = 256;

/// What a peer may do. Each may do what those before it may.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// Nothing at all.
    #[default]
    Nothing,
    /// Describe and observe.
    Reader,
    /// Everything.
    Operator,
}

impl Access {
    /// Its word in messages and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Nothing => "no role",
            Self::Reader => "reader",
            Self::Operator => "operator",
        }
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Who a peer is, as far as it proved it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// By its certificate: the common name (the first DNS name where it has none), and the role that it was issued for.
    Certificate {
        /// The common name, or where there is none the first other name.
        name: String,
        /// The role.
        role: Role,
    },
    /// By the kernel: the user of its process.
    User(u32),
    /// Not at all.
    Unknown,
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Certificate { name, .. } => f.write_str(name),
            Self::User(uid) => write!(f, "{USER}{uid}"),
            Self::Unknown => f.write_str("unknown"),
        }
    }
}

/// Who may do what at one server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    operators: Option<Vec<String>>,
    readers: Option<Vec<String>>,
}

/// A name in a list that can be nobody's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RulesError {
    /// No name.
    #[error(
        "{0:?} names nobody: give the name of a certificate (`headroom certs show` tells it), or uid:NUMBER for a user of \
         this machine"
    )]
    Name(String),
    /// Too many.
    #[error("{0} names are given: at most {MAX_NAMES} are taken")]
    Many(usize),
}

impl Rules {
    /// Lists in the place of the roles that certificates were issued for; `None` leaves those. A name is that of a
    /// certificate, or `uid:NUMBER`.
    ///
    /// # Errors
    /// [`RulesError`].
    pub fn new(operators: Option<Vec<String>>, readers: Option<Vec<String>>) -> Result<Self, RulesError> {
        for names in [&operators, &readers].into_iter().flatten() {
            if names.len() > MAX_NAMES {
                return Err(RulesError::Many(names.len()));
            }
            let nobody = |name: &&String| match name.strip_prefix(USER) {
                Some(number) => number.parse::<u32>().is_err(),
                None => name.trim().is_empty() || name.chars().any(char::is_control),
            };
            if let Some(name) = names.iter().find(nobody) {
                return Err(RulesError::Name(name.clone()));
            }
        }
        Ok(Self { operators, readers })
    }

    /// What a peer may do. `owner` is the user that the server runs as.
    pub fn access(&self, peer: &Identity, owner: u32) -> Access {
        let listed = |list: &Option<Vec<String>>| {
            let name = peer.to_string();
            list.as_ref().map(|names| names.contains(&name))
        };
        match peer {
            Identity::Certificate { role, .. } => {
                let may_command = matches!(role, Role::Controller | Role::Client);
                let may_read = may_command || *role == Role::Reader;
                let operator = listed(&self.operators).unwrap_or(*role == Role::Controller);
                let reader = listed(&self.readers).unwrap_or(*role == Role::Reader);
                if operator && may_command {
                    Access::Operator
                } else if reader && may_read {
                    Access::Reader
                } else {
                    Access::Nothing
                }
            }
            // Whoever could stop the server or read its keys is kept from nothing.
            Identity::User(uid) if *uid == 0 || *uid == owner => Access::Operator,
            Identity::User(_) if listed(&self.operators).unwrap_or(false) => Access::Operator,
            // The mode of the socket's file let it in.
            Identity::User(_) if listed(&self.readers).unwrap_or(true) => Access::Reader,
            Identity::User(_) | Identity::Unknown => Access::Nothing,
        }
    }

    /// What would let a peer do more.
    pub fn remedy(&self, peer: &Identity) -> String {
        match peer {
            Identity::Certificate { role: Role::Reader, .. } => {
                "use a certificate of `headroom certs issue-controller`".to_owned()
            }
            Identity::Certificate { name, .. } if self.operators.is_some() => {
                format!("name {name:?} in the list of operators there")
            }
            Identity::Certificate { .. } => {
                "use a certificate of `headroom certs issue-controller`, or list its name as an operator there".to_owned()
            }
            Identity::User(_) => {
                format!("run as the owner of the socket, or list {:?} as an operator there", peer.to_string())
            }
            Identity::Unknown => "use a certificate, or a Unix socket".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shown(name: &str, role: Role) -> Identity {
        Identity::Certificate {
            name: name.into(),
            role,
        }
    }

    fn list(names: &[&str]) -> Option<Vec<String>> {
        Some(names.iter().map(|name| (*name).to_owned()).collect())
    }

    #[test]
    fn without_lists_a_certificate_is_what_it_was_issued_for() {
        let rules = Rules::default();
        for (role, access) in [
            (Role::Controller, Access::Operator),
            (Role::Reader, Access::Reader),
            (Role::Client, Access::Nothing),
            (Role::Node, Access::Nothing),
            (Role::Authority, Access::Nothing),
            (Role::Other, Access::Nothing),
        ] {
            assert_eq!(rules.access(&shown("a", role), 7), access, "{role:?}");
        }
        assert_eq!(rules.access(&Identity::Unknown, 7), Access::Nothing);
    }

    #[test]
    fn lists_replace_the_roles_but_make_no_operator_of_a_reader_or_a_node() {
        let rules = Rules::new(
            list(&["controller-a", "grafana", "n1"]),
            list(&["grafana", "controller-b"]),
        )
        .unwrap();
        for (name, role, access) in [
            ("controller-a", Role::Controller, Access::Operator),
            ("controller-a", Role::Client, Access::Operator),
            ("controller-b", Role::Controller, Access::Reader),
            ("controller-c", Role::Controller, Access::Nothing),
            ("grafana", Role::Reader, Access::Reader),
            ("other", Role::Reader, Access::Nothing),
            ("n1", Role::Node, Access::Nothing),
        ] {
            assert_eq!(rules.access(&shown(name, role), 0), access, "{name} {role:?}");
        }
        assert!(
            rules
                .remedy(&shown("controller-c", Role::Controller))
                .contains("\"controller-c\" in the list")
        );
    }

    #[test]
    fn over_a_unix_socket_the_user_counts() {
        let rules = Rules::default();
        for (uid, access) in [(0, Access::Operator), (7, Access::Operator), (8, Access::Reader)] {
            assert_eq!(rules.access(&Identity::User(uid), 7), access, "{uid}");
        }
        let rules = Rules::new(list(&["uid:8"]), list(&[])).unwrap();
        for (uid, access) in [(0, Access::Operator), (8, Access::Operator), (9, Access::Nothing)] {
            assert_eq!(rules.access(&Identity::User(uid), 7), access, "{uid}");
        }
        // A name in a certificate is no user.
        assert_eq!(rules.access(&shown("uid:8", Role::Reader), 7), Access::Nothing);
    }

    #[test]
    fn a_name_that_is_nobodys_is_refused() {
        for name in ["", " ", "uid:", "uid:x", "a\nb"] {
            assert!(
                matches!(Rules::new(list(&[name]), None), Err(RulesError::Name(_))),
                "{name:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn only_client_certificates_that_are_listed_or_controllers_command(
            name in "[ab]", role in 0..6usize, operators in proptest::option::of(proptest::collection::vec("[abc]", 0..3)),
            readers in proptest::option::of(proptest::collection::vec("[abc]", 0..3)),
        ) {
            let role = [Role::Authority, Role::Node, Role::Controller, Role::Reader, Role::Client, Role::Other][role];
            let rules = Rules::new(operators.clone(), readers.clone()).unwrap();
            let access = rules.access(&shown(&name, role), 0);
            if access == Access::Operator {
                prop_assert!(matches!(role, Role::Controller | Role::Client));
                prop_assert!(operators.as_ref().map_or(role == Role::Controller, |list| list.contains(&name)));
            }
            if access == Access::Reader {
                prop_assert!(matches!(role, Role::Controller | Role::Client | Role::Reader));
                prop_assert!(readers.as_ref().map_or(role == Role::Reader, |list| list.contains(&name)));
            }
        }
    }
}
