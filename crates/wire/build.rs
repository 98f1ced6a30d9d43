//! Compiles the `.proto` files in pure Rust: no `protoc` is needed on the machine that builds this.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let files = protox::compile(
        [
            "headroom/v1/agent.proto",
            "headroom/v1/gateway.proto",
            "headroom/v1/oncall.proto",
            "headroom/v1/queue.proto",
        ],
        ["proto"],
    )?;
    tonic_prost_build::configure()
        .build_transport(false)
        // A refusal, which travels as JSON, has one in it.
        .type_attribute(
            "headroom.v1.Range",
            "#[derive(serde::Serialize, serde::Deserialize)]",
        )
        .compile_fds(files)?;
    Ok(())
}
