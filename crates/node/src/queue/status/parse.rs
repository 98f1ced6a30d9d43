//! What Apache's mod_status (`?auto`) and nginx's stub_status say.

/// A server's counters, since it was started.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Page {
    /// Apache.
    Apache {
        /// Requests answered, this page's own not yet.
        requests: u64,
        /// Processor time that its processes used, in seconds; nothing without `ExtendedStatus On`.
        cpu_s: Option<f64>,
        /// Seconds since it was started.
        uptime_s: Option<u64>,
    },
    /// nginx.
    Nginx {
        /// Connections accepted, this page's own too.
        accepts: u64,
        /// Those of them that it did not close at once for want of a place (worker_connections).
        handled: u64,
        /// Requests, this page's own too.
        requests: u64,
    },
}

/// Reads either; nothing for another page.
pub(super) fn page(text: &str) -> Option<Page> {
    nginx(text).or_else(|| apache(text))
}

fn apache(text: &str) -> Option<Page> {
    let field = |name: &str| {
        text.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            (found == name).then(|| value.trim())
        })
    };
    let seconds = |name| {
        field(name)?
            .parse::<f64>()
            .ok()
            .filter(|s| s.is_finite() && *s >= 0.0)
    };
    let parts = ["CPUUser", "CPUSystem", "CPUChildrenUser", "CPUChildrenSystem"].map(seconds);
    Some(Page::Apache {
        requests: field("Total Accesses")?.parse().ok()?,
        cpu_s: parts.into_iter().sum(),
        uptime_s: field("ServerUptimeSeconds")
            .or_else(|| field("Uptime"))
            .and_then(|s| s.parse().ok()),
    })
}

fn nginx(text: &str) -> Option<Page> {
    let mut lines = text
        .lines()
        .skip_while(|line| !line.starts_with("Active connections:"));
    lines.next()?;
    let names: Vec<&str> = lines.next()?.split_whitespace().collect();
    if names.get(..4)? != ["server", "accepts", "handled", "requests"] {
        return None;
    }
    let mut numbers = lines.next()?.split_whitespace().map(str::parse::<u64>);
    let mut next = || numbers.next()?.ok();
    Some(Page::Nginx {
        accepts: next()?,
        handled: next()?,
        requests: next()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const APACHE: &str = "\
127.0.0.1
ServerVersion: Apache/2.4.62 (Debian)
ServerMPM: prefork
ParentServerConfigGeneration: 1
ServerUptimeSeconds: 125
Load1: 0.10
Total Accesses: 4210
Total kBytes: 612
CPUUser: 1.25
CPUSystem: .5
CPUChildrenUser: 0
CPUChildrenSystem: 0.25
CPULoad: 1.6
Uptime: 125
ReqPerSec: 33.68
BusyWorkers: 1
IdleWorkers: 7
Scoreboard: W_______.
";
    const NGINX: &str = "\
Active connections: 291 
server accepts handled requests
 16630948 16630940 31070465 
Reading: 6 Writing: 179 Waiting: 106 
";

    #[test]
    fn both_pages_are_read_and_others_are_not() {
        assert_eq!(
            page(APACHE),
            Some(Page::Apache {
                requests: 4210,
                cpu_s: Some(2.0),
                uptime_s: Some(125),
            })
        );
        assert_eq!(
            page(NGINX),
            Some(Page::Nginx {
                accepts: 16_630_948,
                handled: 16_630_940,
                requests: 31_070_465,
            })
        );
        assert_eq!(page("<html>It works!</html>"), None);
        assert_eq!(
            page("Active connections: 1\nserver accepts handled requests\n 1 2\n"),
            None
        );
    }

    #[test]
    fn without_extended_status_there_is_no_processor_time() {
        let short = "Total Accesses: 5\nBusyWorkers: 1\n";
        assert_eq!(
            page(short),
            Some(Page::Apache {
                requests: 5,
                cpu_s: None,
                uptime_s: None
            })
        );
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_a_panic(
            text in "\\PC*",
            apache in "(Total Accesses|CPUUser|Uptime): [0-9.e-]{0,22}\n",
            nginx in "Active connections: 1\nserver accepts handled requests\n( [0-9]{0,22}){0,4}\n",
        ) {
            for text in [&text, &apache, &nginx] {
                page(text);
            }
        }
    }
}
