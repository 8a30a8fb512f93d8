//! Cost of scraping: the parser alone, and the poller beside one that fetches the same pages over kept
//! connections and throws them away.
//!
//! Prints gigabytes a second of the parser on a 33 KB page; then CPU microseconds a page of both
//! pollers and their ratio, the ages that a reader finds, and resident memory. Pollers run in turn on
//! core 0, the page server on core 1 where `taskset` is there. Short by default; `PLUMBLINE_ENDPOINTS`
//! (200) and `PLUMBLINE_SECONDS` (3) ask for more, 1000 being the size that the design promises.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use plumbline::endpoint::Endpoint;
use plumbline::poller::engines::Engines;
use plumbline::poller::reading::read_page;
use plumbline::poller::{Poller, Scrapes, Scraping};
use plumbline::store::Store;
use plumbline::telemetry::metrics::Metrics;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep, sleep_until};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const INTERVAL: Duration = Duration::from_millis(50);
/// Until connections are made and caches are warm.
const WARM_UP: Duration = Duration::from_secs(2);
/// Times each poller takes its turn.
const TURNS: usize = 3;
const PARSED_PAGE: usize = 33_000;
const SERVED_PAGE: usize = 43_000;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve", address] => runtime.block_on(serve(address.parse().unwrap())),
        ["poll", kind, port] => runtime.block_on(poll(kind, port.parse().unwrap())),
        _ => compare(),
    }
}

fn from_environment(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().map_or(otherwise, |text| text.parse().unwrap())
}

fn endpoints() -> u64 {
    from_environment("PLUMBLINE_ENDPOINTS", 200)
}

fn seconds() -> Duration {
    Duration::from_secs(from_environment("PLUMBLINE_SECONDS", 3))
}

fn compare() {
    pin(std::process::id(), 0);
    parse();
    let address = plumbline::envoy::free_port().unwrap();
    let server = Part::start(&["serve", &address.to_string()], 1);
    // Until it listens.
    while std::net::TcpStream::connect(address).is_err() {}
    let port = address.port().to_string();
    println!(
        "{} endpoints, {SERVED_PAGE} bytes, every {INTERVAL:?}, {:?}:",
        endpoints(),
        seconds()
    );
    // In turn, and the cheapest turn of each: noise only ever adds.
    let mut best = [f64::INFINITY; 2];
    for _ in 0..TURNS {
        for (kind, best) in ["discard", "ours"].into_iter().zip(&mut best) {
            let poller = Part::start(&["poll", kind, &port], 0);
            let said = poller.output();
            print!("  {kind:>8}  {said}");
            let cost = said.split_whitespace().next().unwrap();
            *best = best.min(cost.parse::<f64>().unwrap());
        }
    }
    println!("  CPU ratio {:.2}", best[1] / best[0]);
    drop(server);
}

/// The parser, on one page again and again.
fn parse() {
    let engines = Engines::default();
    let engine = engines.of(&BTreeMap::new());
    let page = page(PARSED_PAGE);
    let mut best = f64::INFINITY;
    for _ in 0..1000 {
        let start = Instant::now();
        for _ in 0..20 {
            let reading = read_page(std::hint::black_box(page.as_bytes()), engine);
            assert!(std::hint::black_box(reading).faults.is_empty());
        }
        best = best.min(start.elapsed().as_secs_f64() / 20.0);
    }
    let rate = page.len() as f64 / best / 1e9;
    println!("parser: {rate:.1} GB/s, {:.1} us a page of {} bytes", best * 1e6, page.len());
}

/// A page as a vLLM server writes it: a few gauges and counters among many histograms.
fn page(bytes: usize) -> String {
    let mut page = String::new();
    let labels = "engine=\"0\",model_name=\"meta-llama/Llama-3.1-8B-Instruct\"";
    let mut family = |name: &str, kind: &str, series: &[(&str, &str, f64)]| {
        writeln!(page, "# HELP {name} What the server says about {name}.\n# TYPE {name} {kind}")
            .unwrap();
        for (suffix, more, value) in series {
            writeln!(page, "{name}{suffix}{{{labels}{more}}} {value:?}").unwrap();
        }
        page.len()
    };
    family("vllm:num_requests_running", "gauge", &[("", "", 17.0)]);
    family("vllm:num_requests_waiting", "gauge", &[("", "", 3.0)]);
    family("vllm:kv_cache_usage_perc", "gauge", &[("", "", 0.437_219_3)]);
    for name in ["prefix_cache_queries", "prefix_cache_hits", "num_preemptions"] {
        family(&format!("vllm:{name}_total"), "counter", &[("", "", 123_456_789.0)]);
    }
    family("vllm:prompt_tokens_total", "counter", &[("", "", 9_123_456.0)]);
    family("vllm:generation_tokens_total", "counter", &[("", "", 1_823_456.0)]);
    let reasons = ["stop", "length", "abort"].map(|r| format!(",finished_reason=\"{r}\""));
    let reasons: Vec<_> = reasons.iter().map(|reason| ("", reason.as_str(), 777.0)).collect();
    family("vllm:request_success_total", "counter", &reasons);
    let cache = ",block_size=\"16\",cache_dtype=\"auto\",calculate_kv_scales=\"False\",\
                 cpu_offload_gb=\"0\",enable_prefix_caching=\"True\",\
                 gpu_memory_utilization=\"0.9\",is_attention_free=\"False\",\
                 num_cpu_blocks=\"None\",num_gpu_blocks=\"27447\",sliding_window=\"None\",\
                 swap_space=\"4\",swap_space_bytes=\"4294967296\"";
    family("vllm:cache_config_info", "gauge", &[("", cache, 1.0)]);
    family("process_start_time_seconds", "gauge", &[("", "", 1_785_000_000.25)]);
    let bounds = (0..22).map(|at| format!(",le=\"{:?}\"", 0.001 * 1.7_f64.powi(at)));
    let bounds: Vec<_> = bounds.chain([",le=\"+Inf\"".to_owned()]).collect();
    let buckets = bounds.iter().map(|bound| ("_bucket", bound.as_str(), 23_452.0));
    let rest = [("_count", "", 23_452.0), ("_sum", "", 1_234_567.891)];
    let histogram: Vec<_> = buckets.chain(rest).collect();
    let names = [
        "request_prompt_tokens",
        "request_generation_tokens",
        "time_to_first_token_seconds",
        "inter_token_latency_seconds",
        "e2e_request_latency_seconds",
        "request_queue_time_seconds",
        "request_inference_time_seconds",
        "request_prefill_time_seconds",
        "request_decode_time_seconds",
        "request_params_max_tokens",
        "iteration_tokens_total",
        "request_max_num_generation_tokens",
    ];
    for (round, name) in (0..4).flat_map(|round| names.map(|name| (round, name))) {
        // Pages of larger servers have more of the same kind, under other names.
        let more = if round == 0 { String::new() } else { format!("_{round}") };
        if family(&format!("vllm:{name}{more}"), "histogram", &histogram) >= bytes {
            break;
        }
    }
    page
}

/// Serves the page to whoever asks, over kept connections.
async fn serve(address: SocketAddr) {
    let page = page(SERVED_PAGE);
    let length = page.len();
    let answer = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n\r\n{page}"
    );
    let answer: Arc<[u8]> = answer.into_bytes().into();
    let any = SocketAddr::from(([0, 0, 0, 0], address.port()));
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_reuseaddr(true).unwrap();
    socket.bind(any).unwrap();
    let listener: TcpListener = socket.listen(4096).unwrap();
    loop {
        let (mut tcp, _) = listener.accept().await.unwrap();
        tcp.set_nodelay(true).unwrap();
        let answer = Arc::clone(&answer);
        tokio::spawn(async move {
            let mut request = Vec::with_capacity(1024);
            while tcp.read_buf(&mut request).await.is_ok_and(|read| read > 0) {
                if request.ends_with(b"\r\n\r\n") {
                    request.clear();
                    if tcp.write_all(&answer).await.is_err() {
                        return;
                    }
                }
            }
        });
    }
}

/// Addresses of their own on loopback, all answered by one server.
fn addresses(port: u16) -> impl Iterator<Item = SocketAddr> {
    let ip =
        |at: u64| [127, 1, u8::try_from(at / 250).unwrap(), u8::try_from(at % 250 + 1).unwrap()];
    (0..endpoints()).map(move |at| SocketAddr::from((ip(at), port)))
}

/// Polls for the time asked for and prints what it cost.
async fn poll(kind: &str, port: u16) {
    let pages = Arc::new(AtomicU64::new(0));
    let ours = (kind == "ours").then(|| ours(port));
    if ours.is_none() {
        discard(port, &pages);
    }
    let count = || match &ours {
        Some((_, metrics)) => metrics.scrapes.with_label_values(&["ok"]).get(),
        None => pages.load(Ordering::Relaxed),
    };
    sleep(WARM_UP).await;
    let (cpu, before, start) = (cpu_nanos(), count(), Instant::now());
    let mut ages = Vec::new();
    let mut loads = Vec::new();
    let mut turn = 0_u64;
    while start.elapsed() < seconds() {
        // Not a divisor of the interval, so that every phase is seen.
        sleep(Duration::from_millis(13)).await;
        turn += 1;
        if let Some((store, _)) = &ours
            && turn.is_multiple_of(3)
        {
            store.read_loads(&store.pool(), Instant::now().into_std(), &mut loads);
            ages.extend(loads.iter().map(|load| load.waiting.age().unwrap_or(Duration::MAX)));
        }
    }
    let (took, done) = (start.elapsed().as_secs_f64(), (count() - before) as f64);
    let cpu = (cpu_nanos() - cpu) as f64;
    ages.sort_unstable();
    let of = |share: f64| ages.get((ages.len() as f64 * share) as usize).copied();
    let age = |share| {
        of(share).map_or("-".to_owned(), |age| format!("{:.0} ms", age.as_secs_f64() * 1e3))
    };
    println!(
        "{:.2} us CPU a page, {:.0} pages/s, {:.0} % of a core, age p50 {} p99 {}, RSS {} MB",
        cpu / 1e3 / done,
        done / took,
        cpu / 1e7 / took,
        age(0.5),
        age(0.99),
        resident_megabytes()
    );
}

fn ours(port: u16) -> (Store, Arc<Metrics>) {
    let (store, mut members) = Store::new(Instant::now().into_std());
    let endpoint = |(at, address)| Endpoint::new("default", &format!("e{at}"), address);
    let change = members.apply(addresses(port).enumerate().map(endpoint).collect());
    let metrics = Arc::new(Metrics::new().unwrap());
    let poller = Poller::new(
        store.clone(),
        Arc::clone(&metrics),
        Scrapes::default(),
        Scraping::default(),
        INTERVAL,
    );
    for member in &change.started {
        poller.spawn(member, None);
    }
    (store, metrics)
}

/// The least that any poller does: ask, read to the end, wait for the next tick.
fn discard(port: u16, pages: &Arc<AtomicU64>) {
    for (at, address) in addresses(port).enumerate() {
        let pages = Arc::clone(pages);
        tokio::spawn(async move {
            let mut tcp = TcpStream::connect(address).await.unwrap();
            tcp.set_nodelay(true).unwrap();
            let request = format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\n\r\n");
            let mut next = Instant::now() + INTERVAL.mul_f64((at as f64 * 0.618_034).fract());
            let mut length = None;
            loop {
                tcp.write_all(request.as_bytes()).await.unwrap();
                let mut read = 0;
                while length.is_none_or(|length| read < length) {
                    tcp.readable().await.unwrap();
                    read += SCRATCH.with_borrow_mut(|scratch| match tcp.try_read(scratch) {
                        Ok(read) => {
                            length.get_or_insert_with(|| whole_length(&scratch[..read]));
                            read
                        }
                        Err(_) => 0,
                    });
                }
                pages.fetch_add(1, Ordering::Relaxed);
                // Missed ticks are not made up for, as in ours.
                while next <= Instant::now() {
                    next += INTERVAL;
                }
                sleep_until(next).await;
            }
        });
    }
}

thread_local! {
    static SCRATCH: std::cell::RefCell<Vec<u8>> = std::cell::RefCell::new(vec![0; 64 << 10]);
}

/// Bytes of an answer, of which these are the first.
fn whole_length(head: &[u8]) -> usize {
    let text = String::from_utf8_lossy(head);
    let (head, _) = text.split_once("\r\n\r\n").unwrap();
    let length = head.rsplit_once("Content-Length: ").unwrap().1;
    head.len() + 4 + length.parse::<usize>().unwrap()
}

/// CPU time of this process, which has one thread.
fn cpu_nanos() -> u64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").unwrap();
    text.split_whitespace().next().unwrap().parse().unwrap()
}

fn resident_megabytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}

/// Keeps a process on one core; without `taskset` the scheduler decides.
fn pin(process: u32, core: u8) {
    let _ = Command::new("taskset")
        .args(["-a", "-p", "-c", &core.to_string(), &process.to_string()])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
}

/// This program in another part, on a core.
struct Part(Child);

impl Part {
    fn start(args: &[&str], core: u8) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let child = command.args(args).stdout(Stdio::piped()).spawn().unwrap();
        pin(child.id(), core);
        Self(child)
    }

    fn output(mut self) -> String {
        let mut said = String::new();
        std::io::Read::read_to_string(&mut self.0.stdout.take().unwrap(), &mut said).unwrap();
        said
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
