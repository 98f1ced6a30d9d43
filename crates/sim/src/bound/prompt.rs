//! The least energy of schedules that serve promptly: work is done when it comes, nothing is held back, servers are whole, and a
//! boot costs what it costs.
//!
//! [`lower_bound`](super::lower_bound) lets a day's work wait for the night, bunches requests so that packages sleep between the
//! bunches, and switches parts of servers without a boot. This bound gives up these freedoms, and stays one that no such schedule
//! can go under:
//!
//! - **Promptness.** What came until W = 4 T ago is done. In a block of L seconds the work done is then what came in it, but for
//!   what came in the last W of it (which may wait) and of the one before (which may have). A schedule that leaves more than W
//!   of work waiting is not under this bound; one that keeps P95 within T in nearly every period does not.
//! - **Requests are there.** A request is at a server from its arrival for at least its size over the fastest core's speed. How
//!   many are there at least at each moment follows from the arrivals alone. Where m are there and a balancer spreads them over n
//!   servers no worse than at random, each is awake with the probability 1 - (1 - 1/n)^m, and while it is a package of it is up.
//!   (Where the balancer goes by weights or sizes this is left out.) So the bound is of the mean over how requests meet: a single
//!   run with few and large ones may by chance be some percent below it.
//! - **The SLO.** At most a share of the periods that is given is late. Of servers that are all alike, how many periods of a block are late
//!   with n of them is found by simulating them at full speed from empty, as the balancer's round robin spreads the requests: a
//!   lower speed or what was left over before can only make a request later. (That these can also move late requests into fewer
//!   periods is not proven to be impossible; no run was found that does.) The budget of late periods is shared by all blocks, at one
//!   price again. (Where everything on is late more often this is left out.)
//! - **Whole servers.** A server that serves at some moment of a block draws in the block at least what it draws asleep, and what
//!   work there is costs at least the convex envelope of those that serve. Which serve is found by dynamic programming over the
//!   blocks: the cheapest path of their numbers, kind by kind.
//! - **Boots.** Each beginning of such an episode costs a boot, each end a shutdown, beyond what an off server draws. As its first
//!   and last block may be served in part, what the server draws for a block with its package up is taken off at each. L is at most
//!   half of the time for which that pays for a boot, so that a pause within the blocks of an episode saves nothing.
//!
//! Work that may be done in one of two blocks is given a price, the same in all (weak duality: for any price the sum of the
//! blocks' least `energy - price · work`, and the price of all work, is at most the least energy). The best price is sought.

use super::envelope::{Node, nodes};
use super::trial::Trial;
use crate::balancer::Rule;
use crate::heap::Heap;
use crate::scenario::Scenario;
use headroom_units::Ratio;

/// How long work may wait, in targets of the SLO.
pub const WAIT_TARGETS: f64 = 4.0;
/// The length of a block, seconds, and the least of it in waits.
const BLOCK_S: f64 = 30.0;
const WAITS_A_BLOCK: f64 = 10.0;
/// More numbers of servers than this, over all kinds, are not searched.
const MAX_STATES: usize = 20_000;
/// Steps of the search for each price.
const PRICES: usize = 30;
/// The highest price of a late period that is tried, in joules that everything busy draws in a block.
const DEAREST: f64 = 4.0;
/// Requests that are told apart in number; more are taken for as many, which are at fewer servers.
const MAX_PRESENT: usize = 512;

/// Work that came in a block, in seconds at full speed, and what of it came within the wait before its end.
#[derive(Clone, Debug, Default)]
struct Block {
    came_s: f64,
    tail_s: f64,
    /// For each number of servers that serve, from one on: the mean share of them that is awake at least, and the periods that are
    /// late at least.
    awake: Vec<f64>,
    late: Vec<f64>,
}

/// The work of a run by blocks.
#[derive(Clone, Debug)]
pub(super) struct Blocks {
    length_s: f64,
    wait_s: f64,
    blocks: Vec<Block>,
    servers: usize,
    /// Of the fastest core.
    speed: f64,
    /// When the requests that are there at least go at the earliest.
    going: Heap<()>,
    now_s: f64,
    /// The block of now, and the time in it with so many requests there.
    at: usize,
    present_s: Vec<f64>,
    trial: Option<Trial>,
}

impl Blocks {
    /// Empty blocks for a run; `None` where work may wait for longer than a block can be.
    pub(super) fn new(scenario: &Scenario) -> Option<Self> {
        let wait_s = WAIT_TARGETS * scenario.service.target_ms / 1e3;
        let mut length_s = BLOCK_S.max(WAITS_A_BLOCK * wait_s);
        let (mut servers, mut speed) = (0, 0.0f64);
        for node in nodes(scenario) {
            if scenario.power_states.is_some() {
                length_s = length_s.min(node.break_even_s() / 2.0);
            }
            servers += 1;
            speed = speed.max(node.speed);
        }
        let run_s = scenario.duration().get();
        let count = (run_s / length_s).ceil().max(1.0);
        // All blocks are equally long.
        length_s = run_s / count;
        (wait_s < length_s).then(|| Self {
            length_s,
            wait_s,
            blocks: vec![Block::default(); count as usize],
            servers,
            speed,
            going: Heap::new(),
            now_s: 0.0,
            at: 0,
            present_s: vec![0.0; MAX_PRESENT + 1],
            trial: Trial::of(scenario),
        })
    }

    /// Takes a request; they come in order.
    pub(super) fn add(&mut self, at_s: f64, size_s: f64) {
        self.advance(at_s);
        self.going.push(at_s + size_s / self.speed, ());
        let last = self.blocks.len() - 1;
        let at = ((at_s / self.length_s) as usize).min(last);
        let block = &mut self.blocks[at];
        block.came_s += size_s;
        if let Some(trial) = &mut self.trial {
            trial.add(at_s, size_s);
        }
        if at_s >= (at + 1) as f64 * self.length_s - self.wait_s {
            block.tail_s += size_s;
        }
    }

    /// Lets time pass, with those that are there going at the earliest.
    fn advance(&mut self, to_s: f64) {
        while self.now_s < to_s {
            let block_ends_s = (self.at + 1) as f64 * self.length_s;
            let goes_s = self.going.first_key().unwrap_or(f64::INFINITY);
            let next_s = to_s.min(block_ends_s).min(goes_s);
            self.present_s[self.going.len().min(MAX_PRESENT)] += (next_s - self.now_s).max(0.0);
            self.now_s = self.now_s.max(next_s);
            if goes_s <= next_s {
                self.going.pop();
            }
            if block_ends_s <= next_s {
                self.end_block();
            }
        }
    }

    fn end_block(&mut self) {
        let whole_s: f64 = self.present_s.iter().sum();
        let awake = |servers: usize| {
            let elsewhere = 1.0 - 1.0 / servers as f64;
            let (mut empty, mut empty_s) = (1.0, 0.0);
            for present_s in &self.present_s {
                empty_s += present_s * empty;
                empty *= elsewhere;
            }
            1.0 - empty_s / whole_s
        };
        if whole_s > 0.0
            && let Some(block) = self.blocks.get_mut(self.at)
        {
            block.awake = (1..=self.servers).map(awake).collect();
            if let Some(trial) = &mut self.trial {
                let from_s = self.at as f64 * self.length_s;
                block.late = trial.late(from_s, from_s + self.length_s);
            }
        }
        self.present_s.fill(0.0);
        self.at += 1;
    }
}

/// Servers of one kind.
struct Kind {
    node: Node,
    count: usize,
}

/// The least power of work, convex: ends of its segments in work per second and watts, by rising price.
#[derive(Default)]
struct Hull {
    corners: Vec<(f64, f64)>,
    prices: Vec<f64>,
}

/// So many servers of each kind that serve.
struct State {
    /// How many.
    servers: usize,
    /// What they draw asleep and the others off, watts.
    standing_w: f64,
    /// What their packages draw beyond that while all are awake.
    up_w: f64,
    /// Of their work, with packages that sleep whenever no core of them works, and of their cores alone.
    whole: Hull,
    cores: Hull,
}

impl Hull {
    fn of(mut segments: Vec<(f64, f64)>) -> Self {
        segments.sort_by(|a, b| a.1.total_cmp(&b.1));
        let (mut work, mut watts) = (0.0, 0.0);
        let corners = segments.iter().map(|(length, price)| {
            work += length;
            watts += length * price;
            (work, watts)
        });
        Self {
            corners: corners.collect(),
            prices: segments.iter().map(|segment| segment.1).collect(),
        }
    }

    fn capacity(&self) -> f64 {
        self.corners.last().map_or(0.0, |corner| corner.0)
    }

    /// Watts at a rate of work that can be done.
    fn watts(&self, work: f64) -> f64 {
        let at = self.corners.partition_point(|corner| corner.0 < work);
        let (from, watts) = match at {
            0 => (0.0, 0.0),
            _ => self.corners[at - 1],
        };
        watts + (work - from) * self.prices.get(at).copied().unwrap_or(0.0)
    }

    /// The least power less the price of the work, over rates of work between these; infinite where that is more than can be done.
    fn least(&self, price: f64, low: f64, high: f64) -> f64 {
        let capacity = self.capacity();
        if low > capacity {
            return f64::INFINITY;
        }
        let pays = self.prices.partition_point(|of_segment| *of_segment < price);
        let best = pays.checked_sub(1).map_or(0.0, |last| self.corners[last].0);
        let work = best.clamp(low, high.min(capacity).max(low));
        self.watts(work) - price * work
    }
}

impl State {
    /// As [`Hull::least`], in a block in which this share of the servers is awake at least.
    fn least(&self, price: f64, (low, high): (f64, f64), awake: f64) -> f64 {
        let whole = self.whole.least(price, low, high);
        let cores = self.cores.least(price, low, high) + awake * self.up_w;
        self.standing_w + whole.max(cores)
    }
}

/// Servers by kinds, and the mixed radix in which their numbers are counted.
struct Fleet {
    kinds: Vec<Kind>,
    states: Vec<State>,
}

impl Fleet {
    fn of(scenario: &Scenario) -> Option<Self> {
        let mut kinds: Vec<Kind> = Vec::new();
        for node in nodes(scenario) {
            match kinds.iter_mut().find(|kind| kind.node == node) {
                Some(kind) => kind.count += 1,
                None => kinds.push(Kind { node, count: 1 }),
            }
        }
        let mut size = 1usize;
        for kind in &kinds {
            size = size
                .checked_mul(kind.count + 1)
                .filter(|size| *size <= MAX_STATES)?;
        }
        let states = (0..size).map(|at| state(&kinds, at)).collect();
        Some(Self { kinds, states })
    }

    /// Costs of the states after servers may have been switched.
    fn switched(&self, costs: &mut [f64], block_s: f64) {
        let mut stride = 1;
        for kind in &self.kinds {
            let radix = kind.count + 1;
            let edge_j = (kind.node.asleep_w + kind.node.up_w - kind.node.off_w) * block_s;
            let (up_j, down_j) = (kind.node.boot_j - edge_j, kind.node.shutdown_j - edge_j);
            let number = |at: usize| at / stride % radix;
            for at in 0..costs.len() {
                if number(at) > 0 {
                    costs[at] = costs[at].min(costs[at - stride] + up_j);
                }
            }
            for at in (0..costs.len()).rev() {
                if number(at) < kind.count {
                    costs[at] = costs[at].min(costs[at + stride] + down_j);
                }
            }
            stride *= radix;
        }
    }
}

/// The state of this number: so many of each kind serve, counted in mixed radix.
fn state(kinds: &[Kind], at: usize) -> State {
    let (mut rest, mut servers, mut standing_w, mut up_w) = (at, 0, 0.0, 0.0);
    let (mut whole, mut cores) = (Vec::new(), Vec::new());
    for kind in kinds {
        let on = rest % (kind.count + 1);
        rest /= kind.count + 1;
        servers += on;
        standing_w += on as f64 * kind.node.asleep_w + (kind.count - on) as f64 * kind.node.off_w;
        up_w += on as f64 * kind.node.up_w;
        if on > 0 {
            let of_all = |(length, price): &(f64, f64)| (length * on as f64, *price);
            whole.extend(kind.node.segments.iter().map(of_all));
            cores.extend(kind.node.of_cores.iter().map(of_all));
        }
    }
    State {
        servers,
        standing_w,
        up_w,
        whole: Hull::of(whole),
        cores: Hull::of(cores),
    }
}

impl Blocks {
    /// The least energy of a schedule that serves this work promptly, joules; `None` where all servers together cannot, the run is
    /// too short for servers to be switched within it, or the kinds of servers are too many to be searched.
    pub(super) fn least_j(mut self, scenario: &Scenario, late: Ratio) -> Option<f64> {
        self.advance(scenario.duration().get());
        let switched = scenario.power_states.is_some();
        // Servers go between blocks.
        if switched && self.blocks.len() < 2 {
            return None;
        }
        let fleet = Fleet::of(scenario)?;
        let all = &fleet.states.last()?.whole;
        let at_random = matches!(
            scenario.balancer.rule,
            Rule::RoundRobin {} | Rule::LeastConnections {}
        );
        let length_s = self.length_s;
        // Between these the work of a block lies, a second.
        let mut before = 0.0;
        let between = |block: &Block| {
            let low = (block.came_s - block.tail_s) / length_s;
            let high = (block.came_s + std::mem::replace(&mut before, block.tail_s)) / length_s;
            (low, high)
        };
        let between: Vec<(f64, f64)> = self.blocks.iter().map(between).collect();
        if between.iter().any(|(low, _)| *low > all.capacity()) {
            return None;
        }
        let due_s = self.blocks.iter().map(|block| block.came_s).sum::<f64>()
            - self.blocks.last().map_or(0.0, |block| block.tail_s);
        let late_allowed = late.get() * scenario.periods() as f64;
        let at_prices = |price: f64, of_late: f64| {
            let last = fleet.states.len() - 1;
            let mut costs = vec![f64::INFINITY; fleet.states.len()];
            costs[last] = 0.0;
            for (at, (between, block)) in between.iter().zip(&self.blocks).enumerate() {
                if at > 0 && switched {
                    fleet.switched(&mut costs, length_s);
                }
                for (cost, state) in costs.iter_mut().zip(&fleet.states) {
                    let of = |each: &[f64]| {
                        let at = state.servers.checked_sub(1);
                        at.and_then(|at| each.get(at).copied()).unwrap_or(0.0)
                    };
                    let awake = if at_random { of(&block.awake) } else { 0.0 };
                    *cost += state.least(price, *between, awake) * length_s + of_late * of(&block.late);
                }
            }
            costs.into_iter().fold(f64::INFINITY, f64::min) + price * due_s - of_late * late_allowed
        };
        // Concave in both prices.
        let dearest_price = all.prices.last().copied().unwrap_or(0.0) * 1.5;
        let everything_late: f64 = self.blocks.iter().filter_map(|block| block.late.last()).sum();
        let dearest_late = match self.trial {
            // Where not even everything on keeps it, nothing is asked of lateness.
            Some(_) if everything_late <= late_allowed => {
                DEAREST * length_s * all.corners.last().map_or(0.0, |corner| corner.1)
            }
            _ => 0.0,
        };
        let (price, _) = highest(dearest_price, |price| at_prices(price, 0.0));
        let (of_late, _) = highest(dearest_late, |of_late| at_prices(price, of_late));
        let (_, best) = highest(dearest_price, |price| at_prices(price, of_late));
        let without = at_prices(price, 0.0);
        Some(best.max(without))
    }
}

/// Where a concave function of what is between zero and this is the highest, and how high it is there, about.
fn highest(most: f64, of: impl Fn(f64) -> f64) -> (f64, f64) {
    let (mut low, mut high) = (0.0, most);
    let mut best = (0.0, of(0.0));
    for _ in 0..PRICES {
        if high <= low {
            break;
        }
        let third = (high - low) / 3.0;
        let (one, other) = (low + third, high - third);
        let (at_one, at_other) = (of(one), of(other));
        for (at, value) in [(one, at_one), (other, at_other)] {
            if value > best.1 {
                best = (at, value);
            }
        }
        if at_one < at_other {
            low = one
        } else {
            high = other
        }
    }
    best
}
