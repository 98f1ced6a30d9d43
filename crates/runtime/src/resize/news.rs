//! What happened in a period, for people: decisions that changed something, and servers that changed their state.

use super::tick::Tick;

/// One thing that happened.
#[derive(Clone, Debug, PartialEq)]
pub struct News {
    /// When, in seconds since the start of the run.
    pub at_s: f64,
    /// What.
    pub what: String,
    /// Why, as far as it is known.
    pub why: String,
}

/// Tells the news of each period: at most one more than twice the servers, besides the balancer's.
#[derive(Clone, Debug, Default)]
pub struct Newsroom {
    wanted: Option<usize>,
    lost: bool,
}

impl Newsroom {
    /// The news of the next period.
    pub fn read(&mut self, tick: &Tick) -> Vec<News> {
        let news = |what: String, why: String| News {
            at_s: tick.at.get(),
            what,
            why,
        };
        let mut all = Vec::new();
        let trouble = tick.balancer.trouble.as_ref();
        match (trouble, std::mem::replace(&mut self.lost, trouble.is_some())) {
            (Some(why), false) => all.push(news("the balancer cannot be relied on".to_owned(), why.clone())),
            (None, true) => all.push(news(
                "the balancer can be relied on again".to_owned(),
                String::new(),
            )),
            _ => {}
        }
        let wanted = tick.resize.servers;
        let before = self.wanted.replace(wanted);
        if before != Some(wanted) {
            let reason = &tick.resize.reason;
            let servers = if wanted == 1 { "server" } else { "servers" };
            let before = before.map_or(String::new(), |before| format!(", {before} before"));
            let what = format!("{wanted} {servers} wanted{before}");
            all.push(news(what, format!("{}: {}", reason.rule, reason.text)));
        }
        for one in tick.servers.iter().filter(|one| one.state != one.before) {
            let what = format!(
                "{}: {} \u{2192} {}",
                one.name,
                one.before.name(),
                one.state_words()
            );
            all.push(news(what, one.trouble.join("; ")));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resize::tick::tests::tick;
    use headroom_control::resize::{Cause, PowerState};

    #[test]
    fn only_what_changed_is_news() {
        let mut newsroom = Newsroom::default();
        let first = newsroom.read(&tick(0, 1));
        assert_eq!(
            first,
            [News {
                at_s: 1.0,
                what: "1 server wanted".to_owned(),
                why: "grow: 90.0/s of 100.0/s".to_owned(),
            }]
        );
        assert_eq!(newsroom.read(&tick(1, 1)), []);
        let mut lost = tick(2, 2);
        lost.balancer.trouble = Some("g1 does not answer".to_owned());
        lost.servers[1].state = PowerState::Failed(Cause::Boot);
        lost.servers[1].trouble = vec!["no answer within 6 s".to_owned()];
        let reported: Vec<(String, String)> = newsroom
            .read(&lost)
            .into_iter()
            .map(|news| (news.what, news.why))
            .collect();
        assert_eq!(reported[0].1, "g1 does not answer");
        assert_eq!(reported[1].0, "2 servers wanted, 1 before");
        assert_eq!(
            reported[2],
            (
                "web2: off \u{2192} failed (boot)".to_owned(),
                "no answer within 6 s".to_owned()
            )
        );
        let back = newsroom.read(&tick(3, 2));
        assert_eq!(back[0].what, "the balancer can be relied on again");
    }
}
