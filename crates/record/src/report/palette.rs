//! Which colour a law has.

/// The number of colours of the style sheet for laws: `c0` (grey) to `c6`.
const COLOURS: usize = 7;

/// The class of the reference's colour.
const GREY: usize = 0;

/// The colours that no law has in every report.
const OTHERS: [usize; 4] = [2, 4, 5, 6];

/// The colours of runs, given their laws: for each the number of its class in the style sheet.
///
/// `fixed` is grey in every report, `slo-power` blue and `headroom` green; any other law has the colour that its name leads
/// to, or the next that is free; so has a law's second run. Beyond seven runs colours repeat.
pub(crate) fn colours(laws: &[&str]) -> Vec<usize> {
    let mut given: Vec<Option<usize>> = vec![None; laws.len()];
    // Those that always have theirs come first, wherever they stand.
    for own in [true, false] {
        for (at, law) in laws.iter().enumerate() {
            if own_colour(law).is_some() == own {
                let taken: Vec<usize> = given.iter().flatten().copied().collect();
                given[at] = Some(free(&taken, wish(law)));
            }
        }
    }
    given.into_iter().flatten().collect()
}

/// The colour of a law that has the same in every report, whatever stands beside it.
fn own_colour(law: &str) -> Option<usize> {
    match law {
        "fixed" => Some(GREY),
        "slo-power" => Some(1),
        "headroom" => Some(3),
        _ => None,
    }
}

fn wish(law: &str) -> usize {
    match own_colour(law) {
        Some(own) => own,
        // FNV-1a: the same colour in every report, on every machine.
        None => {
            let hash = law.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
            });
            OTHERS[(hash % OTHERS.len() as u64) as usize]
        }
    }
}

fn free(taken: &[usize], wish: usize) -> usize {
    (0..COLOURS)
        .map(|offset| (wish + offset) % COLOURS)
        .find(|colour| !taken.contains(colour))
        .unwrap_or(wish)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_law_keeps_its_colour_and_no_two_share_one() {
        assert_eq!(colours(&["fixed", "slo-power"]), [0, 1]);
        assert_eq!(colours(&["slo-power", "fixed"]), [1, 0]);
        assert_eq!(colours(&["fixed", "slo-power", "headroom"]), [0, 1, 3]);
        assert_eq!(colours(&["k8s-hpa"])[0], colours(&["fixed", "k8s-hpa"])[1]);
        let mut seven = colours(&["a", "b", "c", "d", "e", "f", "g"]);
        seven.sort_unstable();
        seven.dedup();
        assert_eq!(seven.len(), 7);
        let many = colours(&[
            "elastic-only",
            "k8s-as-run",
            "hpa",
            "pegasus",
            "headroom",
            "slo-power",
            "fixed",
        ]);
        assert_eq!(many[4..], [3, 1, 0]);
        // Alone, too, no other law takes one of theirs.
        let alone: Vec<usize> = (b'a'..=b'z')
            .map(|letter| colours(&[&char::from(letter).to_string()])[0])
            .collect();
        assert!(alone.iter().all(|colour| OTHERS.contains(colour)), "{alone:?}");
        let twice = colours(&["slo-power", "slo-power"]);
        assert_ne!(twice[0], twice[1]);
    }
}
