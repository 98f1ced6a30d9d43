//! `headroom certs`.

use crate::common::{headroom, run};
use std::fs;

#[test]
fn every_file_is_named_with_its_purpose_and_none_is_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let certs = |args: &[&str]| run(headroom().arg("certs").args(args).arg("--dir").arg(dir.path()));
    let (code, _, err) = certs(&["issue-controller"]);
    assert_eq!(code, Some(2));
    assert!(
        err.contains("`headroom certs create` makes an authority"),
        "{err}"
    );
    for (args, files) in [
        (&["create"][..], ["ca.crt", "ca.key"]),
        (
            &["issue-node", "n1", "--also", "10.0.0.1"],
            ["node-n1.crt", "node-n1.key"],
        ),
        (&["issue-controller"], ["controller.crt", "controller.key"]),
        (
            &["issue-controller", "--name", "b"],
            ["controller-b.crt", "controller-b.key"],
        ),
        (
            &["issue-reader", "grafana"],
            ["reader-grafana.crt", "reader-grafana.key"],
        ),
    ] {
        let (code, out, err) = certs(args);
        assert_eq!(code, Some(0), "{err}");
        for file in files {
            let line = out
                .lines()
                .find(|line| line.split([' ', ':']).next().unwrap().ends_with(file));
            let line = line.unwrap_or_else(|| panic!("{file} is not told: {out}"));
            assert!(
                line.contains("opy it") && dir.path().join(file).exists(),
                "{line}"
            );
            assert_eq!(line.contains("[secret]"), file.ends_with(".key"), "{line}");
        }
        let before = fs::read(dir.path().join(files[0])).unwrap();
        let (code, _, err) = certs(args);
        assert_eq!(code, Some(2));
        assert!(err.contains("exists already and is not overwritten"), "{err}");
        assert_eq!(fs::read(dir.path().join(files[0])).unwrap(), before);
    }
    let (code, out, _) = certs(&["show"]);
    assert_eq!((code, out.lines().count()), (Some(0), 5), "{out}");
    assert!(out.contains("reader \"grafana\""), "{out}");
    assert!(out.contains("good for n1, 10.0.0.1: valid for 36"), "{out}");

    let node = dir.path().join("node-n1.crt");
    let before = fs::read(&node).unwrap();
    let (code, out, err) = run(headroom().args(["certs", "renew", "--days", "5"]).arg(&node));
    assert_eq!(code, Some(0), "{err}");
    assert!(
        out.contains("node-n1.key") && fs::read(&node).unwrap() != before,
        "{out}"
    );
    let (_, out, _) = certs(&["show"]);
    assert!(
        out.contains("ends in 4 days: renew it") || out.contains("ends in 5 days: renew it"),
        "{out}"
    );

    for (args, said) in [
        (&["issue-node", "a b"][..], "is no name of a node"),
        (&["issue-node", "n2", "--days", "0"], "0 days is no validity"),
        (
            &["issue-node", "n2", "--days", "20000"],
            "longer than the authority itself",
        ),
    ] {
        let (code, _, err) = certs(args);
        assert_eq!(code, Some(2));
        assert!(err.contains(said), "{err}");
    }
}
