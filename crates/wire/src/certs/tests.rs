use super::*;
use std::os::unix::fs::PermissionsExt;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn year() -> Validity {
    Validity::days(365).unwrap()
}

fn authority() -> (tempfile::TempDir, Authority) {
    let dir = tempfile::tempdir().unwrap();
    let (authority, _) = Authority::create(dir.path(), Validity::days(AUTHORITY_DAYS).unwrap()).unwrap();
    (dir, authority)
}

#[test]
fn every_file_is_named_with_its_purpose_and_keys_are_private() {
    let top = tempfile::tempdir().unwrap();
    let dir = top.path().join("certs");
    let (authority, mut written) = Authority::create(&dir, Validity::days(AUTHORITY_DAYS).unwrap()).unwrap();
    assert_eq!(mode(&dir), 0o700);
    written.extend(authority.issue_controller(year()).unwrap());
    written.extend(
        authority
            .issue_node("node1", &["10.0.0.3".into()], year())
            .unwrap(),
    );
    let mut names: Vec<String> = written
        .iter()
        .map(|file| file.path.file_name().unwrap().to_str().unwrap().into())
        .collect();
    names.sort();
    assert_eq!(
        names,
        [
            "ca.crt",
            "ca.key",
            "controller.crt",
            "controller.key",
            "node-node1.crt",
            "node-node1.key"
        ]
    );
    for file in &written {
        assert_eq!(
            mode(&file.path),
            if file.secret { 0o600 } else { 0o644 },
            "{file}"
        );
        assert_eq!(file.secret, file.path.extension().unwrap() == "key");
        assert!(file.purpose.len() > 40, "{file}");
    }
    let node = written
        .iter()
        .find(|file| file.path.ends_with("node-node1.crt"))
        .unwrap();
    assert!(
        node.purpose.contains("reach the node as node1, 10.0.0.3"),
        "{}",
        node.purpose
    );
}

#[test]
fn a_certificate_says_whose_it_is() {
    let (dir, authority) = authority();
    authority.issue_controller(year()).unwrap();
    authority
        .issue_node(
            "n1.example",
            &["10.0.0.3".into(), "fd00::3".into(), "n1".into()],
            year(),
        )
        .unwrap();
    let all = inspect_dir(dir.path()).unwrap();
    let roles: Vec<Role> = all.iter().map(|certificate| certificate.role).collect();
    assert_eq!(roles, [Role::Authority, Role::Controller, Role::Node]);
    let node = &all[2];
    assert_eq!(node.subject, "n1.example");
    assert_eq!(node.names, ["n1.example", "10.0.0.3", "fd00::3", "n1"]);
    assert!(
        all.iter()
            .all(|certificate| certificate.issuer == authority.certificate().subject)
    );
}

#[test]
fn nothing_is_overwritten() {
    let (dir, authority) = authority();
    let before = fs::read(dir.path().join("ca.key")).unwrap();
    let error = Authority::create(dir.path(), year()).unwrap_err();
    assert!(matches!(error, CertError::Exists { .. }), "{error}");
    assert_eq!(fs::read(dir.path().join("ca.key")).unwrap(), before);
    authority.issue_node("n1", &[], year()).unwrap();
    assert!(matches!(
        authority.issue_node("n1", &[], year()),
        Err(CertError::Exists { .. })
    ));
    // One file of the two is enough to refuse, and the other is not made.
    fs::write(dir.path().join("node-n2.crt"), "mine").unwrap();
    assert!(matches!(
        authority.issue_node("n2", &[], year()),
        Err(CertError::Exists { .. })
    ));
    assert!(!dir.path().join("node-n2.key").exists());
}

#[test]
fn days_left_are_whole_days_rounded_down() {
    let (dir, authority) = authority();
    let start = SystemTime::now();
    authority
        .issue_node("n1", &[], Validity::starting(start, 10).unwrap())
        .unwrap();
    let node = inspect(&dir.path().join("node-n1.crt")).unwrap();
    let now = start + Duration::from_secs(1);
    assert_eq!(node.days_left(now), 9);
    assert_eq!(node.standing(now, 5), Standing::Valid { days: 9 });
    assert_eq!(node.standing(now, 30), Standing::EndsSoon { days: 9 });
    assert_eq!(node.standing(now + DAY * 11, 30), Standing::Expired { days: 1 });
    assert_eq!(node.standing(now + DAY * 10, 30), Standing::Expired { days: 0 });
    assert_eq!(node.standing(start - DAY, 30), Standing::NotYet);
    assert_eq!(node.standing(now, 30).to_string(), "ends in 9 days: renew it");
}

#[test]
fn a_certificate_never_outlives_its_authority() {
    let dir = tempfile::tempdir().unwrap();
    let (authority, _) = Authority::create(dir.path(), Validity::days(30).unwrap()).unwrap();
    let error = authority
        .issue_controller(Validity::days(31).unwrap())
        .unwrap_err();
    assert!(error.to_string().contains("31 days is longer"), "{error}");
    assert!(!dir.path().join("controller.key").exists());
}

#[test]
fn renewing_keeps_the_names_and_changes_the_key() {
    let (dir, authority) = authority();
    authority
        .issue_node("n1", &["10.0.0.3".into()], Validity::days(5).unwrap())
        .unwrap();
    let path = dir.path().join("node-n1.crt");
    let old = inspect(&path).unwrap();
    authority.renew(&path, year()).unwrap();
    let new = inspect(&path).unwrap();
    assert_eq!(
        (new.role, &new.names, &new.subject),
        (old.role, &old.names, &old.subject)
    );
    assert_ne!(new.public_key, old.public_key);
    assert!(new.days_left(SystemTime::now()) > 300);
    assert_eq!(mode(&dir.path().join("node-n1.key")), 0o600);
    let refused = authority.renew(&dir.path().join("ca.crt"), year()).unwrap_err();
    assert!(refused.to_string().contains("only a node's"), "{refused}");
}

#[test]
fn another_authoritys_certificate_is_not_renewed() {
    let (dir, _ours) = authority();
    let (_other_dir, other) = authority();
    _ours.issue_node("n1", &[], year()).unwrap();
    let error = other.renew(&dir.path().join("node-n1.crt"), year()).unwrap_err();
    assert!(
        error.to_string().contains("another authority signed it"),
        "{error}"
    );
}

#[test]
fn an_authority_with_another_key_is_refused() {
    let (dir, _) = authority();
    let (other, _) = authority();
    fs::copy(other.path().join("ca.key"), dir.path().join("ca.key")).unwrap();
    let error = Authority::open(dir.path()).unwrap_err();
    assert!(error.to_string().contains("not the key of"), "{error}");
    fs::write(dir.path().join("ca.key"), "no key").unwrap();
    assert!(
        Authority::open(dir.path())
            .unwrap_err()
            .to_string()
            .contains("no private key")
    );
}

#[test]
fn a_name_that_cannot_stand_in_a_file_or_certificate_is_refused() {
    let (dir, authority) = authority();
    let long = "x".repeat(64);
    for bad in [
        "",
        "../../etc/x",
        "a b",
        "node1/../x",
        "-a",
        "a..b",
        "nöde",
        long.as_str(),
    ] {
        assert!(
            matches!(
                authority.issue_node(bad, &[], year()),
                Err(CertError::BadName { .. })
            ),
            "{bad}"
        );
        assert!(matches!(
            authority.issue_node("ok", &[bad.into()], year()),
            Err(CertError::BadName { .. })
        ));
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    assert!(matches!(Validity::days(0), Err(CertError::BadDays { days: 0 })));
}
