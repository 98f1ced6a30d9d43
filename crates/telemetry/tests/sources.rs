//! The log's sources on real sockets and files.

use headroom_telemetry::Source;
use headroom_telemetry::haproxy::{
    HaproxyConfig, HaproxyError, HaproxyTelemetry, LogFormat, LogSource, Scope, SourceError,
};
use headroom_telemetry::{Lost, TelemetryPeriod};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::net::UdpSocket;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::{Duration, Instant};

/// Longer ago than any date in these lines.
const LONG_PAST: Duration = Duration::from_secs(100 * 365 * 86_400);

/// A line whose date is long past: the delay is not judged in these tests.
fn line(server: &str, latency_ms: u32) -> String {
    format!(
        "127.0.0.1:1 [06/Feb/2009:12:14:14.655] in app/{server} 0/0/0/{latency_ms}/{latency_ms} 200 5 - - ---- 1/1/0/0/0 0/0 \"GET / \
         HTTP/1.1\"\n"
    )
}

fn start(source: LogSource) -> HaproxyTelemetry {
    let mut config = HaproxyConfig::new(source);
    config.late_after = LONG_PAST;
    HaproxyTelemetry::start(config).unwrap()
}

fn file(path: &Path) -> HaproxyTelemetry {
    start(LogSource::File(path.to_owned()))
}

/// Takes periods until so many requests have come, then once more, so that too many are seen too.
fn take(telemetry: &mut HaproxyTelemetry, completions: u64) -> TelemetryPeriod {
    let give_up = Instant::now() + Duration::from_secs(10);
    let mut sum: Option<TelemetryPeriod> = None;
    let mut settled = 0;
    while settled < 3 && Instant::now() < give_up {
        std::thread::sleep(Duration::from_millis(60));
        let period = telemetry.take_period(Duration::ZERO);
        let total = match sum.take() {
            None => period,
            Some(mut total) => {
                total.completions += period.completions;
                total.malformed += period.malformed;
                total.malformed_by_kind.truncated += period.malformed_by_kind.truncated;
                total.malformed_by_kind.too_long += period.malformed_by_kind.too_long;
                total.lost = period.lost;
                total
            }
        };
        settled = if total.completions >= completions {
            settled + 1
        } else {
            0
        };
        sum = Some(total);
    }
    let sum = sum.unwrap();
    assert_eq!(sum.completions, completions, "{sum:?}");
    sum
}

fn append(path: &Path, text: &str) {
    OpenOptions::new()
        .append(true)
        .create(true)
        .open(path)
        .unwrap()
        .write_all(text.as_bytes())
        .unwrap();
}

#[test]
fn udp_messages_are_counted_and_timed() {
    let mut telemetry = start(LogSource::Udp("127.0.0.1:0".parse().unwrap()));
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = telemetry.local_address().unwrap();
    for number in 0..100 {
        let message = format!("<134>Feb  6 12:14:14 haproxy[1]: {}", line("s1", number * 10));
        sender.send_to(message.as_bytes(), to).unwrap();
    }
    sender
        .send_to(b"<134>Feb  6 12:14:14 haproxy[1]: nonsense", to)
        .unwrap();
    sender
        .send_to(
            b"<133>Feb  6 12:14:14 haproxy[1]: Server app/s1 is UP, reason: Layer4 check passed.",
            to,
        )
        .unwrap();
    let period = take(&mut telemetry, 100);
    assert_eq!(period.malformed, 1);
    assert_eq!(period.arrivals, period.completions);
    assert_eq!(period.dropped, Some(0));
    assert_eq!(period.backends[0].name, "app/s1");
    assert!(period.lost.is_none(), "{:?}", period.lost);
    assert!(period.in_flight.is_none());
}

#[test]
fn unix_messages_are_counted_and_the_socket_goes_away() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log.sock");
    let mut telemetry = start(LogSource::Unix {
        path: path.clone(),
        mode: 0o600,
    });
    let sender = UnixDatagram::unbound().unwrap();
    for _ in 0..50 {
        sender
            .send_to(format!("<134>{}", line("s1", 5)).as_bytes(), &path)
            .unwrap();
    }
    let period = take(&mut telemetry, 50);
    let p95 = period.latency.at(95.0).unwrap().as_millis();
    assert!((p95 - 5.5).abs() < 0.02, "{p95}");
    drop(telemetry);
    assert!(!path.exists());
}

#[test]
fn a_file_is_read_from_its_end_and_lines_may_come_in_pieces() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("haproxy.log");
    let whole = line("s1", 5);
    // What is there before the start does not count, nor does the rest of its last line.
    append(&path, &format!("{whole}{whole}{}", &whole[..30]));
    let mut telemetry = file(&path);
    append(&path, &whole[30..]);
    append(&path, &whole[..40]);
    std::thread::sleep(Duration::from_millis(120));
    append(&path, &whole[40..]);
    append(&path, &whole);
    append(&path, &format!("{}\n", "y".repeat(200_000)));
    append(&path, &whole);
    let period = take(&mut telemetry, 3);
    assert_eq!(period.malformed, 1);
    assert_eq!(period.malformed_by_kind.too_long, 1);
}

#[test]
fn a_file_is_followed_through_rename_and_create() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("haproxy.log");
    append(&path, "");
    let mut telemetry = file(&path);
    let mut writer = OpenOptions::new().append(true).open(&path).unwrap();
    writer.write_all(line("s1", 1).as_bytes()).unwrap();
    for round in 0..3 {
        fs::rename(&path, folder.path().join(format!("haproxy.log.{round}"))).unwrap();
        // The writer goes on in the old file, with nothing and then an empty file in its place.
        writer.write_all(line("s1", 1).as_bytes()).unwrap();
        std::thread::sleep(Duration::from_millis(80));
        let fresh = File::create(&path).unwrap();
        std::thread::sleep(Duration::from_millis(80));
        writer.write_all(line("s1", 1).as_bytes()).unwrap();
        writer = fresh;
        writer.write_all(line("s1", 1).as_bytes()).unwrap();
        std::thread::sleep(Duration::from_millis(250));
    }
    let period = take(&mut telemetry, 10);
    assert_eq!(period.malformed, 0);
    assert!(period.lost.is_none(), "{:?}", period.lost);
}

#[test]
fn a_file_is_followed_through_copytruncate() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("haproxy.log");
    let mut telemetry = file(&path);
    append(&path, &line("s1", 1).repeat(5));
    take(&mut telemetry, 5);
    // Emptied and at once longer than before: only its first bytes tell.
    let longer: String = (0..9).map(|_| line("another", 2)).collect();
    let longer = longer.replace("127.0.0.1:1 ", "127.0.0.1:77 ");
    fs::write(&path, &longer).unwrap();
    take(&mut telemetry, 9);
    // Emptied and shorter.
    OpenOptions::new()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(0)
        .unwrap();
    std::thread::sleep(Duration::from_millis(120));
    append(&path, &line("s1", 1));
    let period = take(&mut telemetry, 1);
    assert_eq!(period.malformed, 0);
}

#[test]
fn an_absent_file_is_lost_until_it_appears_and_when_it_goes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("haproxy.log");
    let mut telemetry = file(&path);
    std::thread::sleep(Duration::from_millis(150));
    let period = telemetry.take_period(Duration::ZERO);
    assert!(
        matches!(period.lost, Some(Lost::SourceGone(_))),
        "{:?}",
        period.lost
    );
    append(&path, &line("s1", 1).repeat(4));
    let period = take(&mut telemetry, 4);
    assert!(period.lost.is_none(), "{:?}", period.lost);
    fs::remove_file(&path).unwrap();
    std::thread::sleep(Duration::from_millis(2_300));
    let period = telemetry.take_period(Duration::ZERO);
    assert!(
        matches!(period.lost, Some(Lost::SourceGone(_))),
        "{:?}",
        period.lost
    );
}

#[test]
fn another_format_is_lost_with_the_remedy_and_silence_after_a_while() {
    let mut config = HaproxyConfig::new(LogSource::Udp("127.0.0.1:0".parse().unwrap()));
    config.silent_after = Duration::from_millis(300);
    let mut telemetry = HaproxyTelemetry::start(config).unwrap();
    assert!(
        telemetry
            .notes(None)
            .iter()
            .any(|note| note.contains("statistics socket"))
    );
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = telemetry.local_address().unwrap();
    for _ in 0..5 {
        sender
            .send_to(b"<134>Feb  6 12:14:14 haproxy[1]: GET / 200", to)
            .unwrap();
    }
    std::thread::sleep(Duration::from_millis(100));
    let period = telemetry.take_period(Duration::ZERO);
    assert_eq!(period.malformed, 5);
    let text = period.lost.unwrap().to_string();
    assert!(
        text.contains("GET / 200") && text.contains("log-format"),
        "{text}"
    );
    std::thread::sleep(Duration::from_millis(400));
    let period = telemetry.take_period(Duration::ZERO);
    assert!(matches!(period.lost, Some(Lost::Silent(_))), "{:?}", period.lost);
}

#[test]
fn lines_of_json_are_refused_with_the_line_that_helps() {
    let mut telemetry = start(LogSource::Udp("127.0.0.1:0".parse().unwrap()));
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = telemetry.local_address().unwrap();
    for before in ["<134>Feb  6 12:14:14 haproxy[1]: ", "<134>", ""] {
        let line = format!("{before}{{\"date\":\"2026-02-06\",\"status\":200}}");
        for _ in 0..2 {
            sender.send_to(line.as_bytes(), to).unwrap();
        }
    }
    std::thread::sleep(Duration::from_millis(200));
    let period = telemetry.take_period(Duration::ZERO);
    assert_eq!((period.malformed, period.malformed_by_kind.json), (6, 6));
    let text = period.lost.unwrap().to_string();
    for word in [
        "JSON",
        "option httplog\n",
        "log-format \"%ci:%cp [%tr]",
        "%{+json}o",
    ] {
        assert!(text.contains(word), "{word}: {text}");
    }
}

#[test]
fn a_log_that_comes_late_is_lost() {
    let mut config = HaproxyConfig::new(LogSource::Udp("127.0.0.1:0".parse().unwrap()));
    config.format = LogFormat::compile("%Ts %Tt %ST %ts %b/%s").unwrap();
    let mut telemetry = HaproxyTelemetry::start(config).unwrap();
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = telemetry.local_address().unwrap();
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_secs();
    sender
        .send_to(format!("{} 1000 200 -- b/s", now - 61).as_bytes(), to)
        .unwrap();
    std::thread::sleep(Duration::from_millis(100));
    let period = telemetry.take_period(Duration::ZERO);
    assert!(
        matches!(period.lost, Some(Lost::LagUnknown(lag)) if lag.get() > 55.0),
        "{:?}",
        period.lost
    );
    sender
        .send_to(format!("{} 1000 200 -- b/s", now - 1).as_bytes(), to)
        .unwrap();
    std::thread::sleep(Duration::from_millis(100));
    let period = telemetry.take_period(Duration::ZERO);
    assert!(period.lost.is_none() && period.completions == 1, "{period:?}");
}

#[test]
fn a_clock_that_is_behind_is_said_once_and_lines_that_come_late_by_it_are_lost() {
    let mut config = HaproxyConfig::new(LogSource::Udp("127.0.0.1:0".parse().unwrap()));
    config.late_after = Duration::from_secs(3);
    config.format = LogFormat::compile("%t %Tt %ST %ts %b/%s").unwrap();
    let mut telemetry = HaproxyTelemetry::start(config).unwrap();
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = telemetry.local_address().unwrap();
    let date = |ago: Duration| {
        let ended = jiff::Zoned::now().checked_sub(ago).unwrap();
        ended.strftime("%d/%b/%Y:%H:%M:%S.%3f").to_string()
    };
    let mut send = |date: &str| {
        let line = format!("{date} 0 200 -- b/s");
        sender.send_to(line.as_bytes(), to).unwrap();
        std::thread::sleep(Duration::from_millis(500));
        telemetry.take_period(Duration::ZERO)
    };
    let minute = Duration::from_secs(60);
    let periods: Vec<TelemetryPeriod> = (0..14).map(|_| send(&date(minute))).collect();
    assert!(
        matches!(periods[0].lost, Some(Lost::LagUnknown(_))),
        "{:?}",
        periods[0].lost
    );
    let usable = &periods[8..];
    assert!(usable.iter().all(|period| period.lost.is_none()), "{usable:?}");
    let behind_s = usable[0].clock_behind.unwrap().get();
    assert!((59.9..61.0).contains(&behind_s), "{behind_s}");
    let news: Vec<&String> = periods.iter().flat_map(|period| &period.news).collect();
    assert_eq!(news.len(), 1, "{news:?}");
    assert!(
        news[0].contains("60 s behind") && news[0].contains("synchronise"),
        "{news:?}"
    );
    // Now the log stands still, as behind a relay: what comes is older and older.
    let stands = date(minute);
    let late = (0..12).map(|_| send(&stands)).last().unwrap();
    assert!(
        matches!(late.lost, Some(Lost::Late(late)) if late.get() < 30.0),
        "{:?}",
        late.lost
    );
    let period = send(&date(minute));
    assert!(period.lost.is_none() && period.news.is_empty(), "{period:?}");
}

#[test]
fn requests_out_of_scope_do_not_count() {
    let mut config = HaproxyConfig::new(LogSource::Udp("127.0.0.1:0".parse().unwrap()));
    config.late_after = LONG_PAST;
    config.scope = Scope {
        frontends: vec!["in".into()],
        backends: vec!["app".into()],
    };
    let mut telemetry = HaproxyTelemetry::start(config.clone()).unwrap();
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = telemetry.local_address().unwrap();
    for text in [
        line("s1", 1),
        line("s1", 1).replace("app/", "other/"),
        line("s1", 1).replace(" in ", " out "),
    ] {
        sender.send_to(text.as_bytes(), to).unwrap();
    }
    assert_eq!(take(&mut telemetry, 1).backends.len(), 1);
    config.format = LogFormat::compile("%t %Ta %ST %ts %b %s").unwrap();
    let error = HaproxyTelemetry::start(config).unwrap_err();
    assert!(
        matches!(error, HaproxyError::NoFrontend(_)) && error.to_string().contains("%ft"),
        "{error}"
    );
}

#[test]
fn what_cannot_be_read_is_refused_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let error =
        HaproxyTelemetry::start(HaproxyConfig::new(LogSource::File(folder.path().to_owned()))).unwrap_err();
    assert!(
        matches!(error, HaproxyError::Source(SourceError::Directory(_))),
        "{error}"
    );
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let error = HaproxyTelemetry::start(HaproxyConfig::new(LogSource::Udp(address))).unwrap_err();
    assert!(error.to_string().contains(&address.to_string()), "{error}");
}
