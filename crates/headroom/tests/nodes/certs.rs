//! `headroom certs`.

use crate::common::{assert_has, headroom, refused, succeeds};
use std::fs;

#[test]
fn every_file_is_named_with_its_purpose_and_none_is_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let certs = |words: &str| headroom(format!("certs {words} --dir {}", dir.path().display()));
    refused(
        certs("issue-controller"),
        &["`headroom certs create` makes an authority"],
    );
    for (words, files) in [
        ("create", ["ca.crt", "ca.key"]),
        ("issue-node n1 --also 10.0.0.1", ["node-n1.crt", "node-n1.key"]),
        ("issue-controller", ["controller.crt", "controller.key"]),
        (
            "issue-controller --name b",
            ["controller-b.crt", "controller-b.key"],
        ),
        (
            "issue-reader grafana",
            ["reader-grafana.crt", "reader-grafana.key"],
        ),
    ] {
        let out = succeeds(certs(words)).out();
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
        refused(certs(words), &["exists already and is not overwritten"]);
        assert_eq!(fs::read(dir.path().join(files[0])).unwrap(), before);
    }
    let out = succeeds(certs("show")).out();
    assert_eq!(out.lines().count(), 5, "{out}");
    assert_has(
        &out,
        &["reader \"grafana\"", "good for n1, 10.0.0.1: valid for 36"],
    );

    let node = dir.path().join("node-n1.crt");
    let before = fs::read(&node).unwrap();
    let out = succeeds(headroom("certs renew --days 5").arg(&node)).out();
    assert!(
        out.contains("node-n1.key") && fs::read(&node).unwrap() != before,
        "{out}"
    );
    let out = succeeds(certs("show")).out();
    assert!(
        out.contains("ends in 4 days: renew it") || out.contains("ends in 5 days: renew it"),
        "{out}"
    );

    for (words, said) in [
        ("issue-node n2 --days 0", "0 days is no validity"),
        ("issue-node n2 --days 20000", "longer than the authority itself"),
    ] {
        refused(certs(words), &[said]);
    }
    refused(certs("issue-node").arg("a b"), &["is no name of a node"]);
}
