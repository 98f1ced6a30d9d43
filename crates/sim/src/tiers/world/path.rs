//! The path of a request: batcher, worker, cache, tiers, and back.

use super::super::users::Stage;
use super::{TIERS, TiersStep, World};
use crate::server::Job;
use crate::world::Controller;
use headroom_units::Seconds;

impl World<'_> {
    /// A user asks.
    pub(super) fn send(&mut self, user: u32) {
        let now_s = self.now_s;
        if user >= self.present {
            return self.think(user);
        }
        self.count();
        let one = &mut self.users.all[user as usize];
        one.sent_s = now_s;
        self.counts.arrivals += 1;
        self.in_flight += 1;
        if self.batcher.holds() && !one.asked.writes {
            one.stage = Stage::Held;
            self.batcher.hold(one.asked.key, user);
        } else {
            self.admit(user, Stage::ToLookUp);
        }
    }

    /// An interval ends: the groups go, and where a period is an interval, it ends too.
    pub(super) fn release(&mut self, law: &mut dyn Controller, sink: &mut dyn FnMut(&TiersStep<'_>)) {
        self.count();
        if let Some(batch) = self.batcher.release(self.now_s) {
            self.counts.batches += 1;
            self.counts.batched += u64::from(batch.requests);
            self.counts.groups += batch.groups.len() as u64;
            self.counts.waiting_s += batch.waited_s;
            for group in batch.groups {
                for user in &group {
                    let one = &mut self.users.all[*user as usize];
                    one.batch = Some(batch.number);
                    self.counts.held_s += self.now_s - one.sent_s;
                }
                let [first, rest @ ..] = &group[..] else { continue };
                for user in rest {
                    self.users.all[*user as usize].stage = Stage::Following;
                }
                self.users.all[*first as usize].followers.extend_from_slice(rest);
                self.admit(*first, Stage::ToLookUp);
            }
        }
        if self.scenario.decide_each_batch {
            self.end_period(law, sink);
        }
    }

    /// A request goes on as soon as there is a worker for it.
    fn admit(&mut self, user: u32, stage: Stage) {
        self.users.all[user as usize].stage = stage;
        match self.free_workers > 0 && self.waiting.is_empty() {
            true => self.begin(user),
            false => self.waiting.push_back(user),
        }
    }

    /// Workers that are free take who waits.
    pub(super) fn take_waiting(&mut self) {
        while self.free_workers > 0 {
            let Some(user) = self.waiting.pop_front() else {
                return;
            };
            self.begin(user);
        }
    }

    /// A worker takes a request.
    fn begin(&mut self, user: u32) {
        self.free_workers -= 1;
        let one = &mut self.users.all[user as usize];
        one.working = true;
        match one.stage {
            Stage::ToHit => self.hit(user),
            _ => self.look_up(user),
        }
    }

    fn look_up(&mut self, user: u32) {
        let asked = &self.users.all[user as usize].asked;
        let (key, shared) = (asked.key, asked.shared);
        if !asked.writes {
            if self
                .cache
                .as_mut()
                .is_some_and(|cache| cache.look_up(self.now_s, key))
            {
                self.counts.lookups += 1;
                self.counts.hits += 1;
                self.hit(user);
                return self.serve_followers(user);
            }
            if self.scenario.collapse && shared {
                match self.fetching.get(&key).copied() {
                    Some(fetcher) => return self.follow(user, fetcher),
                    None => {
                        self.fetching.insert(key, user);
                    }
                }
            }
            self.counts.lookups += 1;
        }
        self.users.all[user as usize].fetching_s = self.now_s;
        self.enter(user, 0);
    }

    /// A request, and all that follow it, wait for what another fetches.
    fn follow(&mut self, user: u32, fetcher: u32) {
        let one = &mut self.users.all[user as usize];
        one.stage = Stage::Following;
        let behind = std::mem::take(&mut one.followers);
        let followers = &mut self.users.all[fetcher as usize].followers;
        followers.push(user);
        followers.extend(behind);
        self.free_worker(user);
    }

    fn hit(&mut self, user: u32) {
        let one = &mut self.users.all[user as usize];
        one.stage = Stage::Hit;
        let work_s = one.asked.hit_s;
        self.arrive(user, 0, work_s);
    }

    /// Fetched at this tier, or in the delay behind them all.
    fn enter(&mut self, user: u32, tier: usize) {
        let one = &mut self.users.all[user as usize];
        if tier < TIERS {
            one.stage = Stage::AtTier(tier);
            let work_s = one.asked.work_s[tier];
            match work_s > 0.0 {
                true => self.arrive(user, tier, work_s),
                false => self.enter(user, tier + 1),
            }
        } else if one.asked.delay_s > 0.0 {
            one.stage = Stage::Delayed;
            let until_s = self.now_s + one.asked.delay_s;
            self.delayed.push(until_s, user);
        } else {
            self.fetched(user);
        }
    }

    fn arrive(&mut self, user: u32, tier: usize, work_s: f64) {
        let now_s = self.now_s;
        self.tier_requests[tier] += 1;
        let woken_s = self.run_cores(tier, self.tiers[tier].jobs() + 1);
        let job = Job { arrived: now_s, user };
        self.due_s[tier] = self.tiers[tier].arrive(now_s, work_s + woken_s, job);
    }

    /// With so many requests at a tier; the work for which a core that had to wake is late.
    fn run_cores(&mut self, tier: usize, jobs: usize) -> f64 {
        self.busy[tier] = jobs.min(self.scenario.cores()[tier] as usize);
        self.machine.run(self.now_s, self.busy.iter().sum())
    }

    /// The request that is due at a tier is done there.
    pub(super) fn tier_done(&mut self, tier: usize) {
        let Some((job, due_s)) = self.tiers[tier].complete(self.now_s) else {
            self.due_s[tier] = f64::INFINITY;
            return;
        };
        self.due_s[tier] = due_s;
        self.run_cores(tier, self.tiers[tier].jobs());
        match self.users.all[job.user as usize].stage {
            Stage::Hit => self.answer(job.user),
            _ => self.enter(job.user, tier + 1),
        }
    }

    /// A request has been fetched: it is stored, answered, and so is who waited for it.
    pub(super) fn fetched(&mut self, user: u32) {
        let one = &mut self.users.all[user as usize];
        let asked = &mut one.asked;
        for key in std::mem::take(&mut asked.changes) {
            self.changed_s.insert(key, self.now_s);
            if let Some(cache) = &mut self.cache {
                cache.remove(key);
            }
        }
        if asked.shared {
            // What was changed while it was fetched may be the old one.
            let changed_s = self.changed_s.get(&asked.key).copied();
            let is_new = changed_s.is_none_or(|at_s| at_s <= one.fetching_s);
            if let Some(cache) = self.cache.as_mut().filter(|_| is_new) {
                cache.store(self.now_s, asked.key, asked.bytes);
            }
            if self.scenario.collapse {
                self.fetching.remove(&asked.key);
            }
        }
        self.serve_followers(user);
        self.answer(user);
    }

    /// Who waited for what a request found or fetched is served from that.
    fn serve_followers(&mut self, user: u32) {
        let followers = std::mem::take(&mut self.users.all[user as usize].followers);
        self.counts.lookups += followers.len() as u64;
        self.counts.hits += followers.len() as u64;
        for follower in followers {
            self.admit(follower, Stage::ToHit);
        }
    }

    fn free_worker(&mut self, user: u32) {
        if std::mem::take(&mut self.users.all[user as usize].working) {
            self.free_workers += 1;
        }
    }

    /// The answer is there, and its user thinks.
    fn answer(&mut self, user: u32) {
        self.count();
        self.free_worker(user);
        let one = &mut self.users.all[user as usize];
        let response_s = self.now_s - one.sent_s;
        let batch = one.batch.take();
        self.in_flight -= 1;
        self.counts.completions += 1;
        self.counts.response_s += response_s;
        self.latencies.record(Seconds::new(response_s));
        self.all_latencies.record(Seconds::new(response_s));
        if let Some(processing_s) = batch.and_then(|number| self.batcher.answered(self.now_s, number)) {
            self.counts.answered += 1;
            self.counts.processing_s += processing_s;
        }
        self.think(user);
    }
}
