//! What is learned of the sizes of answers: of one route, and of routes that nobody asked for yet.

/// How far one answer can move the estimate of a route, in octaves: a single answer of another kind (an error page, an empty list) does
/// not make a large route a small one.
const MAX_STEP: f32 = 1.0;
/// The part of the distance that one answer moves an estimate, after the first ones.
const WEIGHT: f32 = 0.25;
/// New routes of a group before its sizes are said of one that is not known.
const MIN_ROUTES: u8 = 4;
/// The variance of a group is learned of this many routes, the last ones mostly.
const GROUP_WEIGHT: f32 = 0.125;

/// A size on the scale that sizes are averaged on: octaves of a byte.
pub(crate) fn octaves(bytes: u64) -> f32 {
    (bytes as f64 + 1.0).log2() as f32
}

/// The typical content of a route's answers: a moving geometric mean whose steps are bounded, so that it lies between a mean and a median.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Typical {
    octaves: f32,
    answers: u8,
}

impl Typical {
    pub(crate) fn learn(&mut self, bytes: u64) {
        let seen = octaves(bytes);
        if self.answers == 0 {
            self.octaves = seen;
        } else {
            let step = (seen - self.octaves) * WEIGHT;
            self.octaves += step.clamp(-MAX_STEP, MAX_STEP);
        }
        self.answers = self.answers.saturating_add(1);
    }

    /// In octaves of a byte; `None` where nothing was learned.
    pub(crate) fn get(self) -> Option<f32> {
        (self.answers > 0).then_some(self.octaves)
    }
}

/// The sizes of the first answers of routes that have their directory and extension in common. Routes that are known teach it nothing:
/// it is asked for those that are not.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Group {
    mean: f32,
    variance: f32,
    routes: u8,
}

impl Group {
    pub(crate) fn learn(&mut self, bytes: u64) {
        self.routes = self.routes.saturating_add(1);
        let weight = (1.0 / f32::from(self.routes)).max(GROUP_WEIGHT);
        let off = octaves(bytes) - self.mean;
        self.mean += weight * off;
        self.variance = (1.0 - weight) * (self.variance + weight * off * off);
    }

    /// What most of them lie between (two standard deviations about their mean), in octaves of a byte; `None` while too few are known.
    pub(crate) fn range(self) -> Option<(f32, f32)> {
        let about = 2.0 * self.variance.max(0.0).sqrt();
        (self.routes >= MIN_ROUTES).then_some((self.mean - about, self.mean + about))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(sizes: impl IntoIterator<Item = u64>) -> f32 {
        let mut typical = Typical::default();
        for bytes in sizes {
            typical.learn(bytes);
        }
        typical.get().unwrap()
    }

    #[test]
    fn one_size_is_learned_at_once_and_exactly() {
        assert_eq!(Typical::default().get(), None);
        assert_eq!(after([4096]), octaves(4096));
        assert_eq!(after([4096; 1000]), octaves(4096));
        assert!(octaves(4096) < octaves(4097) && octaves(65_536) < octaves(65_537));
    }

    #[test]
    fn one_other_answer_moves_it_by_an_octave_at_most_and_a_change_is_learned_in_a_few() {
        let large = || std::iter::repeat_n(100_000, 20);
        assert!((after(large().chain([0])) - (octaves(100_000) - 1.0)).abs() < 1e-4);
        let changed = after(large().chain(std::iter::repeat_n(100, 16)));
        assert!((changed - octaves(100)).abs() < 1.0, "{changed}");
    }

    #[test]
    fn a_group_knows_whether_its_sizes_agree() {
        let of = |sizes: &[u64]| {
            let mut group = Group::default();
            sizes.iter().for_each(|bytes| group.learn(*bytes));
            group.range()
        };
        assert_eq!(of(&[1000, 1000, 1000]), None);
        let (low, high) = of(&[1000, 1100, 900, 1000, 1050]).unwrap();
        assert!(octaves(700) < low && high < octaves(1400), "{low} {high}");
        let (low, high) = of(&[100, 1_000_000, 100, 1_000_000, 100, 1_000_000]).unwrap();
        assert!(low < octaves(100) && high > octaves(1_000_000));
    }
}
