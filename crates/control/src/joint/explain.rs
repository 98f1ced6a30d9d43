//! Why: each reason names what was allowed beside what is expected, and the levers that it is of.

use super::Joint;
use super::points::{Chosen, Point};
use super::servers::ServerPlan;
use crate::decision::Reason;
use crate::headroom::choose::Demand;
use crate::headroom::forecast::Forecast;
use crate::observation::Traffic;
use headroom_units::Lever;

const WARM_UP: &str = "warm-up";
pub(super) const UNOBSERVED: &str = "hold-unobserved";
const CHEAPEST: &str = "cheapest-point";
const FULL_SPEED: &str = "full-speed-after-late";
const EXCITED: &str = "full-speed-to-learn";
const RETREAT: &str = "retreat";
const ALL_LATE: &str = "late-with-everything-on";
const SERVERS: &str = "servers-for-the-horizon";

impl Joint {
    /// The levers that act within a period: all but the servers.
    fn quick(&self) -> Vec<Lever> {
        let levers = self.levers.iter().copied();
        levers.filter(|lever| *lever != Lever::Servers).collect()
    }

    /// What is on where nothing of the machine is limited: rounds of a server on call may be delayed all the same.
    const fn all_on(&self) -> &'static str {
        match self.oncall {
            Some(_) => "all of the machine on",
            None => "everything on",
        }
    }

    pub(super) fn why_warm_up(&self) -> Reason {
        let of = self.tuning.warm_up_periods;
        let text = format!(
            "period {} of {of} to observe first: {}",
            self.periods,
            self.all_on()
        );
        let numbers = [("period", self.periods.into()), ("warm_up_periods", of.into())];
        Reason::new(WARM_UP, text, &numbers)
    }

    pub(super) fn why_retreat(&self, allowed: f64) -> Reason {
        let left = self.keeper.retreat();
        let text = format!(
            "periods were late far more often than {:.2} %: the model is not to be trusted, {} for {left} more periods",
            allowed * 100.0,
            self.all_on()
        );
        Reason::new(RETREAT, text, &[("allowed", allowed), ("periods", left.into())])
    }

    /// Even everything on is late more often than asked, as `observed`.
    pub(super) fn why_all(&self, observed: f64) -> Reason {
        let by = match self.oncall {
            Some(_) => " by the machine's levers",
            None => "",
        };
        let text = format!(
            "even with {} {:.2} % of the periods at such a load are late, {:.2} % are asked for: nothing can be saved{by}",
            self.all_on(),
            observed * 100.0,
            self.tuning.late * 100.0
        );
        Reason::new(
            ALL_LATE,
            text,
            &[("observed", observed), ("asked", self.tuning.late)],
        )
    }

    pub(super) fn why_excited(&self, point: &Point) -> Reason {
        let unsure = self.cost.unsure(1.0);
        let text = format!(
            "full speed for a period: what a request costs there is known to ± {:.0} % only, from {:.0} % of the frequency",
            unsure * 100.0,
            point.pace * 100.0
        );
        Reason::new(EXCITED, text, &[("unsure", unsure)]).of(&self.quick())
    }

    pub(super) fn why_full_speed(&self, traffic: &Traffic) -> Reason {
        let late = traffic.late_in_words(self.slo, self.slo.target());
        let text = format!("{late}: full speed for {} periods", self.after_late);
        let numbers = [
            ("latency_ms", traffic.latency_to_judge().as_millis()),
            ("periods", self.after_late.into()),
        ];
        Reason::new(FULL_SPEED, text, &numbers).of(&self.quick())
    }

    /// The cheapest point of those that may be, and what the next cheaper one would have risked.
    pub(super) fn why_point(&mut self, chosen: &Chosen, forecast: &Forecast, demand: &Demand) -> Reason {
        let now = &chosen.point;
        let may = chosen.allowed * chosen.saved_by_reflex;
        let mut text = format!(
            "{:.1}/s ± {:.1} expected: {} with {:.0} % of the cores at {:.0} % of the frequency: late with {:.2} % (allowed {:.2} %",
            forecast.rate,
            forecast.deviation,
            counted(now.servers),
            now.on * 100.0,
            now.pace * 100.0,
            now.late * 100.0,
            may * 100.0,
        );
        if chosen.saved_by_reflex > 1.0 {
            text += &format!(", as a reflex saves all but one of {:.1}", chosen.saved_by_reflex);
        }
        text += &format!("), {:.1} W", now.watts);
        let mut numbers = vec![
            ("expected_rate_per_s", forecast.rate),
            ("cores_on", self.draw.cores(now.servers) * now.on),
            ("pace", now.pace),
            ("late_probability", now.late),
            ("allowed", chosen.allowed),
            ("saved_by_reflex", chosen.saved_by_reflex),
            ("expected_w", now.watts),
            ("caution", self.keeper.caution()),
        ];
        match self.next_cheaper(now, demand) {
            Some(next) => {
                text += &format!(
                    "; at {:.0} % with {:.2} %, {:.1} W",
                    next.pace * 100.0,
                    next.late * 100.0,
                    next.watts
                );
                numbers.push(("cheaper_pace", next.pace));
                numbers.push(("cheaper_late_probability", next.late));
                numbers.push(("cheaper_w", next.watts));
            }
            None => text += "; nothing is cheaper",
        }
        Reason::new(CHEAPEST, text, &numbers).of(&self.quick())
    }

    /// How many servers stay on, and what one less would have risked.
    pub(super) fn why_servers(&self, plan: &ServerPlan, allowed: f64) -> Reason {
        let all = self.draw.servers();
        let mut text = match plan.grown_to {
            Some(rate) => format!("the load may grow to {rate:.1}/s within a boot: "),
            None => "how the load grows within a boot is not known yet: ".to_owned(),
        };
        text += &format!("{} of {all} are safe", counted(plan.safe));
        let mut numbers = vec![
            ("servers", plan.on as f64),
            ("servers_safe", plan.safe as f64),
            ("servers_cheapest", plan.cheapest as f64),
            ("servers_safe_at_end", plan.at_end as f64),
            ("allowed", allowed),
            ("truth", self.keeper.truth()),
        ];
        if let Some(late) = plan.one_less_late {
            text += &format!(
                " (allowed {:.2} %, with one less late with {:.2} %)",
                allowed * 100.0,
                late * 100.0
            );
            numbers.push(("one_less_late_probability", late));
        }
        if plan.cheapest > plan.safe {
            text += &format!(", {} cheapest", plan.cheapest);
        }
        text += &format!("; {} on", plan.on);
        if plan.on > plan.cheapest {
            text += ", as more were needed within what a boot is worth";
        }
        if plan.on < plan.safe {
            text += &format!(
                ", as another would serve when that is over and {} will do",
                plan.at_end
            );
        }
        Reason::new(SERVERS, text, &numbers).of(&[Lever::Servers])
    }
}

fn counted(servers: usize) -> String {
    match servers {
        1 => "1 server".to_owned(),
        more => format!("{more} servers"),
    }
}
