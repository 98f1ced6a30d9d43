use super::*;
use rand::seq::SliceRandom;

fn set(files: usize) -> FileSet {
    FileSet::generate(&FileSetConfig {
        files,
        ..FileSetConfig::default()
    })
    .unwrap()
}

#[test]
fn sizes_have_the_stated_body_and_tail() {
    let set = set(MAX_FILES);
    let mut sizes: Vec<u64> = (0..set.len()).map(|file| set.size(file)).collect();
    sizes.sort_unstable();
    let count = sizes.len() as f64;
    let below = |size: f64| sizes.partition_point(|s| (*s as f64) < size) as f64 / count;
    // Of a binomial share the standard error is 0.0008 here.
    assert!((1.0 - below(133_001.0) - 0.07).abs() < 0.004);
    // The body is cut at z = (ln 133000 - 9.357) / 1.318 = 1.8495, P = 0.96781; its median is the whole one's
    // quantile at 0.48390, z = -0.0404.
    let body = below(133_001.0);
    let median = sizes[(body / 2.0 * count) as usize] as f64;
    let stated = f64::exp(9.357 - 0.0404 * 1.318);
    assert!((median / stated - 1.0).abs() < 0.02, "{median} against {stated}");
    // The tail's median: the truncation at 50 MB cuts 0.15 % off, k 2^(1/1.1) without it.
    let tail = sizes[((1.0 - (1.0 - body) / 2.0) * count) as usize] as f64;
    assert!(
        (tail / (133_000.0 * 2f64.powf(1.0 / 1.1)) - 1.0).abs() < 0.05,
        "{tail}"
    );
    assert!(sizes[sizes.len() - 1] <= 50_000_000);
}

#[test]
fn popularity_is_zipf() {
    let set = set(2000);
    let mut counts: Vec<u32> = set.popularity().to_vec();
    counts.sort_unstable_by(|a, b| b.cmp(a));
    let first = f64::from(counts[0]);
    for rank in [2, 3, 5, 10, 50] {
        let ratio = first / f64::from(counts[rank - 1]);
        assert!((ratio / rank as f64 - 1.0).abs() < 0.02, "{rank}: {ratio}");
    }
    assert_eq!(counts[counts.len() - 1], 1);
}

/// The largest distance between the distribution of requested documents' sizes and the stated one.
fn distance(sizes: &[u64], popularity: &[u32]) -> f64 {
    let mut order: Vec<usize> = (0..popularity.len()).collect();
    order.sort_by_key(|document| sizes[*document]);
    let total: f64 = popularity.iter().map(|count| f64::from(*count)).sum();
    let mut sum = 0.0;
    let mut farthest: f64 = 0.0;
    for document in order {
        sum += f64::from(popularity[document]) / total;
        farthest = farthest.max((sum - requested().cumulative(sizes[document] as f64).unwrap()).abs());
    }
    farthest
}

#[test]
fn popular_documents_are_chosen_to_match_the_requested_sizes() {
    let set = set(2000);
    let documents = set.popularity().len();
    let matched = distance(&set.sizes[..documents], set.popularity());
    let mut shuffled = set.popularity().to_vec();
    shuffled.shuffle(&mut ChaCha8Rng::seed_from_u64(1));
    let by_chance = distance(&set.sizes[..documents], &shuffled);
    println!("requested sizes, farthest from the stated: {matched:.3}; by chance {by_chance:.3}");
    assert!(
        matched < 0.2 && matched < by_chance / 2.0,
        "{matched} {by_chance}"
    );
}

#[test]
fn documents_embed_files_that_are_none() {
    let set = set(20_000);
    let documents = set.popularity().len();
    assert_eq!(documents, 12_400);
    let embedding = (0..documents).filter(|d| !set.embedded(*d).is_empty()).count() as f64;
    assert!((embedding / documents as f64 - 30.0 / 62.0).abs() < 0.02);
    // P(floor(Pareto(1, 2.43)) = 1) = 1 - 2^-2.43.
    let one = (0..documents).filter(|d| set.embedded(*d).len() == 1).count() as f64;
    assert!((one / embedding - (1.0 - 2f64.powf(-2.43))).abs() < 0.03);
    let most = (0..documents).map(|d| set.embedded(d).len()).max().unwrap();
    assert!((10..=150).contains(&most), "{most}");
    assert!(
        (0..documents)
            .flat_map(|d| set.embedded(d))
            .all(|file| (documents..set.len()).contains(file))
    );
    assert!(set.embedded(documents).is_empty());
}

#[test]
fn sets_are_seeded_and_scaled() {
    let config = FileSetConfig {
        files: 100,
        ..FileSetConfig::default()
    };
    let whole = FileSet::generate(&config).unwrap();
    assert_eq!(whole, FileSet::generate(&config).unwrap());
    assert_ne!(
        whole,
        FileSet::generate(&FileSetConfig {
            seed: 2,
            ..config.clone()
        })
        .unwrap()
    );
    let half = FileSetConfig {
        size_scale: 0.5,
        ..config
    };
    let half = FileSet::generate(&half).unwrap();
    assert_eq!(half.popularity, whole.popularity);
    assert!((0..100).all(|file| half.size(file) == whole.size(file).div_ceil(2)));
}

#[test]
fn a_set_is_written_with_its_sizes_and_a_list() {
    let folder = tempfile::tempdir().unwrap();
    let set = FileSet::generate(&FileSetConfig {
        files: 40,
        size_scale: 0.01,
        ..FileSetConfig::default()
    })
    .unwrap();
    let site = folder.path().join("site");
    set.write(&site).unwrap();
    for file in 0..set.len() {
        assert_eq!(
            fs::metadata(site.join(set.name(file))).unwrap().len(),
            set.size(file)
        );
    }
    let list = fs::read_to_string(site.join("files.txt")).unwrap();
    assert_eq!(list.lines().count(), 41);
    assert!(list.contains(&format!("{} {} 0\n", set.name(39), set.size(39))));

    let in_the_way = folder.path().join("file");
    fs::write(&in_the_way, "").unwrap();
    let message = set.write(&in_the_way).unwrap_err().to_string();
    assert!(message.contains("file: cannot be written"), "{message}");
}

#[test]
fn figures_out_of_range_are_named() {
    let config = FileSetConfig::default;
    for (config, expected) in [
        (FileSetConfig { files: 9, ..config() }, "files = 9"),
        (
            FileSetConfig {
                files: MAX_FILES + 1,
                ..config()
            },
            "files = 100001",
        ),
        (
            FileSetConfig {
                popularity_exponent: f64::NAN,
                ..config()
            },
            "popularity exponent = NaN",
        ),
        (
            FileSetConfig {
                size_scale: 0.0,
                ..config()
            },
            "size scale = 0",
        ),
    ] {
        let message = FileSet::generate(&config).unwrap_err().to_string();
        assert!(message.starts_with(expected), "{message}");
    }
}
