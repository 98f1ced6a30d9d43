//! Where the library is that a server loads: nobody else may put another there.

use crate::bad_input::as_nobody;
use crate::common::{assert_has, headroom, root_or_skipped, until};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::process::{Command, Output};

const NOBODY: u32 = 65_534;

fn said(command: &mut Command) -> (Option<i32>, String) {
    let Output { status, stderr, .. } = command.output().unwrap();
    (status.code(), String::from_utf8_lossy(&stderr).into_owned())
}

#[test]
fn a_folder_that_another_can_write_is_refused_and_left_as_it_is() {
    if !root_or_skipped("a folder of another user") {
        return;
    }
    let base = tempfile::tempdir().unwrap();
    let theirs = base.path().join("theirs");
    fs::create_dir(&theirs).unwrap();
    chown(&theirs, Some(NOBODY), Some(NOBODY)).unwrap();
    let db = base.path().join("record.db");
    let recorded = format!("--db {}", db.display());
    for (run_dir, how) in [
        (theirs.clone(), recorded.as_str()),
        (theirs.join("inner"), "--steered"),
    ] {
        let words = format!("wrap {how} --run-dir {} -- true", run_dir.display());
        let (code, said) = said(&mut headroom(words));
        assert_eq!(code, Some(2), "{said}");
        assert_has(
            &said,
            &["belongs to user 65534", theirs.to_str().unwrap(), "--run-dir"],
        );
    }
    assert!(!db.exists());
    fs::set_permissions(&theirs, fs::Permissions::from_mode(0o777)).unwrap();
    chown(&theirs, Some(0), Some(0)).unwrap();
    let (code, said) = said(&mut headroom(format!(
        "wrap --run-dir {} -- true",
        theirs.display()
    )));
    assert_eq!(code, Some(2), "{said}");
    assert_has(said, &["can be written by others", "chmod go-w"]);
}

#[test]
fn without_a_runtime_folder_a_user_has_one_that_is_the_users_alone() {
    if !root_or_skipped("running as somebody else") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let temporary = folder.path().join("tmp");
    fs::create_dir(&temporary).unwrap();
    fs::set_permissions(&temporary, fs::Permissions::from_mode(0o1777)).unwrap();
    let mine = temporary.join(format!("headroom-{NOBODY}"));
    let wrap = || {
        let mut command = as_nobody(folder.path());
        command.env_remove("XDG_RUNTIME_DIR").env("TMPDIR", &temporary);
        command.args([
            "wrap",
            "--db",
            "record.db",
            "--",
            "grep",
            "-q",
            "headroom_oncall",
            "/proc/self/maps",
        ]);
        command
    };
    let (code, out) = said(&mut wrap());
    assert_eq!(code, Some(0), "{out}");
    let about = fs::metadata(&mine).unwrap();
    assert_eq!((about.uid(), about.mode() & 0o777), (NOBODY, 0o700));
    // Somebody made it before.
    chown(&mine, Some(1), Some(1)).unwrap();
    fs::set_permissions(&mine, fs::Permissions::from_mode(0o777)).unwrap();
    let (code, out) = said(&mut wrap());
    assert_eq!(code, Some(2), "{out}");
    assert_has(out, &["belongs to user 1,", mine.to_str().unwrap()]);
}

#[test]
fn a_relative_folder_holds_wherever_the_server_goes() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = headroom("wrap --run-dir run --db record.db -- sh -c");
    command
        .arg("cd / && exec grep -q headroom_oncall /proc/self/maps")
        .current_dir(folder.path());
    let (code, said) = said(&mut command);
    assert_eq!(code, Some(0), "{said}");
}

#[test]
fn release_takes_away_what_a_killed_wrap_left() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().display();
    let mut wrap = headroom(format!("wrap --run-dir {at} --db {at}/record.db -- sleep 5"))
        .spawn()
        .unwrap();
    let left = folder.path().join(format!("oncall-{}", wrap.id()));
    until("the server runs", || left.join("region").exists().then_some(()));
    let release = || {
        let output = headroom(format!("release --run-dir {at}")).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert!(!release().contains("oncall-") && left.exists());
    wrap.kill().unwrap();
    wrap.wait().unwrap();
    assert_has(release(), &["oncall-", "taken away"]);
    assert!(!left.exists());
}
