//! The strict reader of the OpenMetrics text format is strict.

use crate::common::openmetrics::parse;

#[test]
fn the_reader_refuses_what_is_no_openmetrics() {
    let good = "# HELP a_seconds Time.\n# TYPE a_seconds counter\n# UNIT a_seconds seconds\n\
                a_seconds_total{x=\"1,\\\"}\",y=\"\"} 2.5\n# EOF\n";
    let read = parse(good).unwrap();
    assert_eq!(read.sum("a_seconds_total"), Some(2.5));
    assert_eq!(read.samples[0].labels["x"], "1,\"}");
    for (from, to) in [
        ("# EOF\n", ""),
        (" 2.5", " 2,5"),
        (" 2.5", " -1"),
        ("_total", ""),
        ("counter", "counterr"),
        ("UNIT a_seconds seconds", "UNIT a_seconds joules"),
        ("y=\"\"", "x=\"\""),
        ("x=\"1", "x=1"),
        ("2.5\n", "2.5\na_seconds_total{x=\"1,\\\"}\",y=\"\"} 2.5\n"),
    ] {
        assert!(good.contains(from));
        assert!(parse(&good.replacen(from, to, 1)).is_err(), "{from:?} to {to:?}");
    }
    let histogram =
        "# TYPE h histogram\nh_bucket{le=\"1.0\"} 1\nh_bucket{le=\"+Inf\"} 2\nh_count 2\nh_sum 1.0\n# EOF\n";
    parse(histogram).unwrap();
    for (from, to) in [
        ("h_count 2", "h_count 3"),
        ("} 1\n", "} 3\n"),
        ("+Inf", "2.0"),
        ("h_sum 1.0\n", ""),
    ] {
        assert!(
            parse(&histogram.replacen(from, to, 1)).is_err(),
            "{from:?} to {to:?}"
        );
    }
}
