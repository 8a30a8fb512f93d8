//! Speed of the whole picker, as ratios to a server that answers the same messages and decides nothing
//! (the floor): same profile, same client, runs in turn, both servers on core 0 and the client on core 1
//! where `taskset` is there.
//!
//! For each load it prints requests per second, CPU microseconds a request in the server, the 99th
//! percentile of a round trip, and ratios: medians over the turns, the ratios turn by turn, because the
//! machine is not as fast in one minute as in the next. A request is headers and body in (full duplex, in chunks of
//! 16 KiB), headers and body out, then a reset, as Envoy does. The picker has ten endpoints that nobody
//! scrapes. A further line compares the picker with itself: 100 endpoints polled every 50 ms against
//! four; there the polled servers take their part of the client's core, so the CPU of a request is the
//! figure, not how many there were. The last is memory: what each of many streams costs whose body has not ended. Absolute numbers
//! are the machine's; the ratios are the figures. Words on the command line choose lines: a number is a
//! load with so many requests at a time, `polled` and `held` are the others.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

mod client;
mod floor;
mod subject;

use std::net::SocketAddr;
use std::process::Command;

use subject::{Figures, Subject, pin};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Times each server takes its turn at each load.
const TURNS: usize = 5;
/// Requests at a time, and bytes of a body.
const LOADS: [(usize, usize); 4] = [(1, 2 << 10), (16, 2 << 10), (128, 2 << 10), (32, 220 << 10)];
/// Streams that are held at once.
const HELD: usize = 5_000;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    match args.iter().position(|arg| arg == "serve-floor") {
        Some(at) => runtime.block_on(floor::serve(args[at + 1].parse().unwrap())),
        None => runtime.block_on(compare(&args)),
    }
}

async fn compare(chosen: &[String]) {
    pin(std::process::id(), 1);
    let wanted = |line: &str| chosen.is_empty() || chosen.iter().any(|word| word == line);
    println!(
        "{:>20}  {:>9} {:>8} {:>9}   {:>9} {:>8} {:>9}   {:>7} {:>7}",
        "load", "floor/s", "us CPU", "p99 us", "ours/s", "us CPU", "p99 us", "req/s", "CPU"
    );
    for (at_a_time, bytes) in LOADS.into_iter().filter(|load| wanted(&load.0.to_string())) {
        beside_the_floor(at_a_time, bytes).await;
    }
    if wanted("polled") {
        polled().await;
    }
    if wanted("held") {
        held().await;
    }
}

async fn beside_the_floor(at_a_time: usize, bytes: usize) {
    let floor = Subject::start(|at| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["serve-floor", &at.to_string()]);
        command
    });
    let plumbline = Subject::picker(1..=10);
    let (mut base, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        base.push(floor.load(at_a_time, bytes).await);
        ours.push(plumbline.load(at_a_time, bytes).await);
    }
    line(&format!("{at_a_time} x {bytes} B"), &base, &ours);
}

/// Prints what was measured in turn.
fn line(name: &str, base: &[Figures], ours: &[Figures]) {
    let of = |all: &[Figures], figure: fn(&Figures) -> f64| median(all.iter().map(figure));
    let ratio = |figure: fn(&Figures) -> f64| {
        median(ours.iter().zip(base).map(|(ours, base)| figure(ours) / figure(base)))
    };
    println!(
        "{name:>20}  {:>9.0} {:>8.1} {:>9.0}   {:>9.0} {:>8.1} {:>9.0}   {:>7.2} {:>7.2}",
        of(base, |it| it.per_second),
        of(base, |it| it.cpu_micros),
        of(base, |it| it.p99_micros),
        of(ours, |it| it.per_second),
        of(ours, |it| it.cpu_micros),
        of(ours, |it| it.p99_micros),
        ratio(|it| it.per_second),
        ratio(|it| it.cpu_micros)
    );
}

fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = figures.collect();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// What polling costs requests: both pickers on core 0, the polled servers with the client on core 1.
async fn polled() {
    const SERVERS: u16 = 100;
    let first = 20_000;
    let mut servers = Command::new(env!("CARGO_BIN_EXE_plumbline"));
    servers.args(["sim", "--count", &SERVERS.to_string(), "--port", &first.to_string()]);
    let servers = Subject::spawn(servers, SocketAddr::from(([127, 0, 0, 1], first)));
    pin(servers.process.id(), 1);
    let (mut few, mut many) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        // One at a time: a picker polls whether or not it serves.
        for (count, turns) in [(4, &mut few), (SERVERS, &mut many)] {
            turns.push(Subject::picker(first..=first + count - 1).load(16, 2 << 10).await);
        }
    }
    line("polled: 4 / 100", &few, &many);
}

/// Memory of a stream whose headers and first 2 KiB of body are there, and whose end is not.
async fn held() {
    let picker = Subject::picker(1..=10);
    let channel = picker.connect().await;
    // The first streams also pay for what all share.
    let mut open = client::hold(&channel, HELD / 10).await;
    let before = picker.resident_bytes();
    open.extend(client::hold(&channel, HELD).await);
    let each = (picker.resident_bytes() - before) / HELD as f64;
    println!("{HELD} held streams: {each:.0} B each, of them 2048 of the body");
}
