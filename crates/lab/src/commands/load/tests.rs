//! Which options go together.

use super::*;
use clap::{Parser, error::ErrorKind};

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    load: LoadArgs,
}

fn parsed(line: &str) -> Result<LoadArgs, ErrorKind> {
    let words = ["load", "--url", "http://127.0.0.1/"].into_iter();
    let parsed = Command::try_parse_from(words.chain(line.split_whitespace()));
    parsed.map(|command| command.load).map_err(|error| error.kind())
}

#[test]
fn an_option_of_another_source_of_requests_is_refused() {
    for line in [
        "--trace wikipedia --auction bidding",
        "--replay access.log --auction bidding",
        "--trace wikipedia --speed 3",
        "--users 2 --speed 3",
        "--users 2 --peak 30",
        "--users 2 --mean 30",
        "--users 2 --scale 2",
        "--users 2 --compress 5",
        "--closed 4 --duration 5 --trace wikipedia",
        "--closed 4 --duration 5 --peak 30",
        "--closed 4 --duration 5 --connections 9",
        "--trace wikipedia --density 0.5",
        "--users 2 --grid",
        "--users 2 --threads 2",
    ] {
        assert_eq!(parsed(line).err(), Some(ErrorKind::ArgumentConflict), "{line}");
    }
    for line in [
        "--users 2 --auction bidding --think 1",
        "--trace wikipedia --peak 30 --compress 5",
        "--replay access.log --speed 3",
        "--closed 4 --duration 5 --density 0.5 --window 2s --grid --threads 2",
    ] {
        assert!(parsed(line).is_ok(), "{line}");
    }
    assert_eq!(
        parsed("--closed 4").err(),
        Some(ErrorKind::MissingRequiredArgument)
    );
}

#[test]
fn windows_of_connections_that_never_pause_are_refused_with_the_reason() {
    let why = |line: &str| {
        let args = parsed(&format!("--closed 4 --duration 5 {line}")).unwrap();
        offer(&args).err().map(|error| error.to_string())
    };
    for (line, option) in [
        ("--window 2s", "--window is of a --density below 1"),
        ("--density 1 --window 5s", "--window is of"),
        ("--grid", "--grid is of"),
    ] {
        let why = why(line).unwrap();
        assert!(why.contains(option) && why.contains("--density 0.5"), "{why}");
    }
    for line in [
        "",
        "--density 1",
        "--density 0.5 --window 2s --grid",
        "--density 0.5",
    ] {
        assert_eq!(why(line), None, "{line}");
    }
    let args = parsed("--closed 4 --duration 5 --density 0.5").unwrap();
    assert_eq!(window(&args), Seconds::new(5.0));
}

#[test]
fn an_option_of_another_protocol_is_refused_by_name() {
    for (line, of_memcached, named) in [
        ("--trace wikipedia --value-bytes 9", false, "--value-bytes"),
        ("--trace wikipedia --sets 0.5", false, "--sets"),
        ("--trace wikipedia --keys 9", false, "--keys"),
        ("--trace wikipedia", true, "--value-bytes"),
        ("--users 2 --value-bytes 9", true, "--users"),
        ("--replay log --value-bytes 9", true, "--replay"),
        ("--trace wikipedia --value-bytes 9 --paths p", true, "--paths"),
        (
            "--trace wikipedia --value-bytes 9 --new-connections",
            true,
            "--new-connections",
        ),
        (
            "--trace wikipedia --value-bytes 9 --expect-bytes 9",
            true,
            "--expect-bytes",
        ),
    ] {
        match memcached::check(&parsed(line).unwrap(), of_memcached) {
            Err(Failure::Usage(error)) => assert!(error.to_string().contains(named), "{line}: {error}"),
            other => panic!("{line}: {other:?}"),
        }
    }
    let fits = parsed("--closed 4 --duration 5 --value-bytes 9 --keys 3 --sets 0.5").unwrap();
    assert!(memcached::check(&fits, true).is_ok());
    assert!(
        memcached::check(
            &parsed("--closed 4 --duration 5 --expect-bytes 9").unwrap(),
            false
        )
        .is_ok()
    );
}

#[test]
fn conditions_and_the_grace_are_read_where_the_command_line_is() {
    let given =
        parsed("--closed 4 --duration 5 --fail-if p95>250ms --fail-if failed>1% --grace 500ms").unwrap();
    let conditions: Vec<String> = given.fail_if.iter().map(ToString::to_string).collect();
    assert_eq!(
        (conditions, given.grace),
        (vec!["p95>250ms".into(), "failed>1%".into()], 0.5)
    );
    let default = parsed("--closed 4 --duration 5").unwrap();
    assert_eq!((default.fail_if.len(), default.grace), (0, 1.0));
    for line in [
        "--closed 4 --duration 5 --fail-if p95>250",
        "--closed 4 --duration 5 --grace soon",
    ] {
        assert_eq!(parsed(line).err(), Some(ErrorKind::ValueValidation), "{line}");
    }
}
