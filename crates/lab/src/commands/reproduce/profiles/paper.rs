//! What the paper has: Tables 1 and 2.

use headroom_physics::{ServingKind, StudiedService};

/// The densities of its workload, percent (Section 3.2).
pub const DENSITIES: [u32; 4] = [100, 75, 50, 25];

/// KB/s/W: three sizes of four densities.
type Line = [[f64; 4]; 3];

/// One cell of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At {
    /// The machine.
    pub kind: ServingKind,
    /// The service.
    pub service: StudiedService,
    /// Which of its sizes.
    pub size: usize,
    /// Which of [`DENSITIES`].
    pub density: usize,
}

impl At {
    /// All 72, in the order of the tables.
    pub fn all() -> impl Iterator<Item = Self> {
        StudiedService::ALL.into_iter().flat_map(|service| {
            ServingKind::ALL.into_iter().flat_map(move |kind| {
                (0..3).flat_map(move |size| {
                    (0..DENSITIES.len()).map(move |density| Self {
                        kind,
                        service,
                        size,
                        density,
                    })
                })
            })
        })
    }

    /// Its place in [`all`](Self::all).
    pub fn index(self) -> usize {
        let table = self.service as usize * 3 + self.kind as usize;
        (table * 3 + self.size) * DENSITIES.len() + self.density
    }

    /// The size that is asked for, in units of 1024 bytes.
    pub const fn kb(self) -> u32 {
        self.service.sizes_kb()[self.size]
    }

    /// Throughput per power in the paper, KB/s/W.
    pub fn paper(self) -> f64 {
        line(self.kind, self.service)[self.size][self.density]
    }
}

const fn line(kind: ServingKind, service: StudiedService) -> Line {
    use ServingKind::{Arm, Atom, Xeon};
    use StudiedService::{Apache, Memcached};
    match (service, kind) {
        (Apache, Xeon) => [
            [668.74, 634.47, 475.97, 263.07],
            [2258.29, 1843.50, 1256.27, 665.90],
            [2711.17, 2104.74, 1437.80, 746.10],
        ],
        (Apache, Atom) => [
            [156.43, 120.62, 82.64, 42.63],
            [1230.70, 950.17, 654.62, 334.43],
            [3880.46, 3007.03, 2062.78, 1076.05],
        ],
        (Apache, Arm) => [
            [563.52, 458.12, 336.47, 188.30],
            [3073.64, 2455.28, 1697.09, 981.07],
            [5567.51, 4787.71, 3260.49, 1744.36],
        ],
        (Memcached, Xeon) => [
            [2342.19, 1875.03, 1268.27, 696.25],
            [2730.09, 2079.58, 1440.89, 774.58],
            [2779.01, 2419.80, 1627.17, 994.56],
        ],
        (Memcached, Atom) => [
            [2967.67, 2327.75, 1601.97, 807.99],
            [4132.12, 3141.17, 2141.41, 1092.76],
            [4228.29, 3538.76, 2590.48, 1480.97],
        ],
        (Memcached, Arm) => [
            [2678.50, 2159.01, 1738.49, 969.94],
            [6545.94, 5205.19, 3887.85, 2220.94],
            [6003.86, 5696.33, 4603.17, 3738.86],
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_where_their_index_says() {
        let all: Vec<At> = At::all().collect();
        assert_eq!(all.len(), 72);
        assert!(all.iter().enumerate().all(|(at, cell)| cell.index() == at));
    }
}
