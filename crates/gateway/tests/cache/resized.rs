//! A cache that is made smaller and larger while it serves.

use crate::common::eventually;
use crate::common::take;
use crate::{Cached, POLICIES, answer, how};
use headroom_gateway::{BackendConfig, CacheConfig, GatewayConfig};

/// Bytes of each body, of which the cache keeps no larger ones.
const BODY: u64 = 100 << 10;

/// Of these bytes, as shards come of them.
fn cached(bytes: u64) -> [Cached; 2] {
    POLICIES.map(|policy| {
        let body = "b".repeat(BODY as usize);
        Cached::with(
            move |_, _| answer("cache-control: max-age=600\r\n", &body),
            |config| {
                config.cache = CacheConfig {
                    bytes,
                    max_object_bytes: BODY,
                    policy,
                    ..CacheConfig::default()
                };
            },
        )
    })
}

fn size(cached: &Cached) -> u64 {
    take(&cached.handle).cache_size.unwrap().bytes
}

/// Asks for so many different targets, and how many of the answers came from memory.
fn ask(cached: &Cached, targets: usize) -> usize {
    let each = |target| {
        let found = cached.get(&format!("/{target}"), "");
        assert_eq!(found.status(), 200);
        usize::from(how(&found).contains("; hit"))
    };
    (0..targets).map(each).sum()
}

#[test]
fn what_a_smaller_cache_has_no_room_for_goes_at_once_and_a_larger_one_fills_again() {
    // One shard, and several.
    for bytes in [1 << 20, 8 << 20] {
        for cached in cached(bytes) {
            let targets = (bytes / BODY) as usize / 2;
            ask(&cached, targets);
            eventually("all are stored", || size(&cached) > BODY * targets as u64);
            assert_eq!(ask(&cached, targets), targets);
            let before = size(&cached);

            let less = before / 2;
            assert_eq!(cached.handle.set_cache_bytes(less), Some(less));
            assert_eq!(cached.handle.cache_bytes(), Some(less));
            let small = size(&cached);
            assert!(small > 0 && small <= less, "{small} of {less} bytes");
            for _ in 0..2 {
                ask(&cached, targets);
                assert!(size(&cached) <= less, "it stays within its bound");
            }

            assert_eq!(cached.handle.set_cache_bytes(bytes), Some(bytes));
            assert!(size(&cached) > 0, "what was stored stays");
            ask(&cached, targets);
            eventually("it is full again", || size(&cached) >= before);
            assert_eq!(ask(&cached, targets), targets);
        }
    }
}

#[test]
fn no_cache_becomes_larger_than_configured_or_too_small_for_one_object() {
    for cached in cached(8 << 20) {
        let range = cached.handle.config().cache_bytes_range().unwrap();
        assert!(
            *range.start() > BODY && *range.start() < *range.end(),
            "{range:?}"
        );
        assert_eq!(*range.end(), 8 << 20);
        assert_eq!(cached.handle.set_cache_bytes(u64::MAX), Some(*range.end()));
        assert_eq!(cached.handle.set_cache_bytes(0), Some(*range.start()));
        cached.get("/one", "");
        assert!(how(&cached.get("/one", "")).contains("; hit"));
    }
    let none = GatewayConfig {
        backends: vec![BackendConfig::new("http://127.0.0.1:1")],
        ..GatewayConfig::default()
    };
    assert_eq!(
        (none.cache_bytes_range(), none.max_batch_interval()),
        (None, None)
    );
}

#[test]
fn a_body_of_the_largest_size_is_kept_by_the_smallest_cache_that_is_allowed() {
    let smallest = BODY + (64 << 10);
    // As it is configured, and as a law may make one of several shards.
    for (bytes, then) in [(smallest, None), (8 << 20, Some(0))] {
        for cached in cached(bytes) {
            if let Some(then) = then {
                cached.handle.set_cache_bytes(then);
            }
            cached.get("/largest", "");
            eventually("it is kept", || {
                how(&cached.get("/largest", "")).contains("; hit")
            });
        }
    }
}
