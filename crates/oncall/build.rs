//! Compiles the preload library as a shared object of its own, with the compiler that compiles this crate.

use std::env;
use std::io;
use std::path::PathBuf;
use std::process::Command;

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/layout.rs");
    println!("cargo::rerun-if-changed=src/preload");
    println!("cargo::rustc-check-cfg=cfg(oncall_preload)");
    let variable = |name: &str| {
        env::var_os(name)
            .ok_or_else(|| io::Error::other(format!("{name} is not set: this is cargo's to set")))
    };
    let object = PathBuf::from(variable("OUT_DIR")?).join("libheadroom_oncall.so");
    let status = Command::new(variable("RUSTC")?)
        .args([
            "src/preload/root.rs",
            "--crate-name",
            "headroom_oncall",
            "--crate-type",
            "cdylib",
        ])
        .args([
            "--edition",
            "2024",
            "--cfg",
            "oncall_preload",
            "--check-cfg",
            "cfg(oncall_preload)",
        ])
        .args([
            "-C",
            "panic=abort",
            "-C",
            "opt-level=3",
            "-C",
            "lto=fat",
            "-C",
            "codegen-units=1",
        ])
        // A thread that is cancelled is unwound through our frames.
        .args(["-C", "force-unwind-tables=yes"])
        .args(["-C", "strip=debuginfo", "--target"])
        .arg(variable("TARGET")?)
        .arg("-o")
        .arg(&object)
        .status()?;
    match status.success() {
        true => Ok(()),
        false => Err(io::Error::other(
            "the preload library does not compile: see above",
        )),
    }
}
