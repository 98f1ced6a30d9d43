//! Who asks, and how far each request is.

use super::content::{Asked, Content};
use super::scenario::UserFigures;
use headroom_workload::Distribution;
use headroom_workload::auction::Visitor;
use headroom_workload::random::Rng;

/// How far a user's request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// No request: the user is not there.
    Gone,
    /// No request: the user thinks.
    Thinking,
    /// Held by the batcher.
    Held,
    /// It waits for a worker, and looks in the cache then.
    ToLookUp,
    /// It waits for a worker, and is served from what another fetched.
    ToHit,
    /// It waits for what another fetches.
    Following,
    /// Served from memory, at the front.
    Hit,
    /// Fetched: at this tier.
    AtTier(usize),
    /// Fetched: in the delay.
    Delayed,
}

/// A user and the request that the user waits for.
pub(super) struct User {
    rng: Rng,
    visitor: Option<Visitor>,
    pub(super) stage: Stage,
    pub(super) sent_s: f64,
    pub(super) asked: Asked,
    pub(super) batch: Option<u32>,
    /// When its fetch began.
    pub(super) fetching_s: f64,
    /// Whether it has a worker.
    pub(super) working: bool,
    /// Who is served from what it fetches.
    pub(super) followers: Vec<u32>,
}

/// All users.
pub(super) struct Users {
    pub(super) all: Vec<User>,
    think: Distribution,
    counts: Vec<u32>,
    hold_s: f64,
    seed: u64,
}

impl Users {
    pub(super) fn new(figures: &UserFigures, seed: u64) -> Self {
        Self {
            all: Vec::new(),
            think: figures.think.scaled(figures.think_s),
            counts: figures.counts.clone(),
            hold_s: figures.hold_s,
            seed,
        }
    }

    /// How many there are at the start of the step with this number, counted from 0; `None` where there is no such step.
    pub(super) fn count_of(&self, step: usize) -> Option<u32> {
        self.counts.get(step).copied()
    }

    /// When that step begins; infinite where there is none.
    pub(super) fn step_s(&self, step: usize) -> f64 {
        match step < self.counts.len() {
            true => step as f64 * self.hold_s,
            false => f64::INFINITY,
        }
    }

    /// As many users as there are ever to be in this step have their streams.
    pub(super) fn grow(&mut self, count: u32, content: &Content) {
        for number in self.all.len() as u32..count {
            self.all.push(User {
                rng: Rng::of_user(self.seed, number),
                visitor: content.visitor(self.seed, number),
                stage: Stage::Gone,
                sent_s: 0.0,
                asked: Asked::default(),
                batch: None,
                fetching_s: 0.0,
                working: false,
                followers: Vec::new(),
            });
        }
    }

    /// How long a user thinks, and what it asks for then.
    pub(super) fn think(&mut self, user: u32, content: &Content) -> f64 {
        let user = &mut self.all[user as usize];
        let think_s = self.think.sample(&mut user.rng);
        user.asked = content.draw(&mut user.rng, user.visitor.as_mut());
        user.stage = Stage::Thinking;
        think_s
    }
}
