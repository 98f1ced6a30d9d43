use super::*;
use crate::random::{Purpose, Rng};
use headroom_units::Seconds;
use proptest::prelude::*;
use std::collections::{HashMap, HashSet};

fn site() -> Site {
    Site::new(SiteConfig {
        items: 600,
        users: 300,
        ..SiteConfig::default()
    })
    .unwrap()
}

fn visits(site: &Site, seed: u64, number: u64, mix: Mix, count: usize) -> Vec<(Seconds, Visit)> {
    let mut visitor = Visitor::new(seed, number, Behaviour::of(mix));
    (0..count).map(|_| visitor.next(site)).collect()
}

/// The pages that a mix comes to.
fn reached(mix: Mix) -> HashSet<Page> {
    let mut found = HashSet::from([Page::Home]);
    let mut open = vec![Page::Home];
    while let Some(page) = open.pop() {
        for (next, _) in mix.row(page) {
            if let Next::To(to) = next
                && found.insert(*to)
            {
                open.push(*to);
            }
        }
    }
    found
}

#[test]
fn every_row_adds_up_to_a_hundred_and_names_each_case_once() {
    for mix in Mix::ALL {
        for page in Page::ALL {
            let row = mix.row(page);
            let sum: u32 = row.iter().map(|(_, percent)| u32::from(*percent)).sum();
            assert_eq!(sum, if row.is_empty() { 0 } else { 100 }, "{mix} {}", page.name());
            for (at, (next, percent)) in row.iter().enumerate() {
                assert!(*percent > 0, "{mix} {}", page.name());
                assert!(row[..at].iter().all(|(other, _)| other != next));
            }
        }
    }
}

#[test]
fn what_a_mix_comes_to_has_a_row_and_what_it_never_comes_to_has_none() {
    for mix in Mix::ALL {
        let found = reached(mix);
        for page in Page::ALL {
            assert_eq!(
                found.contains(&page),
                !mix.row(page).is_empty(),
                "{mix} {}",
                page.name()
            );
        }
    }
    assert_eq!(reached(Mix::Bidding).len(), Page::ALL.len());
    assert!(reached(Mix::Browsing).iter().all(|page| !page.is_personal()));
}

#[test]
fn each_mix_writes_as_often_as_it_says() {
    let site = site();
    for (mix, least, most) in [
        (Mix::Browsing, 0.0, 0.0),
        (Mix::Bidding, 0.14, 0.16),
        (Mix::Selling, 0.14, 0.16),
    ] {
        let (mut writes, mut bids, mut all) = (0, 0, 0);
        for number in 0..400 {
            for (_, visit) in visits(&site, 3, number, mix, 250) {
                all += 1;
                writes += u32::from(visit.is_write());
                bids += u32::from(visit.page() == Page::StoreBid);
            }
        }
        let share = f64::from(writes) / f64::from(all);
        assert!((least..=most).contains(&share), "{mix}: {share}");
        if mix == Mix::Bidding {
            assert!(bids * 10 > writes * 7, "{bids} of {writes}");
        }
    }
}

#[test]
fn sessions_begin_at_the_entrance_and_end_when_they_say() {
    let site = site();
    let (mut sessions, mut length, mut lengths) = (0.0, 0.0, Vec::new());
    let mut ended = true;
    for (_, visit) in visits(&site, 5, 1, Mix::Bidding, 40_000) {
        assert_eq!(visit.begins_session, ended);
        assert!(!visit.begins_session || visit.page() == Page::Home);
        ended = visit.ends_session;
        length += 1.0;
        if ended {
            sessions += 1.0;
            lengths.push(length);
            length = 0.0;
        }
    }
    let mean = lengths.iter().sum::<f64>() / sessions;
    assert!((15.0..45.0).contains(&mean), "{mean} pages a session");
    assert!(lengths.iter().all(|length| *length <= 200.0));
}

#[test]
fn a_short_session_is_cut_and_a_visitor_who_leaves_begins_another() {
    let site = site();
    let behaviour = Behaviour {
        max_visits: 3,
        ..Behaviour::of(Mix::Selling)
    };
    let mut visitor = Visitor::new(1, 2, behaviour);
    let mut length = 0;
    for _ in 0..300 {
        let (_, visit) = visitor.next(&site);
        length = if visit.begins_session { 1 } else { length + 1 };
        assert!(length <= 3 && (length < 3 || visit.ends_session));
    }
    visitor.next(&site);
    visitor.leave();
    assert!(visitor.next(&site).1.begins_session);
}

#[test]
fn who_goes_back_sees_a_page_that_it_has_read() {
    let site = site();
    for mix in Mix::ALL {
        let mut read: Vec<Place> = Vec::new();
        let mut previous: Option<Place> = None;
        let mut went_back = 0;
        for (_, visit) in visits(&site, 9, 4, mix, 5_000) {
            if visit.begins_session {
                read.clear();
                previous = None;
            }
            let page = visit.page();
            if let Some(previous) = previous {
                let row = mix.row(previous.page);
                let leads = row.iter().any(|(next, _)| *next == Next::To(page));
                if !leads {
                    assert!(read.contains(&visit.place) || page == Page::Home);
                    went_back += 1;
                }
            }
            if !visit.is_write() {
                read.push(visit.place);
            }
            previous = Some(visit.place);
        }
        assert!(went_back > 50, "{mix}: {went_back}");
    }
}

#[test]
fn think_times_have_their_mean_and_their_bound() {
    let site = site();
    let (mut sum, mut count, mut most) = (0.0, 0.0, 0.0_f64);
    for number in 0..100 {
        for (think, _) in visits(&site, 1, number, Mix::Browsing, 1_000) {
            sum += think.get();
            most = most.max(think.get());
            count += 1.0;
        }
    }
    // Standard error at 100,000 draws: 0.02 s.
    assert!((sum / count - 7.0).abs() < 0.1, "{}", sum / count);
    assert!((60.0..=70.0).contains(&most), "{most}");
}

#[test]
fn items_are_visited_by_zipf_s_law() {
    let site = Site::new(SiteConfig {
        items: 1_000,
        popularity_exponent: 1.0,
        ..SiteConfig::default()
    })
    .unwrap();
    let harmonic: f64 = (1..=1_000).map(|rank| 1.0 / f64::from(rank)).sum();
    let mut rng = Rng::new(2, Purpose::Sizes);
    let mut drawn = vec![0.0; 1_000];
    let draws = 400_000.0;
    for _ in 0..400_000 {
        drawn[site.rank_of(site.draw_item(&mut rng)) as usize] += 1.0;
    }
    for rank in [0, 1, 2, 4, 9, 30, 99] {
        let expected = draws / (harmonic * (rank as f64 + 1.0));
        let error = (drawn[rank] - expected).abs() / expected.sqrt();
        assert!(error < 5.0, "rank {rank}: {} for {expected}", drawn[rank]);
    }
    let whole: f64 = (0..1_000).map(|item| site.popularity(item).get()).sum();
    assert!((whole - 1.0).abs() < 1e-9);
    let first = (0..1_000).find(|item| site.rank_of(*item) == 0).unwrap();
    assert!((site.popularity(first).get() * harmonic - 1.0).abs() < 1e-9);
}

#[test]
fn visitors_view_popular_items_more_often() {
    let site = site();
    let mut views = vec![0_u32; 600];
    for number in 0..300 {
        for (_, visit) in visits(&site, 8, number, Mix::Browsing, 200) {
            if visit.page() == Page::ViewItem {
                views[site.rank_of(visit.place.subject) as usize] += 1;
            }
        }
    }
    let of = |ranks: std::ops::Range<usize>| views[ranks].iter().sum::<u32>();
    // By Zipf's law with 0.8 the tenth of the items that is visited most has some 51 % of the visits, the last 4 %.
    let (first, last, all) = (of(0..60), of(540..600), of(0..600));
    assert!(
        first * 100 > all * 44 && first * 100 < all * 58,
        "{first} of {all}"
    );
    assert!(last * 100 < all * 6, "{last} of {all}");
}

#[test]
fn sizes_lie_within_their_bounds_and_have_their_mean() {
    for mean_bytes in [2_000, 5_000, 10_000, 26_000, 49_000, 50_000] {
        let site = Site::new(SiteConfig {
            items: 20_000,
            mean_bytes,
            ..SiteConfig::default()
        })
        .unwrap();
        let sizes: Vec<f64> = (0..20_000)
            .map(|subject| {
                f64::from(site.bytes(&Place {
                    subject,
                    ..Place::of(Page::ViewItem)
                }))
            })
            .collect();
        assert!(sizes.iter().all(|size| (2_000.0..=50_000.0).contains(size)));
        let mean = sizes.iter().sum::<f64>() / 20_000.0;
        assert!(
            (mean / f64::from(mean_bytes) - 1.0).abs() < 0.03,
            "{mean} for {mean_bytes}"
        );
    }
}

#[test]
fn a_page_is_as_long_for_everybody() {
    let site = site();
    let form = |user| Place {
        subject: 7,
        user,
        ..Place::of(Page::PutBid)
    };
    assert_eq!(site.bytes(&form(1)), site.bytes(&form(2)));
    assert_ne!(form(1).key(), form(2).key());
}

#[test]
fn figures_out_of_range_are_named() {
    type Spoil = fn(&mut SiteConfig);
    let spoilt: [(&str, Spoil); 8] = [
        ("items = 0", |it| it.items = 0),
        ("users = 2000000", |it| it.users = 2_000_000),
        ("categories = 121", |it| it.categories = 121),
        ("regions = 0", |it| it.regions = 0),
        ("popularity_exponent = NaN", |it| {
            it.popularity_exponent = f64::NAN
        }),
        ("least_bytes = 10", |it| it.least_bytes = 10),
        ("mean_bytes = 1999", |it| it.mean_bytes = 1_999),
        ("most_bytes = 1500", |it| it.most_bytes = 1_500),
    ];
    for (words, spoil) in spoilt {
        let mut config = SiteConfig::default();
        spoil(&mut config);
        let error = Site::new(config).unwrap_err().to_string();
        assert!(error.starts_with(words), "{error}");
    }
    assert!(
        "buying"
            .parse::<Mix>()
            .unwrap_err()
            .to_string()
            .contains("selling")
    );
    assert_eq!("selling".parse(), Ok(Mix::Selling));
}

#[test]
fn targets_that_are_none_are_refused() {
    for (writes, target) in [
        (false, ""),
        (false, "/item"),
        (false, "/item/"),
        (false, "/item/x"),
        (false, "/item/042"),
        (false, "/item/4194304"),
        (false, "/item/4/bids/"),
        (false, "/item/4/bids/old"),
        (false, "/search?category=1"),
        (false, "/search?page=1&category=1"),
        (false, "/search?category=1&category=1&page=2"),
        (false, "/search?category=1&page=2&user=3"),
        (false, "/categories?region="),
        (false, "/item/4?user=3"),
        (false, "/users"),
        (true, "/item/4"),
        (true, "/items?user=3"),
        (true, "/"),
    ] {
        assert_eq!(Place::parse(writes, target), None, "{target}");
    }
}

proptest! {
    #[test]
    fn the_same_seed_visits_the_same_and_every_visit_is_one_of_the_site(
        seed: u64,
        number in 0_u64..1_000_000,
        mix in proptest::sample::select(Mix::ALL.to_vec()),
        items in 1_u32..300,
        categories in 1_u32..40,
    ) {
        let site = Site::new(SiteConfig { items, users: 50, categories, seed, ..SiteConfig::default() }).unwrap();
        let made = visits(&site, seed, number, mix, 120);
        prop_assert_eq!(&made, &visits(&site, seed, number, mix, 120));
        for (think, visit) in made {
            prop_assert!((0.0..=70.0).contains(&think.get()));
            prop_assert!(site.has(&visit.place), "{}", visit.target);
            prop_assert_eq!(visit.is_write(), visit.page().writes());
            prop_assert_eq!(Place::parse(visit.is_write(), &visit.target), Some(visit.place));
            prop_assert_eq!(visit.form.is_empty(), !visit.is_write());
            prop_assert_eq!(visit.bytes, site.bytes(&visit.place));
            prop_assert_eq!(visit.key, visit.place.key());
        }
    }

    #[test]
    fn places_that_differ_have_keys_that_differ(
        one in any_place(),
        other in any_place(),
    ) {
        prop_assert_eq!(one == other, one.key() == other.key());
    }

    #[test]
    fn a_target_is_read_as_the_place_that_it_is_of(place in any_place()) {
        let plain = Place::parse(place.page.writes(), &place.target());
        // Numbers that the kind has not are not in the target.
        let read = plain.unwrap();
        prop_assert_eq!(read.page, place.page);
        prop_assert_eq!(read.target(), place.target());
        if place.page.subject() != Subject::Nothing {
            prop_assert_eq!(read.subject, place.subject);
        }
    }

    #[test]
    fn any_text_is_read_without_a_panic(writes: bool, target in "[/?&=a-z0-9%\u{e9}]{0,40}") {
        if let Some(place) = Place::parse(writes, &target) {
            prop_assert_eq!(place.target(), target.trim_end_matches('?'));
        }
    }
}

fn any_place() -> impl Strategy<Value = Place> {
    let page = proptest::sample::select(Page::ALL.to_vec());
    let numbers = (0..=MAX_NUMBER, 0..=127_u32, 0..=127_u32, 0..=MAX_NUMBER);
    (page, numbers).prop_map(|(page, (subject, region, results, user))| Place {
        page,
        subject,
        region,
        results,
        user,
    })
}

#[test]
fn keys_of_visits_are_as_many_as_targets() {
    let site = site();
    let mut targets: HashMap<u64, (bool, String)> = HashMap::new();
    for number in 0..50 {
        for (_, visit) in visits(&site, 6, number, Mix::Bidding, 200) {
            let named = (visit.is_write(), visit.target);
            let before = targets.entry(visit.key).or_insert_with(|| named.clone());
            assert_eq!(*before, named);
        }
    }
    let distinct: HashSet<_> = targets.values().collect();
    assert_eq!(distinct.len(), targets.len());
}

#[test]
fn draws_of_a_category_are_of_that_category() {
    let site = site();
    let mut rng = Rng::new(4, Purpose::Sizes);
    for category in 0..20 {
        let item = site.draw_item_of(category, &mut rng).unwrap();
        assert_eq!(site.category_of(item), category);
    }
}
