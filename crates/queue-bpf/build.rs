//! Compiles the eBPF programs where clang is there. Where it is not, the crate holds no program and the reason why:
//! a build must not fail for want of a compiler that only one way of measuring needs.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The sources, and the names of what is made of each: the object, the reason why there is none, and the condition under
/// which the crate includes the object.
const SOURCES: [(&str, &str, &str, &str); 2] = [
    (
        "src/accept_queue.bpf.c",
        "accept_queue.o",
        "reason.txt",
        "compiled",
    ),
    ("src/idle.bpf.c", "idle.o", "idle_reason.txt", "idle_compiled"),
];

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=CLANG");
    let out = PathBuf::from(
        env::var_os("OUT_DIR")
            .ok_or_else(|| io::Error::other("OUT_DIR is not set: this is cargo's to set"))?,
    );
    for (source, object, reason_file, condition) in SOURCES {
        println!("cargo::rerun-if-changed={source}");
        println!("cargo::rustc-check-cfg=cfg({condition})");
        let reason = match compile(source, &out.join(object)) {
            Ok(()) => {
                println!("cargo::rustc-cfg={condition}");
                String::new()
            }
            Err(reason) => {
                println!("cargo::warning=the eBPF program of {source} is left out: {reason}");
                reason
            }
        };
        fs::write(out.join(reason_file), reason)?;
    }
    Ok(())
}

fn compile(source: &str, object: &Path) -> Result<(), String> {
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".into());
    // Maps and the fields of the kernel's types are described by the debug information.
    let run = Command::new(&clang)
        .args([
            "-target", "bpf", "-mcpu=v2", "-O2", "-g", "-Wall", "-Werror", "-c", source, "-o",
        ])
        .arg(object)
        .output();
    match run {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            let first = said
                .lines()
                .find(|line| line.contains("error"))
                .unwrap_or("it did not say why");
            Err(format!("{clang} cannot compile it for the kernel: {first}"))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(format!("{clang} is not installed")),
        Err(error) => Err(format!("{clang} cannot be run: {error}")),
    }
}
