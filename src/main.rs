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
    let code = runtime.block_on(cli.run()).unwrap_or_else(|error| plumbline::cli::failed(&error));
    // Who is told to leave at once does not wait for the data threads and their open streams.
    runtime.shutdown_background();
    code
}
