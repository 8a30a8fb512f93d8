//! Decision quality: our default against what others do, on one simulated pool, in one table.
//!
//! Decides workloads, seeds and what counts as worse. The rules that are judged are the crate's own
//! code; the servers are those of `simulation/server.rs`. `PLUMBLINE_POLICY=full` runs every workload for
//! longer and with more seeds; the short form is a part of it. `PLUMBLINE_TRACES` names the folder of
//! public traces. Columns: share of good requests (first token within 1 s, 0.1 s for each further one) and
//! 99th percentile of the time to the first token in milliseconds.

mod simulation;

use std::path::PathBuf;

use simulation::SECOND;
use simulation::drive;
use simulation::figures::{Figures, mean, worse};
use simulation::rule::Rule;
use simulation::server::Hardware;
use simulation::workload::{Event, Lengths, Workload};

/// Differences below these are noise whatever the seeds say: one good request in 200, 2 % of a second.
const LEAST_GOOD: f64 = 0.005;
const LEAST_TTFT: f64 = 0.02;

/// How much is run.
struct Form {
    seconds: u64,
    seeds: u64,
    full: bool,
}

impl Form {
    fn asked() -> Self {
        match std::env::var("PLUMBLINE_POLICY").as_deref() {
            Ok("full") => Self { seconds: 120, seeds: 5, full: true },
            _ => Self { seconds: 30, seeds: 3, full: false },
        }
    }

    fn workloads(&self) -> Vec<Workload> {
        let of = |name, hardware, lengths, load| {
            Workload::new(name, hardware, lengths, load, self.seconds)
        };
        let mixed = |name, hardware, load| of(name, hardware, Lengths::mixed(), load);
        let middle = 10 * SECOND + self.seconds * SECOND / 3;
        let burst = of("500 in 50 ms", Hardware::H100, Lengths::chat(), 0.5);
        let half = mixed("4 of 8 half speed", Hardware::H100, 0.9);
        let join = mixed("one joins", Hardware::H100, 1.0);
        let fails = mixed("one fails fast", Hardware::H100, 0.9);
        let replicas = mixed("4 pickers", Hardware::H100, 0.95);
        let slow = vec![2.0, 2.0, 2.0, 2.0, 1.0, 1.0, 1.0, 1.0];
        let mut all = vec![
            mixed("h100 70 %", Hardware::H100, 0.7),
            mixed("h100 95 %", Hardware::H100, 0.95),
            mixed("KV-tight 70 %", Hardware::KV_TIGHT, 0.7),
            mixed("KV-tight 95 %", Hardware::KV_TIGHT, 0.95),
            Workload { burst: 500, ..burst },
            Workload { slowness: slow, ..half },
            Workload { event: Event::Joins(middle), ..join },
            Workload { event: Event::FailsFast(middle, middle + 10 * SECOND), ..fails },
            Workload { replicas: 4, ..replicas },
        ];
        if self.full {
            all.push(of("slots 95 %", Hardware::SLOTS, Lengths::chat(), 0.95));
        }
        match Lengths::azure(&traces().join("azure-2023-conv.csv")) {
            Ok(Some(rows)) => all.push(of("Azure conv. 90 %", Hardware::H100, rows, 0.9)),
            Ok(None) => {
                println!("(no trace: PLUMBLINE_TRACES names a folder with azure-2023-conv.csv)")
            }
            Err(error) => println!("({error})"),
        }
        all
    }

    fn rules(&self) -> Vec<(&'static str, Rule)> {
        let mut rules = vec![("prefill-load (default)", Rule::ours())];
        let short =
            ["random", "round robin", "upstream default", "upstream + active", "fewest of our own"];
        let rivals = Rule::rivals().into_iter();
        rules.extend(rivals.filter(|(name, _)| self.full || short.contains(name)));
        rules.push(("default without ledger", Rule::broken()));
        rules
    }
}

fn traces() -> PathBuf {
    std::env::var_os("PLUMBLINE_TRACES").map_or_else(|| "../shared/traces".into(), PathBuf::from)
}

/// One rule on one workload, seed by seed.
struct Cell {
    good: Vec<f64>,
    ttft: Vec<f64>,
}

fn cell(workload: &Workload, capacity: f64, rule: &Rule, seeds: u64) -> Cell {
    let run = |seed| {
        let jobs = workload.jobs(capacity, seed);
        let figures = drive::run(workload, &jobs, rule, seed);
        // Every request that was measured ends, once, or is told as unsettled.
        assert!(figures.requests > 0 && figures.settled <= figures.requests, "{figures:?}");
        figures
    };
    let figures: Vec<Figures> = (1..=seeds).map(run).collect();
    Cell {
        good: figures.iter().map(|figures| figures.good).collect(),
        ttft: figures.iter().map(|figures| figures.ttft[1]).collect(),
    }
}

fn main() {
    let form = Form::asked();
    let (workloads, rules) = (form.workloads(), form.rules());
    println!(
        "decision quality: good share / TTFT p99 in ms; {} s measured, {} seeds\n",
        form.seconds, form.seeds
    );
    let mut rows: Vec<Vec<Cell>> = rules.iter().map(|_| Vec::new()).collect();
    for workload in &workloads {
        let capacity = drive::capacity(workload);
        for (row, (_, rule)) in rows.iter_mut().zip(&rules) {
            row.push(cell(workload, capacity, rule, form.seeds));
        }
    }
    print!("{:24}", "");
    workloads.iter().for_each(|workload| print!("{:>18}", workload.name));
    println!();
    for ((name, _), row) in rules.iter().zip(&rows) {
        print!("{name:24}");
        for cell in row {
            print!("{:>11.3} {:>6.0}", mean(&cell.good).0, mean(&cell.ttft).0 * 1e3);
        }
        println!();
    }
    println!();
    judge(&workloads, &rules, &rows);
}

/// Says where a rival is better than our default by more than noise.
fn judge(workloads: &[Workload], rules: &[(&str, Rule)], rows: &[Vec<Cell>]) {
    let mut lost = 0;
    let rivals = || rules.iter().zip(rows).skip(1).filter(|((_, rule), _)| *rule != Rule::broken());
    for (at, workload) in workloads.iter().enumerate() {
        let ours = &rows[0][at];
        for ((name, _), row) in rivals() {
            let negative = |values: &[f64]| values.iter().map(|v| -v).collect::<Vec<_>>();
            if let Some(by) = worse(&negative(&ours.good), &negative(&row[at].good), LEAST_GOOD) {
                println!("  {}: {name} has {by:.3} more good requests", workload.name);
                lost += 1;
            }
            if let Some(by) = worse(&ours.ttft, &row[at].ttft, LEAST_TTFT) {
                println!("  {}: {name} has {:.0} ms less TTFT p99", workload.name, by * 1e3);
                lost += 1;
            }
        }
    }
    if lost == 0 {
        println!("  the default is best or within noise in every workload");
    }
}
