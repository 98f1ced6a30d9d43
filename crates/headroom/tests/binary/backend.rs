//! A backend that is down, comes up, is killed and comes again: the law neither saves on its ruins nor loses it.

use crate::common::{Config, Group, Program, Up, Wiki, free_address, get, headroom, number, succeeds, until};
use headroom_record::Archive;
use std::fs;

#[test]
fn while_everything_fails_nothing_is_taken_and_a_backend_that_comes_back_is_found() {
    let Some(group) = Group::new() else { return };
    let address = free_address();
    let config = Config::new(&group, address);
    let mut up = Up::start(&config);
    let url = format!("http://{}/", up.gateway);
    let trace = config.dir().join("trace.txt");
    fs::write(&trace, "60\n").unwrap();
    let load = |seconds: &str| {
        let mut command = headroom(format!(
            "load --json --arrivals even --step {seconds} --url {url} --trace"
        ));
        command.arg(&trace);
        command
    };

    // Down: every request is answered, with 502.
    let answer = get(up.gateway, "/").unwrap();
    assert_eq!(answer.status, 502, "{answer:?}");
    let mut down = Program::start(load("3"));
    assert_eq!(down.wait().code(), Some(1), "nothing was answered");
    let down = down.json();
    assert_eq!(number(&down, "offered"), 180.0);
    assert_eq!(number(&down, "failed.status"), 180.0, "{down}");

    // Up for the first time.
    let wiki = Wiki::start(&address.to_string());
    group.add(wiki.program.pid());
    let served = || {
        get(up.gateway, "/")
            .is_ok_and(|answer| answer.status == 200)
            .then_some(())
    };
    until("the backend is found", served);

    // Killed in the middle of the load, and started again.
    let mut middle = Program::start(&mut load("5"));
    let before = up.metrics().sum("headroom_service_completions_total").unwrap();
    up.counted("headroom_service_completions_total", before + 60.0);
    drop(wiki);
    let failed = up.metrics().sum("headroom_service_failures_total").unwrap();
    up.counted("headroom_service_failures_total", failed + 20.0);
    let wiki = Wiki::start(&address.to_string());
    group.add(wiki.program.pid());
    until("the backend is found again", served);
    middle.succeeds();
    let middle = middle.json();
    assert!(number(&middle, "completed") >= 60.0, "{middle}");
    // A client is answered whatever happens behind the gateway.
    assert_eq!(number(&middle, "failed.connect"), 0.0, "{middle}");
    assert_eq!(number(&middle, "failed.timeout"), 0.0, "{middle}");
    assert_eq!(number(&middle, "failed.protocol"), 0.0, "{middle}");

    let after = succeeds(load("1")).json();
    assert_eq!(number(&after, "completed"), 60.0, "{after}");
    up.program.stop();
    let summary = up.program.json();

    let archive = Archive::open(&config.db()).unwrap();
    let periods = archive.periods(archive.find("up").unwrap().id).unwrap();
    // What came in a period that a busy machine made be lost is in no sum.
    let lost = periods.iter().filter(|one| one.telemetry_lost);
    let unseen = 60.0 * lost.map(|one| one.duration.get()).sum::<f64>();
    assert!(number(&summary, "requests.failed") + unseen >= 200.0, "{summary}");
    let mut failing = 0;
    for (period, next) in periods.iter().zip(&periods[1..]) {
        if period.failures > period.completions {
            failing += 1;
            let decided = |key: &str| number(&period.decided["setting"], key);
            assert!(
                decided("cores") >= period.cores.unwrap().get() - 1e-9,
                "{period:?}"
            );
            assert!(decided("cap") >= period.cap.unwrap().get() - 1e-9, "{period:?}");
            assert!(next.cores >= period.cores, "{next:?}");
        }
    }
    assert!(failing >= 3, "{failing} periods failed");
}
