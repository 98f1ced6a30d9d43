use super::*;
use std::fs;
use std::path::Path;

fn undo(path: &Path, found: &str) -> Undo {
    Undo::Files {
        what: path.display().to_string(),
        ours: vec![FileValues {
            path: path.into(),
            values: vec![found.into()],
            tolerance: 0,
        }],
        steps: vec![FileValue {
            path: path.into(),
            value: found.into(),
        }],
        identity: None,
    }
}

fn put(handle: &Handle, path: &Path, value: &str) -> Result<(), RestoreError> {
    handle.write(
        |undo| {
            if let Undo::Files { ours, .. } = undo {
                ours[0].values.push(value.into());
            }
            Ok(())
        },
        || {
            fs::write(path, value).unwrap();
            Ok(())
        },
    )
}

#[test]
fn dropping_puts_back_and_never_writing_leaves_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (dir.path().join("a"), dir.path().join("b"));
    fs::write(&a, "1").unwrap();
    fs::write(&b, "1").unwrap();
    let registry = Registry::new();
    let handle = registry.register(undo(&a, "1")).unwrap();
    put(&handle, &a, "2").unwrap();
    drop(registry.register(undo(&b, "0")).unwrap());
    assert_eq!(fs::read_to_string(&b).unwrap(), "1");
    drop(handle);
    assert_eq!(fs::read_to_string(&a).unwrap(), "1");
}

#[test]
fn everything_is_put_back_in_reverse_order_once_and_writes_end() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (dir.path().join("a"), dir.path().join("b"));
    fs::write(&a, "1").unwrap();
    fs::write(&b, "1").unwrap();
    let registry = Registry::new();
    let first = registry.register(undo(&a, "1")).unwrap();
    let second = registry.register(undo(&b, "1")).unwrap();
    put(&first, &a, "2").unwrap();
    put(&second, &b, "2").unwrap();
    let report = registry.restore_all();
    assert_eq!(report.restored(), 2);
    assert!(matches!(&report.outcomes[0], Outcome::Restored { what } if what.ends_with("/b")));
    assert!(registry.restore_all().outcomes.is_empty());
    assert!(matches!(put(&first, &a, "3"), Err(RestoreError::Released { .. })));
    assert_eq!(fs::read_to_string(&a).unwrap(), "1");
}

#[test]
fn a_part_puts_back_its_own_and_the_whole_everything() {
    let dir = tempfile::tempdir().unwrap();
    let files = ["one", "other", "shared"].map(|name| dir.path().join(name));
    files.iter().for_each(|file| fs::write(file, "1").unwrap());
    let whole = Registry::new();
    let (one, other) = (whole.part(), whole.part());
    let registries = [&one, &other, &one.shared()];
    let handles: Vec<Handle> = registries
        .into_iter()
        .zip(&files)
        .map(|(registry, file)| {
            let handle = registry.register(undo(file, "1")).unwrap();
            put(&handle, file, "2").unwrap();
            handle
        })
        .collect();
    let now = || files.each_ref().map(|file| fs::read_to_string(file).unwrap());
    assert_eq!(one.restore_all().restored(), 1);
    assert_eq!(now(), ["1", "2", "2"]);
    assert!(put(&handles[0], &files[0], "3").is_err());
    put(&handles[1], &files[1], "3").unwrap();
    assert_eq!(whole.restore_all().restored(), 2);
    assert_eq!(now(), ["1", "1", "1"]);
}

#[test]
fn what_could_not_be_put_back_is_tried_again_and_told_until_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let a = dir.path().join("a");
    fs::write(&a, "1").unwrap();
    let registry = Registry::new();
    let handle = registry.register(undo(&a, "1")).unwrap();
    put(&handle, &a, "2").unwrap();
    // A directory in the file's place can neither be read nor written.
    fs::remove_file(&a).unwrap();
    fs::create_dir(&a).unwrap();
    drop(handle);
    for _ in 0..2 {
        let report = registry.restore_all();
        assert_eq!(
            (report.outcomes.len(), report.failed().count()),
            (1, 1),
            "{report}"
        );
    }
    fs::remove_dir(&a).unwrap();
    fs::write(&a, "2").unwrap();
    assert_eq!(registry.restore_all().restored(), 1);
    assert_eq!(fs::read_to_string(&a).unwrap(), "1");
    assert!(registry.restore_all().outcomes.is_empty());
}

#[test]
fn what_somebody_else_wrote_is_left_to_them() {
    let dir = tempfile::tempdir().unwrap();
    let a = dir.path().join("a");
    fs::write(&a, "1").unwrap();
    let registry = Registry::new();
    let handle = registry.register(undo(&a, "1")).unwrap();
    put(&handle, &a, "2").unwrap();
    fs::write(&a, "77").unwrap();
    let report = registry.restore_all();
    assert_eq!(report.foreign().count(), 1);
    assert!(report.to_string().contains("77"));
    assert_eq!(fs::read_to_string(&a).unwrap(), "77");
    drop(handle);
    assert_eq!(fs::read_to_string(&a).unwrap(), "77");
}

#[test]
fn a_registry_refuses_more_than_its_limit() {
    let registry = Registry::new();
    let handles: Vec<Handle> = (0..MAX_RECORDS)
        .map(|_| registry.register(undo(Path::new("/x"), "1")).unwrap())
        .collect();
    assert!(matches!(
        registry.register(undo(Path::new("/x"), "1")),
        Err(RestoreError::Full { .. })
    ));
    drop(handles);
    assert!(registry.register(undo(Path::new("/x"), "1")).is_ok());
}
