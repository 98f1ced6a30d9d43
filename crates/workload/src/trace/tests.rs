use super::*;
use proptest::prelude::*;

fn rates(values: &[f64]) -> Vec<PerSecond> {
    values.iter().copied().map(PerSecond::new).collect()
}

fn trace(values: &[f64]) -> Trace {
    Trace::new("t", Seconds::new(10.0), rates(values)).unwrap()
}

fn error(text: &str) -> String {
    Trace::parse("day.txt", text, Seconds::new(10.0))
        .unwrap_err()
        .to_string()
}

#[test]
fn comments_blank_lines_carriage_returns_and_a_byte_order_mark_are_read() {
    let text = "\u{feff}# a day\r\n179\r\n\r\n 60.5 # night\n\n1e2\n0";
    let read = Trace::parse("day.txt", text, Seconds::new(10.0)).unwrap();
    assert_eq!(read.rates(), rates(&[179.0, 60.5, 100.0, 0.0]));
    assert_eq!(read.duration(), Seconds::new(40.0));
}

#[test]
fn a_bad_value_is_named_with_file_line_and_remedy() {
    let message = error("# head\n10\n\nten\n20\n");
    for part in ["day.txt:4", "`ten`", "one non-negative number a line"] {
        assert!(message.contains(part), "{message}");
    }
    for (text, problem) in [
        ("NaN", "not a number"),
        ("inf", "infinite"),
        ("-1", "negative"),
        ("1 2", "not a number"),
        ("1,5", "not a number"),
        ("2e9", "more than 1e9"),
        ("1e999", "infinite"),
    ] {
        assert!(error(text).contains(problem), "{text}: {}", error(text));
    }
}

#[test]
fn a_long_or_binary_value_is_shown_short_and_escaped() {
    let message = error(&"x".repeat(1000));
    assert!(message.len() < 200, "{message}");
    let bytes = Trace::parse_bytes("day.txt", b"1\n\x00\xff\x1b[2J\n", Seconds::new(1.0))
        .unwrap_err()
        .to_string();
    assert!(
        bytes.contains("day.txt:2") && !bytes.contains('\u{1b}'),
        "{bytes}"
    );
}

#[test]
fn an_empty_file_is_refused() {
    for text in ["", "\n\n", "# only a comment\n"] {
        assert!(error(text).contains("no value in it"), "{text:?}");
    }
}

#[test]
fn a_file_is_read_and_a_missing_one_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("night.txt");
    std::fs::write(&path, "1\n2\n").unwrap();
    let read = Trace::from_file(&path, Seconds::new(1.0)).unwrap();
    assert_eq!((read.name(), read.rates().len()), ("night", 2));
    std::fs::write(&path, "1\nx\n").unwrap();
    let message = Trace::from_file(&path, Seconds::new(1.0))
        .unwrap_err()
        .to_string();
    assert!(message.contains("night.txt:2"), "{message}");
    let message = Trace::from_file(directory.path().join("none"), Seconds::new(1.0))
        .unwrap_err()
        .to_string();
    assert!(message.contains("none: cannot read"), "{message}");
}

#[test]
fn too_many_values_are_refused() {
    let text = "1\n".repeat(MAX_VALUES + 1);
    assert!(error(&text).contains("more than 10000000"));
}

#[test]
fn a_value_is_held_for_its_step_and_nothing_lies_outside() {
    let two = trace(&[1.0, 2.0]);
    for (time, rate) in [
        (-0.1, 0.0),
        (0.0, 1.0),
        (9.99, 1.0),
        (10.0, 2.0),
        (19.99, 2.0),
        (20.0, 0.0),
        (f64::NAN, 0.0),
    ] {
        assert_eq!(two.rate_at(Seconds::new(time)), PerSecond::new(rate), "at {time}");
    }
}

#[test]
fn scaling_by_factor_peak_and_mean() {
    let two = || trace(&[1.0, 3.0]);
    assert_eq!(two().scaled(2.0).unwrap().rates(), rates(&[2.0, 6.0]));
    assert_eq!(
        two().scaled_to_peak(PerSecond::new(30.0)).unwrap().rates(),
        rates(&[10.0, 30.0])
    );
    assert_eq!(
        two().scaled_to_mean(PerSecond::new(4.0)).unwrap().rates(),
        rates(&[2.0, 6.0])
    );
    for factor in [-1.0, f64::NAN, f64::INFINITY, 1e10] {
        assert!(
            matches!(two().scaled(factor), Err(TraceError::BadScale { .. })),
            "{factor}"
        );
    }
    assert!(matches!(
        trace(&[0.0]).scaled_to_peak(PerSecond::new(1.0)),
        Err(TraceError::BadScale { .. })
    ));
}

#[test]
fn compression_keeps_the_values_and_changes_the_step() {
    let day = trace(&[1.0; 24]).compressed_to(Seconds::new(120.0)).unwrap();
    assert_eq!(day.step(), Seconds::new(5.0));
    assert_eq!(day.duration(), Seconds::new(120.0));
    for step in [0.0, -1.0, f64::NAN] {
        assert!(matches!(
            trace(&[1.0]).with_step(Seconds::new(step)),
            Err(TraceError::BadStep { .. })
        ));
    }
}

#[test]
fn slices_and_repeats() {
    let four = || trace(&[1.0, 2.0, 3.0, 4.0]);
    assert_eq!(
        four()
            .slice(Seconds::new(10.0), Seconds::new(30.0))
            .unwrap()
            .rates(),
        rates(&[2.0, 3.0])
    );
    assert_eq!(
        four()
            .slice(Seconds::new(0.0), Seconds::new(1.0))
            .unwrap()
            .rates(),
        rates(&[1.0])
    );
    for (from, to) in [
        (-1.0, 10.0),
        (10.0, 10.0),
        (0.0, 50.0),
        (40.0, 41.0),
        (f64::NAN, 10.0),
    ] {
        assert!(matches!(
            four().slice(Seconds::new(from), Seconds::new(to)),
            Err(TraceError::BadSlice { .. })
        ));
    }
}

#[test]
fn a_trace_made_in_a_program_is_held_to_the_same_rules() {
    let make = |step: f64, values: &[f64]| Trace::new("made", Seconds::new(step), rates(values));
    assert!(matches!(make(0.0, &[1.0]), Err(TraceError::BadStep { .. })));
    assert!(matches!(make(1.0, &[]), Err(TraceError::Empty { .. })));
    assert!(matches!(
        make(1.0, &[1.0, f64::NAN]),
        Err(TraceError::BadRate { index: 1, .. })
    ));
    assert!(matches!(
        make(1.0, &[-1.0]),
        Err(TraceError::BadRate { index: 0, .. })
    ));
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        if let Ok(read) = Trace::parse_bytes("any", &bytes, Seconds::new(1.0)) {
            prop_assert!(!read.rates().is_empty());
            prop_assert!(read.rates().iter().all(|rate| (0.0..=MAX_RATE).contains(&rate.get())));
        }
    }

    #[test]
    fn text_like_a_trace_is_read_or_refused(text in "[-+0-9eE.#\\sinfNa]{0,60}") {
        let _ = Trace::parse("any", &text, Seconds::new(1.0));
    }

    #[test]
    fn what_is_written_reads_back_the_same(values in proptest::collection::vec(0.0..MAX_RATE, 1..200)) {
        let written = Trace::new("some\nname", Seconds::new(10.0), rates(&values)).unwrap();
        let read = Trace::parse("some\nname", &written.to_string(), Seconds::new(10.0)).unwrap();
        prop_assert_eq!(read, written);
    }

    #[test]
    fn scaling_to_a_mean_and_a_peak_gets_there(values in proptest::collection::vec(0.1..1e4f64, 1..50), target in 0.1..1e5f64) {
        let made = trace(&values);
        let mean = made.clone().scaled_to_mean(PerSecond::new(target)).unwrap().mean();
        let peak = made.scaled_to_peak(PerSecond::new(target)).unwrap().peak();
        prop_assert!((mean / PerSecond::new(target) - 1.0).abs() < 1e-9);
        prop_assert!((peak / PerSecond::new(target) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn compression_keeps_the_rates_and_divides_the_requests(values in proptest::collection::vec(0.0..1e4f64, 1..50), factor in 0.01..10.0f64) {
        let made = trace(&values);
        let squeezed = made.clone().compressed_to(made.duration() * factor).unwrap();
        prop_assert!((squeezed.requests() - made.requests() * factor).abs() <= 1e-6 * made.requests().max(1.0));
    }
}
