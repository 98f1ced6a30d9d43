//! Tells the program which commit it is built from: a record that does not say so cannot be made again.

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-env-changed=HEADROOM_COMMIT");
    // A package of sources without a repository may be told of it.
    let given = env::var("HEADROOM_COMMIT")
        .ok()
        .filter(|commit| !commit.is_empty());
    let commit = given.or_else(of_repository).unwrap_or_default();
    let version = env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let version = match commit.as_str() {
        "" => version,
        commit => format!("{version} ({commit})"),
    };
    println!("cargo::rustc-env=HEADROOM_COMMIT={commit}");
    println!("cargo::rustc-env=HEADROOM_VERSION={version}");
}

/// The commit of the repository around, `-dirty` where what it holds was changed; `None` where there is none, or no git.
fn of_repository() -> Option<String> {
    // A repository may be around that is another's, as where this one's files were unpacked into it.
    let folder = git(&["rev-parse", "--git-dir"])?;
    let is_ours = git(&["ls-files", "--error-unmatch", "build.rs"]).is_some();
    // What is committed or staged, and what is not: either makes the answer another.
    for changing in ["HEAD", "logs/HEAD", "index"].map(|name| Path::new(&folder).join(name)) {
        if changing.exists() {
            println!("cargo::rerun-if-changed={}", changing.display());
        }
    }
    // Whatever is built from: also examples, units and libraries' versions.
    for built_from in [
        "../../crates",
        "../../packaging",
        "../../Cargo.toml",
        "../../Cargo.lock",
    ] {
        if Path::new(built_from).exists() {
            println!("cargo::rerun-if-changed={built_from}");
        }
    }
    is_ours.then(|| git(&["describe", "--always", "--dirty", "--abbrev=12", "--exclude", "*"]))?
}

/// What a command of git prints; `None` where it fails.
fn git(arguments: &[&str]) -> Option<String> {
    let ended = Command::new("git").args(arguments).output().ok()?;
    let printed = String::from_utf8(ended.stdout).ok()?;
    ended.status.success().then(|| printed.trim().to_owned())
}
