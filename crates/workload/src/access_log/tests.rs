use super::*;
use proptest::prelude::*;

fn line(second: u32, request: &str) -> String {
    format!(
        "h - - [28/Aug/1995:00:{:02}:{:02} -0400] \"{request}\" 200 -\n",
        second / 60,
        second % 60
    )
}

fn read(text: &str) -> Result<AccessLog, AccessLogError> {
    AccessLog::read("test.log", text.as_bytes())
}

#[test]
fn requests_are_sorted_bad_lines_counted_and_paths_kept_once() {
    let text = [
        line(5, "GET /a HTTP/1.0"),
        line(3, "HEAD /b HTTP/1.0"),
        "nonsense\n\n".to_owned(),
        line(5, "GET /b HTTP/1.0"),
        line(4, "POST /form HTTP/1.0"),
        line(63, "GET /a HTTP/1.0"),
    ]
    .concat();
    let log = read(&text).unwrap();
    let got: Vec<(u32, Option<u32>, bool)> = log
        .requests
        .iter()
        .map(|request| (request.second, request.path, request.head))
        .collect();
    assert_eq!(
        got,
        [
            (0, Some(1), true),
            (1, None, false),
            (2, Some(0), false),
            (2, Some(1), false),
            (60, Some(0), false)
        ]
    );
    assert_eq!(log.paths, ["/a", "/b"]);
    assert_eq!((log.not_sent, log.out_of_order, log.bad), (1, 2, 1));
    assert_eq!(
        log.shown,
        [BadLine {
            line: 3,
            problem: "no [time]"
        }]
    );
    assert_eq!(log.duration(), Seconds::new(61.0));
}

#[test]
fn a_trace_has_the_log_s_rates() {
    let text: String = [0, 0, 0, 9, 10, 25]
        .map(|second| line(second, "GET / HTTP/1.0"))
        .concat();
    let trace = read(&text).unwrap().trace(Seconds::new(10.0)).unwrap();
    let rates: Vec<f64> = trace.rates().iter().map(|rate| rate.get()).collect();
    assert_eq!(rates, [0.4, 0.1, 0.1]);
    assert_eq!(trace.requests(), 6.0);
    let message = read(&text)
        .unwrap()
        .trace(Seconds::new(0.5))
        .unwrap_err()
        .to_string();
    assert!(message.contains("an access log tells seconds"), "{message}");
}

#[test]
fn what_is_no_log_is_refused_with_its_first_problem() {
    assert!(read("").unwrap_err().to_string().contains("it is empty"));
    let message = read("\n<html>\n").unwrap_err().to_string();
    assert!(
        message.contains("test.log") && message.contains("line 2: no [time]"),
        "{message}"
    );
    let message = AccessLog::from_file(Path::new("/nonexistent/a.log"))
        .unwrap_err()
        .to_string();
    assert!(message.contains("/nonexistent/a.log"), "{message}");
}

#[test]
fn a_line_without_end_is_a_bad_line_and_the_next_is_read() {
    let text = format!(
        "{}\n{}{}",
        "x".repeat(3 * MAX_LINE),
        line(0, "GET /a HTTP/1.0"),
        line(1, "GET /a HTTP/1.0").trim_end()
    );
    let log = read(&text).unwrap();
    assert_eq!((log.requests.len(), log.bad), (2, 1));
    assert_eq!(log.shown[0].problem, "longer than 64 KiB");
    let bad = "bad\n".repeat(1000) + &line(0, "GET /a HTTP/1.0");
    let log = read(&bad).unwrap();
    assert_eq!((log.bad, log.shown.len()), (1000, SHOWN));
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = AccessLog::read("x", &bytes[..]);
    }

    #[test]
    fn text_like_a_log_is_read_or_refused(text in "(h - - \\[[0-9A-Za-z/: +-]{0,28}\\] \"[A-Z]{0,4} [ -~]{0,20}\" [0-9-]{0,4} [0-9-]{0,4}\n){0,5}") {
        if let Ok(log) = AccessLog::read("x", text.as_bytes()) {
            prop_assert!(log.requests.len() as u64 + log.bad <= 5);
            prop_assert!(log.requests.is_sorted_by_key(|request| request.second));
        }
    }

    #[test]
    fn every_request_counts_in_the_trace(seconds in prop::collection::vec(0u32..3600, 1..60), bin in 1.0..100.0f64) {
        let text: String = seconds.iter().map(|second| line(*second, "GET / HTTP/1.0")).collect();
        let log = read(&text).unwrap();
        let trace = log.trace(Seconds::new(bin)).unwrap();
        prop_assert!((trace.requests() - seconds.len() as f64).abs() < 1e-6);
        prop_assert!(trace.duration() >= log.duration());
    }
}

#[test]
fn a_file_without_lines_ends_in_an_error() {
    // As a device of zeros, which has no end.
    let endless = BufReader::new(io::repeat(0));
    let error = AccessLog::read("/dev/zero", endless).unwrap_err().to_string();
    assert!(
        error.contains("/dev/zero") && error.contains("a line is longer than"),
        "{error}"
    );
}
