//! Which of the five methods is taken, in the user's order of preference, and why the others were not.

use super::{
    EbpfQueueMeter, KernelQueueMeter, QueueError, QueueMeter, QueueMethod, SnmpOptions, SnmpQueueMeter,
    StatusPage, StatusQueueMeter, ToolsQueueMeter,
};
use crate::Roots;
use crate::order::{self, Choice, NoChoice, Preference, Word};

/// Which method is wanted; `auto` is the program in the kernel where it can be loaded, else what the kernel exports.
pub type QueuePreference = Preference<QueueMethod>;

/// What the methods need to know.
#[derive(Clone, Debug)]
pub struct QueueOptions {
    /// The TCP port whose accept queue is measured.
    pub port: u16,
    /// Where `/sys` and `/proc` are.
    pub roots: Roots,
    /// The SNMP agent.
    pub snmp: SnmpOptions,
    /// The server's status page, where it has one.
    pub status: Option<StatusPage>,
}

impl QueueOptions {
    /// A port of this machine, with the agent at its usual place and no status page.
    pub fn new(port: u16) -> Self {
        Self {
            port,
            roots: Roots::default(),
            snmp: SnmpOptions::default(),
            status: None,
        }
    }
}

/// Which method was chosen, and what was passed over.
pub type QueueChoice = Choice<QueueMethod>;

/// A meter, or why there is none.
pub type Opened = Result<Box<dyn QueueMeter>, QueueError>;

/// Opens one method.
///
/// # Errors
/// [`QueueError::NobodyListens`] for a port without a listener, whichever the method: those that know nothing of ports
/// would show other servers' numbers. Else why the method cannot be used.
pub fn open(method: QueueMethod, options: &QueueOptions) -> Opened {
    Ok(match method {
        QueueMethod::Ebpf => Box::new(EbpfQueueMeter::open(options.port, &options.roots)?),
        QueueMethod::Kernel => Box::new(KernelQueueMeter::open(options.port, &options.roots)?),
        QueueMethod::Tools => Box::new(ToolsQueueMeter::open(options.port)?),
        QueueMethod::Snmp => Box::new(SnmpQueueMeter::open(options.port, &options.snmp)?),
        QueueMethod::Status => {
            let page = options.status.as_ref().ok_or_else(|| QueueError::Remote {
                address: format!("the server on port {}", options.port),
                what: "the address of its status page is not configured".into(),
                remedy: "give it, such as http://127.0.0.1/server-status?auto (Apache, mod_status) or \
                         http://127.0.0.1/nginx_status (nginx, stub_status)"
                    .into(),
            })?;
            Box::new(StatusQueueMeter::open(options.port, page)?)
        }
    })
}

/// Opens the first method of the preference's order that works.
///
/// # Errors
/// [`QueueError::NobodyListens`] for a port without a listener; [`QueueError::Unavailable`] where none of the order
/// works.
pub fn choose(
    preference: QueuePreference,
    options: &QueueOptions,
) -> Result<(Box<dyn QueueMeter>, QueueChoice), QueueError> {
    let nobody = |error: &QueueError| matches!(error, QueueError::NobodyListens { .. });
    order::choose(&preference.order(), |method| open(method, options), nobody).map_err(|none| match none {
        NoChoice::Fatal(error) => error,
        none => QueueError::Unavailable {
            port: options.port,
            wanted: preference,
            reasons: none.to_string(),
        },
    })
}

/// Each of the five, opened or why it cannot be: to compare them side by side.
pub fn every(options: &QueueOptions) -> Vec<(QueueMethod, Opened)> {
    QueueMethod::ALL
        .iter()
        .map(|&method| (method, open(method, options)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::says;
    use std::net::TcpListener;

    #[test]
    fn a_word_or_a_list_of_words_is_a_preference() {
        let read =
            |json: &str| serde_json::from_str::<QueuePreference>(json).map_err(|error| error.to_string());
        assert_eq!(read("\"auto\""), Ok(QueuePreference::Auto));
        assert_eq!(read("\"kernel\""), Ok(QueuePreference::one(QueueMethod::Kernel)));
        let listed = read("[\"tools\", \"snmp\"]").unwrap();
        assert_eq!(listed.order(), [QueueMethod::Tools, QueueMethod::Snmp]);
        assert_eq!("tools, snmp".parse(), Ok(listed));
        for preference in [listed, QueuePreference::Auto] {
            assert_eq!(read(&serde_json::to_string(&preference).unwrap()), Ok(preference));
        }
        assert!(
            read("\"perl\"")
                .unwrap_err()
                .contains("\"perl\" is no queue method")
        );
        assert_eq!(QueuePreference::Auto.order().last(), Some(&QueueMethod::Kernel));
    }

    #[test]
    fn a_method_that_cannot_be_used_is_passed_over_with_its_reason() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let options = QueueOptions::new(listener.local_addr().unwrap().port());
        let (meter, choice) = choose("status,kernel".parse().unwrap(), &options).unwrap();
        assert_eq!(
            (meter.method(), choice.chosen),
            (QueueMethod::Kernel, QueueMethod::Kernel)
        );
        let said = choice.to_string();
        says(&said, &["by kernel; status cannot be used", "mod_status"]);
        let error = choose(QueuePreference::one(QueueMethod::Status), &options)
            .err()
            .unwrap();
        assert!(
            matches!(&error, QueueError::Unavailable { .. }) && error.to_string().contains("stub_status")
        );
    }

    #[test]
    fn a_port_without_a_listener_is_an_error_whichever_the_method() {
        let port = {
            let short = TcpListener::bind("127.0.0.1:0").unwrap();
            short.local_addr().unwrap().port()
        };
        let mut options = QueueOptions::new(port);
        options.status = Some("http://127.0.0.1:9/nginx_status".parse().unwrap());
        assert!(matches!(
            choose(QueuePreference::Auto, &options),
            Err(QueueError::NobodyListens { .. })
        ));
        for (method, opened) in every(&options) {
            match opened {
                Err(QueueError::NobodyListens { .. }) => {}
                Err(error @ QueueError::Tool { .. }) => {
                    println!("skipped: the accept queue by tools: {error}")
                }
                Err(error) => panic!("{method}: {error}"),
                Ok(_) => panic!("{method} measures a port without a listener"),
            }
        }
    }
}
