//! How slow a backend's link is, from how the latencies of its classes differ.
//!
//! A slow link makes large answers late and small ones hardly, slow cores all of them: with the mean over all classes alike, which of the two
//! it is shows in the classes. For each of some factors on the link's time the factor on the processor time is sought at which the mean is what
//! was observed, and how far each class then is from what was seen of it; the sum over the periods, of which older ones count less, is the
//! evidence against that factor. What is believed stays until another factor has decidedly less against it: where a backend is asked for one
//! class, or for classes that load both alike, nothing tells the two apart, and slow cores stand for both.

use super::gathered::Seen;
use super::speed::{FORGETS, MAX_BUSY, Slowness, Told, faded};

/// The factors on the link's time that are told apart: each a fifth more than the one before.
const COUNT: usize = 13;
/// So many of them double it.
const PER_DOUBLING: f64 = 4.0;
/// The share of the evidence that the next period keeps.
const KEEPS: f64 = 0.95;
/// A class counts with its requests in a period, at most with so many: a model is a few percent off, however many there are.
const MOST_REQUESTS: u64 = 20;
/// The most that one of them says: that its class took e times as long as the model has it, or an e-th. What is further off, as requests that a
/// machine held while it stood still, is of neither link nor cores.
const MOST: f64 = 1.0;
/// By how much less must be against another factor. With enough requests of each class it is one of which the latency is off by a third.
const DECIDEDLY: f64 = 40.0;
/// By how much less, where that factor is nearer to the figures.
const NEARER: f64 = 12.0;
/// So many factors further it goes in a period at most.
const STRIDE: usize = 2;
/// A period in which the factors differ by less says nothing of the link.
const SILENT: f64 = 0.3;

/// What is against each factor.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SlowLink([f64; COUNT]);

fn factor(at: usize) -> f64 {
    (at as f64 / PER_DOUBLING).exp2()
}

impl SlowLink {
    /// The factor after a steady period, from the one before it.
    pub(super) fn learned(&mut self, before: f64, told: &Told) -> f64 {
        let period: [f64; COUNT] = std::array::from_fn(|at| misfit(told, factor(at)));
        for (against, new) in self.0.iter_mut().zip(period) {
            *against = *against * KEEPS + new;
        }
        let [least, most] = [f64::min, f64::max].map(|of| period.into_iter().reduce(of).unwrap_or(0.0));
        // A link that is asked for what it is slow at no more is never seen to be quick again. Of one class any factor has the latency that was observed, as far as that of the cores may go.
        if most - least < SILENT || told.seen.len() < 2 {
            return faded(before, FORGETS);
        }
        let believed = (0..COUNT)
            .min_by(|one, two| {
                let far = |at: usize| (factor(at) / before).ln().abs();
                far(*one).total_cmp(&far(*two))
            })
            .unwrap_or(0);
        // No link carries more than it has time for, and what it would not have carried in time has no mean.
        let may_be = |at: &usize| {
            let carried = told.served.link.get().max(told.load.link.get()) * factor(*at);
            *at <= believed || carried < MAX_BUSY
        };
        let best = (0..COUNT)
            .filter(may_be)
            .min_by(|one, two| self.0[*one].total_cmp(&self.0[*two]))
            .unwrap_or(believed);
        let enough = match best < believed {
            true => NEARER,
            false => DECIDEDLY,
        };
        match self.0[believed] - self.0[best] > enough {
            true => factor(best.clamp(believed.saturating_sub(STRIDE), believed + STRIDE)),
            false => before,
        }
    }
}

/// How far the classes are from what the model says with a link so slow, of latencies that the path does not hide.
fn misfit(told: &Told, link: f64) -> f64 {
    let predicted = told.predicted(Slowness {
        cpu: told.cpu(link),
        link,
    });
    let of_class = |seen: &&Seen| {
        let (observed, count) = (told.latency(seen), seen.completions.min(MOST_REQUESTS));
        let tells = observed > 0.0 && observed >= told.path.get();
        tells.then(|| (predicted(seen) / observed).ln().powi(2).min(MOST) * count as f64)
    };
    told.seen.iter().filter_map(of_class).sum()
}

#[cfg(test)]
mod tests {
    use super::super::gathered::Enough;
    use super::super::speed::learned;
    use super::super::speed::tests::machine;
    use super::*;
    use headroom_physics::serving::RequestCost;
    use headroom_units::Seconds;

    /// 300 small and 15 large answers in a second, of which the link carries 15 MB and the cores are busy for 0.43 of 2 s, on a machine so slow.
    fn second(slow: Slowness, large: u64) -> Enough {
        let class = |cpu_ms: f64, bytes: f64, count: u64| Seen {
            cost: RequestCost {
                cpu: Seconds::from_millis(cpu_ms),
                bytes,
            },
            arrivals: count,
            completions: count,
            mean: Some(Seconds::ZERO),
        };
        let mut enough = Enough {
            seen: vec![class(1.0, 1e3, 300), class(8.0, 1e6, large)],
            length: Seconds::new(1.0),
            settled: true,
        };
        let machine = machine();
        let told = Told::of(&machine, &enough, Seconds::ZERO).unwrap();
        let means: Vec<f64> = told.seen.iter().map(|seen| told.predicted(slow)(seen)).collect();
        for (seen, mean) in enough.seen.iter_mut().zip(means) {
            seen.mean = Some(Seconds::new(mean));
        }
        enough
    }

    fn after(periods: usize, large: u64, before: Slowness, slow: Slowness) -> Slowness {
        let mut links = SlowLink::default();
        (0..periods).fold(before, |before, _| {
            learned(
                before,
                &mut links,
                &machine(),
                &second(slow, large),
                Seconds::ZERO,
            )
        })
    }

    fn slow(cpu: f64, link: f64) -> Slowness {
        Slowness { cpu, link }
    }

    fn is_about(found: Slowness, slow: Slowness) -> bool {
        (found.cpu / slow.cpu).ln().abs() < 0.1 && (found.link / slow.link).ln().abs() < 0.2
    }

    #[test]
    fn a_slow_link_and_slow_cores_are_told_apart() {
        for truth in [
            slow(1.0, 1.0),
            slow(1.0, 4.0),
            slow(2.0, 1.0),
            slow(2.0, 4.0),
            slow(0.8, 1.0),
        ] {
            let found = after(60, 15, slow(1.0, 1.0), truth);
            assert!(is_about(found, truth), "{truth:?}: {found:?}");
        }
    }

    #[test]
    fn one_class_tells_nothing_of_the_link() {
        let found = after(60, 0, slow(1.0, 1.0), slow(2.0, 4.0));
        assert!(found.link == 1.0 && found.cpu > 1.9, "{found:?}");
    }

    #[test]
    fn what_a_machine_held_while_it_stood_still_is_no_slow_link() {
        for large in [0, 15] {
            let mut links = SlowLink::default();
            let mut now = slow(1.0, 1.0);
            for period in 0..40 {
                let mut enough = second(slow(1.0, 1.0), large);
                if period < 3 {
                    let held = |mean: Seconds| mean + Seconds::new(8.0);
                    enough
                        .seen
                        .iter_mut()
                        .for_each(|seen| seen.mean = seen.mean.map(held));
                }
                now = learned(now, &mut links, &machine(), &enough, Seconds::ZERO);
                assert!(now.link < 1.5, "{large}, {period}: {now:?}");
            }
            assert_eq!(now.link, 1.0, "{large}: {now:?}");
        }
    }

    #[test]
    fn a_slow_link_of_which_nothing_tells_any_more_fades() {
        let mut links = SlowLink::default();
        let mut now = slow(1.0, 1.0);
        for period in 0..600 {
            let enough = second(slow(1.0, 4.0), if period < 60 { 15 } else { 0 });
            now = learned(now, &mut links, &machine(), &enough, Seconds::ZERO);
            assert!(period != 59 || is_about(now, slow(1.0, 4.0)), "{now:?}");
        }
        assert!(now.link < 1.2, "{now:?}");
    }

    #[test]
    fn a_link_that_is_quick_again_is_believed_after_some_periods() {
        let mut links = SlowLink::default();
        let mut now = slow(1.0, 1.0);
        for (truth, periods) in [(4.0, 60), (1.0, 60)] {
            for _ in 0..periods {
                let period = second(slow(1.0, truth), 15);
                now = learned(now, &mut links, &machine(), &period, Seconds::ZERO);
            }
            assert!(is_about(now, slow(1.0, truth)), "{truth}: {now:?}");
        }
    }

    #[test]
    fn what_is_a_little_off_is_no_slow_link() {
        let mut links = SlowLink::default();
        let mut now = slow(1.0, 1.0);
        for period in 0..200 {
            let mut enough = second(slow(1.0, 1.0), 15);
            // A tenth more or less for the large ones, by turns, and a tenth more in any case.
            let by = if period % 2 == 0 { 1.2 } else { 1.0 };
            enough.seen[1].mean = enough.seen[1].mean.map(|mean| mean * by);
            now = learned(now, &mut links, &machine(), &enough, Seconds::ZERO);
            assert_eq!(now.link, 1.0, "{period}: {now:?}");
        }
    }
}
