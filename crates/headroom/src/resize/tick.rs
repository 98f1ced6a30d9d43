//! One period, as it is told to whoever watches.

use super::balancer::{Admission, Traffic};
use super::energy::Energy;
use super::queues::Counted;
use headroom_control::capacity::Capacity;
use headroom_control::decision::Reason;
use headroom_control::resize::{Command, PowerState, Resize};
use headroom_units::{PerSecond, Seconds};
use serde_json::{Value, json};

/// One server in a period.
#[derive(Clone, Debug)]
pub struct ServerTick {
    /// Its name.
    pub name: String,
    /// Its state at the period's end.
    pub state: PowerState,
    /// Its state before.
    pub before: PowerState,
    /// Seconds for which it has been in it.
    pub for_s: f64,
    /// Failures in a row.
    pub failures: u32,
    /// Its capacity.
    pub capacity: Capacity,
    /// Why that is its capacity; `None` where it is given.
    pub estimated: Option<Reason>,
    /// What was counted at its accept queue.
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
    /// Orders to its power switch that were carried out, and that failed, since the start.
    pub orders: (u64, u64),
    /// What is wrong with it or with what is known of it.
    pub trouble: Vec<String>,
}

/// One period.
#[derive(Clone, Debug)]
pub struct Tick {
    /// Counts from 0.
    pub period: u64,
    /// When it ended, from the start of the run.
    pub at: Seconds,
    /// How long it was.
    pub length: Seconds,
    /// What arrived at the whole cluster; `None` where it is not known.
    pub arrival_rate: Option<PerSecond>,
    /// Requests as the balancer counts them.
    pub traffic: Option<Traffic>,
    /// What was decided, and why.
    pub resize: Resize,
    /// The servers.
    pub servers: Vec<ServerTick>,
    /// Why the balancer cannot be relied on; `None` where it can.
    pub balancer_trouble: Option<String>,
    /// Energy since the start, where there is a model.
    pub energy: Option<Energy>,
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

    /// The period as JSON: what was seen, decided and done, and why.
    pub fn json(&self) -> Value {
        let servers: Vec<Value> = self
            .servers
            .iter()
            .map(|one| {
                json!({
                    "name": one.name,
                    "state": one.state.name(),
                    "cause": match one.state {
                        PowerState::Failed(cause) => json!(cause),
                        _ => Value::Null,
                    },
                    "for_s": one.for_s,
                    "failures": one.failures,
                    "capacity": one.capacity,
                    "estimated": one.estimated,
                    "queue": one.counted.map(|counted| json!({
                        "arrivals": counted.arrivals,
                        "accepts": counted.accepts,
                        "drops": counted.drops,
                        "length_s": counted.length_s,
                    })),
                    "powered": one.powered,
                    "answering": one.answering,
                    "admission": one.admission,
                    "in_flight": one.in_flight,
                    "command": one.command,
                    "trouble": one.trouble,
                })
            })
            .collect();
        json!({
            "period": self.period,
            "at_s": self.at,
            "length_s": self.length,
            "arrival_rate_per_s": self.arrival_rate,
            "balancer": {
                "arrivals": self.traffic.as_ref().map(|traffic| traffic.arrivals),
                "completions": self.traffic.as_ref().and_then(|traffic| traffic.completions),
                "failures": self.traffic.as_ref().and_then(|traffic| traffic.failures),
                "trouble": self.balancer_trouble,
            },
            "decided": self.resize,
            "servers": servers,
            "energy_estimated_j": self.energy.map(|energy| json!({
                "spent": energy.spent,
                "always_on": energy.always_on,
            })),
        })
    }

    /// The period as a line for people.
    pub fn line(&self) -> String {
        let states: Vec<String> = self
            .servers
            .iter()
            .map(|one| {
                let state = match one.state {
                    PowerState::Failed(cause) => {
                        format!("failed({})", json!(cause).as_str().unwrap_or_default())
                    }
                    state => state.name().to_owned(),
                };
                format!("{} {state}", one.name)
            })
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
            self.balancer_trouble
                .as_ref()
                .map_or(String::new(), |why| format!("  [{why}]"))
        )
    }
}
