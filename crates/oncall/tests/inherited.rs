//! The region as a descriptor that the server inherits.

#[allow(dead_code, reason = "each test program has its part of it")]
mod common;

use common::{Server, compiled, levers, load};
use headroom_oncall::{DESCRIPTOR_VARIABLE, Inherited, VARIABLE};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// How a server comes to be executed.
struct Way<'a> {
    /// What stands before it: FD is the descriptor's number.
    before: &'a [&'a str],
    /// Whether the environment says the descriptor, and the file's name.
    says: [bool; 2],
}

const BOTH: [bool; 2] = [true, true];
const DESCRIPTOR: [bool; 2] = [true, false];
const NAME: [bool; 2] = [false, true];

/// Starts the server of C in this way.
fn start(program: &Path, way: &Way<'_>) -> Server {
    let prepare = |command: &mut Command, region: &Path| {
        // Whoever it runs as may load the library, but not open the region.
        let folder = region.parent().unwrap();
        fs::set_permissions(folder, Permissions::from_mode(0o755)).unwrap();
        let inherited = Inherited::open(region).unwrap();
        let number = inherited.value().split(':').next().unwrap().to_owned();
        inherited.pass_on(command);
        let path = program.to_str().unwrap();
        let words = way.before.iter().map(|word| match *word {
            "FD" => number.as_str(),
            "PROGRAM" => path,
            word => word,
        });
        command.args(words).args(["serve", &number]);
        if !way.says[0] {
            command.env_remove(DESCRIPTOR_VARIABLE);
        }
        if !way.says[1] {
            command.env_remove(VARIABLE);
        }
    };
    Server::prepared(program, levers(1, 1), None, prepare)
}

fn program(folder: &Path) -> Option<std::path::PathBuf> {
    fs::set_permissions(folder, Permissions::from_mode(0o755)).unwrap();
    compiled("thread_server.c", folder)
}

fn is_on_call(server: &Server) -> bool {
    load(server, 4, 10, "one");
    let totals = server.steering.totals();
    assert!(totals.queries == 0 || totals.queries >= 36, "{}", totals.queries);
    totals.queries > 0
}

fn is_root() -> bool {
    std::os::unix::fs::MetadataExt::uid(&fs::metadata("/proc/self").unwrap()) == 0
}

#[test]
fn a_server_finds_the_region_by_either_and_by_neither_runs_as_without() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = program(folder.path()) else {
        return;
    };
    let ways: [(&[&str], [bool; 2], bool); 7] = [
        (&[], BOTH, true),
        (&[], DESCRIPTOR, true),
        (&[], NAME, true),
        // One that daemonises closes all that it has.
        (&["closing", "FD", "PROGRAM"], BOTH, true),
        (&["closing", "FD", "PROGRAM"], DESCRIPTOR, false),
        // Another file under the number is not written to.
        (&["other", "FD", "PROGRAM"], BOTH, true),
        (&["other", "FD", "PROGRAM"], DESCRIPTOR, false),
    ];
    for (before, says, wanted) in ways {
        let server = start(&program, &Way { before, says });
        assert_eq!(is_on_call(&server), wanted, "{before:?} {says:?}");
    }
}

#[test]
fn a_server_that_is_executed_as_another_user_is_on_call_by_the_descriptor_alone() {
    let folder = tempfile::tempdir().unwrap();
    if !is_root() {
        println!("skipped: a server that is executed as another user: this takes root");
        return;
    }
    let Some(program) = program(folder.path()) else {
        return;
    };
    let ways: [(&[&str], bool); 2] = [
        (&["as-nobody", "PROGRAM"], true),
        // The region's file is not to be opened by others.
        (&["as-nobody", "PROGRAM", "closing", "FD", "PROGRAM"], false),
    ];
    for (before, wanted) in ways {
        let server = start(&program, &Way { before, says: BOTH });
        let status = fs::read_to_string(format!("/proc/{}/status", server.child.id())).unwrap();
        assert!(status.contains("Uid:\t65534\t65534\t65534\t65534"), "{status}");
        assert_eq!(is_on_call(&server), wanted, "{before:?}");
    }
}

#[test]
fn what_the_server_starts_does_not_have_the_descriptor() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = program(folder.path()) else {
        return;
    };
    let before: &[&str] = &[];
    let server = start(&program, &Way { before, says: BOTH });
    let mut client = server.connect();
    client.ask("open");
    // Had it been closed before, that would prove nothing.
    let region = fs::canonicalize(server.steering.path()).unwrap();
    let own = fs::read_dir(format!("/proc/{}/fd", server.child.id())).unwrap();
    let is_region = |entry: fs::DirEntry| fs::read_link(entry.path()).is_ok_and(|link| link == region);
    assert!(own.flatten().any(is_region));
}
