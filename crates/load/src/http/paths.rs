//! Which path each request asks for.

use crate::error::LoadError;
use http::Uri;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// The most paths that a list may hold.
pub(crate) const MAX_PATHS: usize = 1_000_000;

/// Where the next request's path comes from.
#[derive(Debug, Default)]
pub enum Paths {
    /// The URL's own path, always.
    #[default]
    Url,
    /// These, one after the other, again and again.
    InOrder(Vec<String>),
    /// One of these, each equally likely.
    Uniform(Vec<String>),
    /// One of these, the k-th with a probability proportional to `k^-exponent` (Zipf's law; k from 1).
    Zipf {
        /// The paths, the most popular first.
        paths: Vec<String>,
        /// Zipf's exponent, 0 or more; near 1 for web pages.
        exponent: f64,
    },
}

/// The paths, checked and parsed once.
pub(crate) struct PathChooser {
    /// Of this thread.
    rng: ChaCha8Rng,
    rule: Rule,
}

#[derive(Clone)]
enum Rule {
    InOrder { uris: Vec<Uri>, next: usize },
    Uniform(Vec<Uri>),
    Weighted { uris: Vec<Uri>, cumulative: Vec<f64> },
}

impl PathChooser {
    /// Checks the paths; `url_path` is the one for [`Paths::Url`].
    pub(crate) fn new(paths: Paths, url_path: &str, seed: u64) -> Result<Self, LoadError> {
        let rule = match paths {
            Paths::Url => Rule::InOrder {
                uris: parse_all(&[url_path.to_owned()])?,
                next: 0,
            },
            Paths::InOrder(paths) => Rule::InOrder {
                uris: parse_all(&paths)?,
                next: 0,
            },
            Paths::Uniform(paths) => Rule::Uniform(parse_all(&paths)?),
            Paths::Zipf { paths, exponent } => {
                if !(exponent >= 0.0 && exponent.is_finite()) {
                    return Err(LoadError::BadSetting {
                        setting: "Zipf exponent",
                        value: exponent.to_string(),
                        remedy: "give a finite number of 0 or more",
                    });
                }
                let mut sum = 0.0;
                let cumulative = (1..=paths.len()).map(|k| {
                    sum += (k as f64).powf(-exponent);
                    sum
                });
                Rule::Weighted {
                    cumulative: cumulative.collect(),
                    uris: parse_all(&paths)?,
                }
            }
        };
        Ok(Self {
            rng: ChaCha8Rng::seed_from_u64(seed),
            rule,
        })
    }

    /// The same paths, chosen by another thread of the same load.
    pub(crate) fn for_thread(&self, thread: usize, seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(thread as u64);
        Self {
            rng,
            rule: self.rule.clone(),
        }
    }

    /// The next request's path.
    pub(crate) fn choose(&mut self) -> Uri {
        match &mut self.rule {
            Rule::InOrder { uris, next } => {
                let uri = uris[*next].clone();
                *next = (*next + 1) % uris.len();
                uri
            }
            Rule::Uniform(uris) => uris[self.rng.random_range(0..uris.len())].clone(),
            Rule::Weighted { uris, cumulative } => {
                let total = cumulative[cumulative.len() - 1];
                let drawn = self.rng.random::<f64>() * total;
                uris[cumulative
                    .partition_point(|&sum| sum <= drawn)
                    .min(uris.len() - 1)]
                .clone()
            }
        }
    }
}

pub(crate) fn parse_all(paths: &[String]) -> Result<Vec<Uri>, LoadError> {
    if paths.is_empty() || paths.len() > MAX_PATHS {
        return Err(LoadError::BadSetting {
            setting: "number of paths",
            value: paths.len().to_string(),
            remedy: "list from 1 to 1,000,000 paths, one a line",
        });
    }
    paths
        .iter()
        .map(|path| parse(path).ok_or_else(|| LoadError::BadPath { path: path.clone() }))
        .collect()
}

/// A path in origin form, with or without a query.
fn parse(path: &str) -> Option<Uri> {
    let uri: Uri = path.parse().ok()?;
    (path.starts_with('/') && uri.authority().is_none()).then_some(uri)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(count: usize) -> Vec<String> {
        (0..count).map(|n| format!("/{n}")).collect()
    }

    fn counts(paths: Paths, draws: usize) -> [f64; 4] {
        let mut chooser = PathChooser::new(paths, "/", 9).unwrap();
        let mut counts = [0.0; 4];
        for _ in 0..draws {
            counts[chooser.choose().path()[1..].parse::<usize>().unwrap()] += 1.0;
        }
        counts
    }

    #[test]
    fn in_order_goes_round() {
        let mut chooser = PathChooser::new(Paths::InOrder(listed(2)), "/", 0).unwrap();
        let chosen: Vec<String> = (0..5).map(|_| chooser.choose().path().to_owned()).collect();
        assert_eq!(chosen, ["/0", "/1", "/0", "/1", "/0"]);
    }

    #[test]
    fn uniform_and_zipf_have_their_shares() {
        for (paths, shares) in [
            (Paths::Uniform(listed(4)), [0.25; 4]),
            (
                Paths::Zipf {
                    paths: listed(4),
                    exponent: 1.0,
                },
                [12.0, 6.0, 4.0, 3.0].map(|s| s / 25.0),
            ),
            (
                Paths::Zipf {
                    paths: listed(4),
                    exponent: 0.0,
                },
                [0.25; 4],
            ),
        ] {
            let n = 40_000.0;
            for (count, share) in counts(paths, 40_000).iter().zip(shares) {
                let deviation = f64::sqrt(n * share * (1.0 - share));
                assert!(
                    (count - n * share).abs() < 4.0 * deviation,
                    "{count} against {}",
                    n * share
                );
            }
        }
    }

    #[test]
    fn bad_paths_are_refused() {
        for path in ["", "page", "http://other/page", "/a b", "//host/x y"] {
            let error = PathChooser::new(Paths::InOrder(vec![path.into()]), "/", 0).err();
            assert!(matches!(error, Some(LoadError::BadPath { .. })), "{path}");
        }
        assert!(matches!(
            PathChooser::new(Paths::Uniform(vec![]), "/", 0),
            Err(LoadError::BadSetting { .. })
        ));
        let zipf = Paths::Zipf {
            paths: listed(1),
            exponent: f64::NAN,
        };
        assert!(matches!(
            PathChooser::new(zipf, "/", 0),
            Err(LoadError::BadSetting { .. })
        ));
    }
}
