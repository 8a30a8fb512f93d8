//! Compiles `proto/` with a compiler written in Rust: no protoc has to be installed.
#![allow(missing_docs)]

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let files = protox::compile(["proto/externalscaler.proto", "proto/health.proto"], ["proto"])?;
    tonic_prost_build::configure().compile_fds(files)?;
    Ok(())
}
