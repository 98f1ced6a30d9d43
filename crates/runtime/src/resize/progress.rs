//! What is said meanwhile to who waits until every server serves.

use std::time::Duration;

/// What one server does, for who waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Is {
    /// It answers.
    Answering,
    /// It does not, and is waited for.
    Silent,
    /// Its operator has it, whether it answers or not.
    TheOperators,
}

/// How far it is, for who waits; what was ordered to stop would be down after `left`.
pub(super) fn progress(servers: &[(&str, Is)], left: Duration) -> String {
    let those = |wanted: Is| -> Vec<&str> {
        let those = servers.iter().filter(|(_, is)| *is == wanted);
        those.map(|(name, _)| *name).collect()
    };
    let [answering, silent, theirs] = [Is::Answering, Is::Silent, Is::TheOperators].map(those);
    let count = answering.len() + silent.len();
    let who = match (theirs.is_empty(), answering.len()) {
        (true, _) => format!("all {count} servers answer"),
        (false, 0) => "no other server is waited for".to_owned(),
        (false, 1) => format!("{} answers", answering.join("")),
        (false, _) => format!("{} answer", listed(&answering)),
    };
    let far = match (silent.is_empty(), left.is_zero()) {
        (true, true) if count == 0 => who,
        (true, true) => format!("{who}: the balancer is to give each requests"),
        (true, false) => format!(
            "{who}: one that was ordered to stop may still do so for {:.0} s (power.stop_timeout_s)",
            left.as_secs_f64()
        ),
        (false, _) => format!(
            "{} of {count} servers answer; waits for {}",
            answering.len(),
            silent.join(", ")
        ),
    };
    match theirs.len() {
        0 => far,
        1 => format!("{far}; {} is in maintenance and stays as it is", theirs[0]),
        _ => format!(
            "{far}; {} are in maintenance and stay as they are",
            listed(&theirs)
        ),
    }
}

/// Names in a sentence: `web1, web2 and web3`.
fn listed(names: &[&str]) -> String {
    match names.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        _ => names.concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_is_told_of_those_that_are_waited_for_and_of_those_that_their_operator_has() {
        let stops = Duration::from_secs(290);
        let said = |are: &[Is], left: Duration| {
            let names = ["web1", "web2", "web3", "web4"];
            progress(
                &names.into_iter().zip(are.iter().copied()).collect::<Vec<_>>(),
                left,
            )
        };
        let (answers, silent, theirs) = (Is::Answering, Is::Silent, Is::TheOperators);
        for (are, left, wanted) in [
            (
                vec![answers; 3],
                stops,
                "all 3 servers answer: one that was ordered to stop may still do so for 290 s (power.stop_timeout_s)",
            ),
            (
                vec![answers, answers, theirs],
                stops,
                "web1 and web2 answer: one that was ordered to stop may still do so for 290 s (power.stop_timeout_s); web3 is in \
                 maintenance and stays as it is",
            ),
            (
                vec![answers, theirs, theirs],
                Duration::ZERO,
                "web1 answers: the balancer is to give each requests; web2 and web3 are in maintenance and stay as they are",
            ),
            (
                vec![theirs],
                Duration::ZERO,
                "no other server is waited for; web1 is in maintenance and stays as it is",
            ),
            (
                vec![answers, silent, silent, theirs],
                stops,
                "1 of 3 servers answer; waits for web2, web3; web4 is in maintenance and stays as it is",
            ),
        ] {
            assert_eq!(said(&are, left), wanted);
        }
    }
}
