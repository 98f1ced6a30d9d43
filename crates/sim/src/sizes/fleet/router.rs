//! Where a request goes.

use headroom_control::placement::Routes;

/// What chooses a machine for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Routing {
    /// The next in turn.
    RoundRobin,
    /// The one with the fewest requests.
    LeastConnections,
    /// What the law of [`Lever::Placement`](headroom_units::Lever::Placement) says of the class; the one with the fewest requests where it
    /// says nothing, and of requests whose size is not known.
    ByLaw,
}

/// Weight of a new answer in what is known of its route's size.
const NEWEST: f64 = 0.125;

/// A router: what is in force, whose turn it is, and what it learned of the sizes of routes.
#[derive(Clone, Debug)]
pub(super) struct Router {
    routing: Routing,
    bounds_bytes: Vec<u64>,
    /// Mean content of each route's answers; `None` before its first answer.
    sizes: Vec<Option<f64>>,
    routes: Routes,
    /// Of each class and machine, by how much it is behind its weight.
    behind: Vec<Vec<i64>>,
    turn: usize,
}

impl Router {
    pub(super) fn new(routing: Routing, bounds_bytes: &[u64], machines: usize, routes: usize) -> Self {
        Self {
            routing,
            bounds_bytes: bounds_bytes.to_vec(),
            sizes: vec![None; routes],
            routes: Routes::default(),
            behind: vec![vec![0; machines]; bounds_bytes.len() + 1],
            turn: 0,
        }
    }

    /// The class of a route by what is known of it; the last of all, one more than there are of known size, where nothing is.
    pub(super) fn class(&self, route: usize) -> usize {
        let known = self.bounds_bytes.len() + 1;
        self.sizes[route].map_or(known, |size| {
            self.bounds_bytes.partition_point(|bound| (*bound as f64) < size)
        })
    }

    /// An answer of a route came.
    pub(super) fn learn(&mut self, route: usize, bytes: f64) {
        let size = &mut self.sizes[route];
        *size = Some(size.map_or(bytes, |before| before + NEWEST * (bytes - before)));
    }

    /// What a law decided; `None` where each request is to go where the fewest are.
    pub(super) fn put_in_force(&mut self, routes: Option<Routes>) {
        let routes = routes.unwrap_or_default();
        if routes.weights != self.routes.weights {
            self.behind.iter_mut().for_each(|row| row.fill(0));
        }
        self.routes = routes;
    }

    /// Whether a law's routes are in force.
    pub(super) fn places(&self) -> bool {
        !self.routes.weights.is_empty()
    }

    /// The machine for a request of a class; `None` where none takes requests.
    pub(super) fn choose(
        &mut self,
        class: usize,
        takes: &[bool],
        in_flight: impl Fn(usize) -> usize,
    ) -> Option<usize> {
        let by_weight = match self.routing {
            Routing::RoundRobin => return self.next_in_turn(takes),
            Routing::LeastConnections => None,
            Routing::ByLaw => self.by_route(class, takes, &in_flight),
        };
        by_weight.or_else(|| self.fewest(takes, in_flight))
    }

    fn next_in_turn(&mut self, takes: &[bool]) -> Option<usize> {
        let count = takes.len();
        let at = (0..count)
            .map(|step| (self.turn + step) % count)
            .find(|at| takes[*at])?;
        self.turn = at + 1;
        Some(at)
    }

    /// Of equals the next in turn, so that an idle fleet's work is not all its first machine's.
    fn fewest(&mut self, takes: &[bool], in_flight: impl Fn(usize) -> usize) -> Option<usize> {
        let count = takes.len();
        let in_order = (0..count).map(|step| (self.turn + step) % count);
        let at = in_order.filter(|at| takes[*at]).min_by_key(|at| in_flight(*at))?;
        self.turn = at + 1;
        Some(at)
    }

    /// Each machine with room by its weight, as evenly as can be: the one that is furthest behind; where none with a weight has room, the one
    /// of all whose requests are the smallest share of its bound. As the gateway does it.
    fn by_route(
        &mut self,
        class: usize,
        takes: &[bool],
        in_flight: &impl Fn(usize) -> usize,
    ) -> Option<usize> {
        let weights = self.routes.weights.get(class)?;
        if weights.iter().all(|weight| *weight == 0) {
            return None;
        }
        let behind = self.behind.get_mut(class)?;
        let bounds = self.routes.most_in_flight.get(class);
        let bound = |at: usize| {
            let bounds = bounds.map(|bounds| bounds.get(at).copied().unwrap_or(0));
            bounds.map_or(usize::MAX, |bound| bound as usize)
        };
        let weight = |at: usize| i64::from(weights.get(at).copied().unwrap_or(0));
        let has_room = |at: &usize| takes[*at] && weight(*at) > 0 && in_flight(*at) < bound(*at);
        let with_room = (0..takes.len()).filter(has_room);
        let sum: i64 = with_room.clone().map(weight).sum();
        with_room.clone().for_each(|at| behind[at] += weight(at));
        if let Some(at) = with_room.max_by_key(|at| (behind[*at], std::cmp::Reverse(*at))) {
            behind[at] -= sum;
            return Some(at);
        }
        bounds?;
        let share = |at: usize| (in_flight(at) + 1) as f64 / bound(at) as f64;
        let bounded = (0..takes.len()).filter(|at| takes[*at] && bound(*at) > 0);
        bounded.min_by(|one, two| share(*one).total_cmp(&share(*two)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn by_law(weights: Vec<Vec<u32>>, machines: usize) -> Router {
        let mut router = Router::new(Routing::ByLaw, &[1_000, 10_000], machines, 3);
        router.put_in_force(Some(Routes {
            weights,
            ..Routes::default()
        }));
        router
    }

    #[test]
    fn a_route_is_of_no_class_before_its_first_answer() {
        let mut router = by_law(Vec::new(), 1);
        assert_eq!(router.class(0), 3);
        router.learn(0, 1_000.0);
        router.learn(1, 1_001.0);
        router.learn(2, 1e9);
        assert_eq!([0, 1, 2].map(|route| router.class(route)), [0, 1, 2]);
        // Answers that have grown move it in time.
        (0..40).for_each(|_| router.learn(0, 5_000.0));
        assert_eq!(router.class(0), 1);
    }

    #[test]
    fn a_class_without_weights_and_an_unknown_one_go_where_the_fewest_are() {
        let mut router = by_law(vec![vec![1, 0, 0], vec![0, 0, 0]], 3);
        let flying = |at: usize| [9, 5, 7][at];
        assert_eq!(router.choose(0, &[true; 3], flying), Some(0));
        for class in [1, 2, 3] {
            assert_eq!(router.choose(class, &[true; 3], flying), Some(1), "{class}");
        }
        // The one that has the weight is off.
        assert_eq!(router.choose(0, &[false, true, true], flying), Some(1));
        assert_eq!(router.choose(0, &[false; 3], flying), None);
    }

    #[test]
    fn what_has_no_room_by_weight_goes_where_there_is_the_most() {
        let mut router = by_law(Vec::new(), 3);
        router.put_in_force(Some(Routes {
            weights: vec![vec![3, 1, 0]],
            most_in_flight: vec![vec![4, 3, 8]],
        }));
        let mut flying = [4_usize, 0, 0];
        let mut chosen = Vec::new();
        for _ in 0..7 {
            let at = router.choose(0, &[true; 3], |at| flying[at]).unwrap();
            flying[at] += 1;
            chosen.push(at);
        }
        // The first has as many as it may have; then each by its share.
        assert_eq!(chosen, [1, 1, 1, 2, 2, 2, 2]);
    }

    proptest! {
        #[test]
        fn after_as_many_requests_as_weights_each_had_its_weight(weights in proptest::collection::vec(0u32..20, 1..6)) {
            let sum: u32 = weights.iter().sum();
            prop_assume!(sum > 0);
            let mut router = by_law(vec![weights.clone()], weights.len());
            let mut counts = vec![0; weights.len()];
            for _ in 0..sum {
                let at = router.choose(0, &vec![true; weights.len()], |_| 0).unwrap();
                counts[at] += 1;
            }
            prop_assert_eq!(counts, weights);
        }
    }
}
