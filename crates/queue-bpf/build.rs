//! Compiles the eBPF program where clang is there. Where it is not, the crate holds no program and the reason why:
//! a build must not fail for want of a compiler that only one way of measuring needs.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

const SOURCE: &str = "src/accept_queue.bpf.c";

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={SOURCE}");
    println!("cargo::rerun-if-env-changed=CLANG");
    println!("cargo::rustc-check-cfg=cfg(compiled)");
    let out = PathBuf::from(
        env::var_os("OUT_DIR")
            .ok_or_else(|| io::Error::other("OUT_DIR is not set: this is cargo's to set"))?,
    );
    let reason = match compile(&out.join("accept_queue.o")) {
        Ok(()) => {
            println!("cargo::rustc-cfg=compiled");
            String::new()
        }
        Err(reason) => {
            println!("cargo::warning=the eBPF program is left out: {reason}");
            reason
        }
    };
    fs::write(out.join("reason.txt"), reason)
}

fn compile(object: &Path) -> Result<(), String> {
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".into());
    // Maps and the fields of the kernel's types are described by the debug information.
    let run = Command::new(&clang)
        .args([
            "-target", "bpf", "-mcpu=v2", "-O2", "-g", "-Wall", "-Werror", "-c", SOURCE, "-o",
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
