//! The `plumbline` binary: flags in, exit code out.

use std::process::ExitCode;

use clap::Parser as _;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = plumbline::cli::Cli::parse();
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return plumbline::cli::failed(&error.into()),
    };
    runtime.block_on(cli.run()).unwrap_or_else(|error| plumbline::cli::failed(&error))
}
