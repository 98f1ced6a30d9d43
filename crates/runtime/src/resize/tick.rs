//! One period, as it is told to whoever watches, and as it is recorded: what was seen, decided and done, and why.

use super::balancer::{Admission, Traffic};
use super::queues::Counted;
use super::switch_worker::Outcomes;
use hdrhistogram::Histogram;
use headroom_control::capacity::Capacity;
use headroom_control::decision::Reason;
use headroom_control::resize::EnergyTotals;
use headroom_control::resize::{Cause, Command, PowerState, Resize};
use headroom_record::LatencyMs;
use headroom_units::{PerSecond, Ratio, Seconds};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// One server in a period.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServerTick {
    /// Its name.
    pub name: String,
    /// Its state at the period's end: in the record the word, and the cause beside it where it failed.
    #[serde(flatten, with = "state_and_cause")]
    pub state: PowerState,
    /// Its state before.
    pub before: PowerState,
    /// Seconds for which it has been in it.
    pub for_s: f64,
    /// Failures in a row.
    pub failures: u32,
    /// Its capacity.
    pub capacity: Capacity,
    /// Whether that was given: else it is estimated, or not known.
    pub given: bool,
    /// What its estimator said last, and why; `None` where its accept queue is not watched.
    pub estimated: Option<Reason>,
    /// What was counted at its accept queue.
    #[serde(rename = "queue")]
    pub counted: Option<Counted>,
    /// Whether its power is on; `None` where nobody can say.
    pub powered: Option<bool>,
    /// Whether it answers.
    pub answering: bool,
    /// What the balancer gives it, as read back; `None` where the balancer cannot be asked.
    pub admission: Option<Admission>,
    /// Requests that it is serving; `None` where that is not known.
    pub in_flight: Option<u64>,
    /// What it was told in this period.
    pub command: Option<Command>,
    /// What came of the orders to its power switch, since the start.
    pub orders: Outcomes,
    /// What is wrong with it or with what is known of it.
    pub trouble: Vec<String>,
}

/// A state as two fields, `state` and `cause`: one word is easier to look for than a word or an object.
mod state_and_cause {
    use headroom_control::resize::{Cause, PowerState};
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    struct Told {
        state: String,
        cause: Option<Cause>,
    }

    pub fn serialize<S: Serializer>(state: &PowerState, serializer: S) -> Result<S::Ok, S::Error> {
        let cause = match state {
            PowerState::Failed(cause) => Some(*cause),
            _ => None,
        };
        let state = state.name().to_owned();
        Told { state, cause }.serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PowerState, D::Error> {
        let reported = Told::deserialize(deserializer)?;
        Ok(match (reported.state.as_str(), reported.cause) {
            ("off", _) => PowerState::Off,
            ("booting", _) => PowerState::Booting,
            ("warming", _) => PowerState::Warming,
            ("serving", _) => PowerState::Serving,
            ("draining", _) => PowerState::Draining,
            ("stopping", _) => PowerState::Stopping,
            ("failed", Some(cause)) => PowerState::Failed(cause),
            (other, cause) => {
                return Err(D::Error::custom(format!(
                    "{other:?} with the cause {cause:?} is no state"
                )));
            }
        })
    }
}

/// Of latencies in microseconds what is told of them.
pub fn latency_ms(latencies: &Histogram<u64>) -> LatencyMs {
    if latencies.is_empty() {
        return LatencyMs::default();
    }
    let at = |percentile: f64| Some(latencies.value_at_percentile(percentile) as f64 / 1e3);
    LatencyMs {
        mean: Some(latencies.mean() / 1e3),
        p50: at(50.0),
        p95: at(95.0),
        p99: at(99.0),
        p999: at(99.9),
    }
}

/// What the balancer showed in a period.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BalancerTick {
    /// Requests that came; `None` where that is not known.
    pub arrivals: Option<u64>,
    /// Requests answered; `None` where it does not tell.
    pub completions: Option<u64>,
    /// Requests that failed; `None` where it does not tell.
    pub failures: Option<u64>,
    /// Their latencies, as far as it tells.
    pub latency_ms: LatencyMs,
    /// Why it cannot be relied on; `None` where it can.
    pub trouble: Option<String>,
    /// All latencies, in microseconds, for those of the whole run: not recorded.
    #[serde(skip)]
    pub latencies: Option<Histogram<u64>>,
}

impl BalancerTick {
    /// What a look showed.
    pub fn new(traffic: Option<Traffic>, trouble: Option<String>) -> Self {
        let Some(traffic) = traffic else {
            return Self {
                trouble,
                ..Self::default()
            };
        };
        Self {
            arrivals: Some(traffic.arrivals),
            completions: traffic.completions,
            failures: traffic.failures,
            latency_ms: traffic.latencies.as_ref().map(latency_ms).unwrap_or_default(),
            trouble,
            latencies: traffic.latencies,
        }
    }
}

/// One period.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tick {
    /// Counts from 0.
    pub period: u64,
    /// When it ended, from the start of the run.
    #[serde(rename = "at_s")]
    pub at: Seconds,
    /// How long it was.
    #[serde(rename = "length_s")]
    pub length: Seconds,
    /// What arrived at the whole cluster; `None` where it is not known.
    #[serde(rename = "arrival_rate_per_s")]
    pub arrival_rate: Option<PerSecond>,
    /// The balancer.
    pub balancer: BalancerTick,
    /// What was decided, and why.
    #[serde(rename = "decided")]
    pub resize: Resize,
    /// The servers.
    pub servers: Vec<ServerTick>,
    /// Energy since the start, where there is a model.
    #[serde(rename = "energy_estimated_j")]
    pub energy: Option<EnergyTotals>,
}

impl ServerTick {
    /// Its state in a word, with the cause where it failed: `failed (boot)`.
    pub fn state_words(&self) -> String {
        match self.state {
            PowerState::Failed(cause) => format!("failed ({})", cause_word(cause)),
            state => state.name().to_owned(),
        }
    }

    /// The mean length of its accept queue in the period, where its estimator was shown one.
    pub fn queue_mean(&self) -> Option<f64> {
        // Of a server that does not take requests any more its estimator says what it said last.
        let shown = self.counted.is_some() && self.before.takes_requests();
        let estimated = self.estimated.as_ref().filter(|_| shown)?;
        let mut numbers = estimated.numbers.iter();
        Some(numbers.find(|(name, _)| name == "queue_mean")?.1)
    }

    /// The share of the attempts at its accept queue that were dropped, where there were any.
    pub fn drop_ratio(&self) -> Option<Ratio> {
        let counted = self.counted.filter(|counted| counted.arrivals > 0.0)?;
        Some(Ratio::new(counted.drops / counted.arrivals))
    }
}

/// A cause of failure in a word: a bounded label set.
pub fn cause_word(cause: Cause) -> String {
    json!(cause).as_str().unwrap_or_default().to_owned()
}

impl Tick {
    /// How many servers are in a state, by its word.
    pub fn count(&self, state: &str) -> usize {
        self.servers
            .iter()
            .filter(|one| one.state.name() == state)
            .count()
    }

    /// The capacity of the servers that take requests, as far as it is known.
    pub fn capacity(&self) -> Option<f64> {
        let taking = self.servers.iter().filter(|one| one.state.takes_requests());
        let known: Vec<f64> = taking
            .filter_map(|one| one.capacity.value())
            .map(PerSecond::get)
            .collect();
        (!known.is_empty()).then(|| known.iter().sum())
    }

    /// Attempts that were dropped at the accept queues.
    pub fn drops(&self) -> f64 {
        self.servers
            .iter()
            .filter_map(|one| one.counted)
            .map(|counted| counted.drops)
            .sum()
    }

    /// Attempts at the accept queues.
    pub fn attempts(&self) -> f64 {
        self.servers
            .iter()
            .filter_map(|one| one.counted)
            .map(|counted| counted.arrivals)
            .sum()
    }

    /// Whether anything but the passing of time happened.
    pub fn is_news(&self) -> bool {
        self.servers
            .iter()
            .any(|one| one.state != one.before || one.command.is_some())
    }

    /// The period as a line for people.
    pub fn line(&self) -> String {
        let states: Vec<String> = self
            .servers
            .iter()
            .map(|one| format!("{} {}", one.name, one.state_words()))
            .collect();
        let number = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.1}"));
        format!(
            "{:>6.0} s  {}/s of {}/s  {}  {}: {}{}",
            self.at.get(),
            number(self.arrival_rate.map(PerSecond::get)),
            number(self.capacity()),
            states.join(", "),
            self.resize.reason.rule,
            self.resize.reason.text,
            self.balancer
                .trouble
                .as_ref()
                .map_or(String::new(), |why| format!("  [{why}]"))
        )
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use headroom_units::Joules;
    use serde_json::Value;

    /// The second that ends a second after the given one, with two servers: the first serves, the second is off.
    pub fn tick(period: u64, wanted: usize) -> Tick {
        let reason = |rule, text: &str, numbers: &[_]| Reason::new(rule, text.to_owned(), numbers);
        let server = |name: &str, state| ServerTick {
            name: name.to_owned(),
            state,
            before: state,
            for_s: 3.0,
            failures: 0,
            capacity: Capacity::Unknown,
            given: false,
            estimated: None,
            counted: None,
            powered: Some(state != PowerState::Off),
            answering: state != PowerState::Off,
            admission: Some(Admission::Out),
            in_flight: None,
            command: None,
            orders: Outcomes::default(),
            trouble: Vec::new(),
        };
        let numbers = [("capacity_per_s", 100.0), ("queue_mean", 2.5)];
        let at_s = period as f64 + 1.0;
        Tick {
            period,
            at: Seconds::new(at_s),
            length: Seconds::new(1.0),
            arrival_rate: Some(PerSecond::new(90.0)),
            balancer: BalancerTick {
                arrivals: Some(90),
                completions: Some(88),
                failures: Some(1),
                ..BalancerTick::default()
            },
            resize: Resize {
                servers: wanted,
                reason: reason("grow", "90.0/s of 100.0/s", &[]),
            },
            servers: vec![
                ServerTick {
                    capacity: Capacity::LowerBound(PerSecond::new(100.0)),
                    estimated: Some(reason("fast-start", "no overload observed yet", &numbers)),
                    counted: Some(Counted {
                        arrivals: 90.0,
                        accepts: 89.0,
                        drops: 0.5,
                        length_s: 1.0,
                    }),
                    admission: Some(Admission::Ready),
                    in_flight: Some(4),
                    ..server("web1", PowerState::Serving)
                },
                server("web2", PowerState::Off),
            ],
            energy: Some(EnergyTotals {
                spent: Joules::new(65.0 * at_s),
                always_on: Joules::new(125.0 * at_s),
            }),
        }
    }

    #[test]
    fn a_recorded_period_is_read_back_as_it_was() {
        let mut reported = tick(4, 2);
        reported.servers[1].before = PowerState::Booting;
        reported.servers[1].state = PowerState::Failed(Cause::Boot);
        reported.balancer.trouble = Some("gone".to_owned());
        let json = serde_json::to_value(&reported).unwrap();
        assert_eq!(serde_json::from_value::<Tick>(json.clone()).unwrap(), reported);
        // Names that scripts look for.
        assert_eq!(json["at_s"], 5.0);
        assert_eq!(json["arrival_rate_per_s"], 90.0);
        assert_eq!(json["balancer"]["trouble"], "gone");
        assert_eq!(json["decided"]["reason"]["rule"], "grow");
        assert_eq!(json["energy_estimated_j"]["spent"], 325.0);
        let [web1, web2] = json["servers"].as_array().unwrap().as_slice() else {
            panic!("{json}")
        };
        assert_eq!(
            (&web1["state"], &web1["cause"]),
            (&"serving".into(), &Value::Null)
        );
        assert_eq!(
            (&web2["state"], &web2["cause"]),
            (&"failed".into(), &"boot".into())
        );
        assert_eq!(web1["capacity"]["kind"], "lower-bound");
        assert_eq!(web1["queue"]["drops"], 0.5);
        for (state, cause) in [("failed", Value::Null), ("asleep", Value::Null)] {
            let mut wrong = json.clone();
            wrong["servers"][0]["state"] = state.into();
            wrong["servers"][0]["cause"] = cause;
            let error = serde_json::from_value::<Tick>(wrong).unwrap_err().to_string();
            assert!(error.contains("is no state"), "{error}");
        }
    }

    #[test]
    fn a_server_tells_its_queue_and_drops_only_where_they_were_seen() {
        let reported = tick(0, 1);
        let [web1, web2] = &reported.servers[..] else {
            panic!("two servers")
        };
        assert_eq!(web1.queue_mean(), Some(2.5));
        assert!((web1.drop_ratio().unwrap().as_percent() - 0.5 / 0.9).abs() < 1e-9);
        assert_eq!((web2.queue_mean(), web2.drop_ratio()), (None, None));
        // What an estimator held over from an earlier period is no queue of this one.
        let blind = ServerTick {
            counted: None,
            ..web1.clone()
        };
        assert_eq!(blind.queue_mean(), None);
        let line = reported.line();
        assert!(
            line.contains("90.0/s of 100.0/s  web1 serving, web2 off  grow"),
            "{line}"
        );
    }
}
