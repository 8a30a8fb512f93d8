//! The dialogs that were recorded straight over gRPC.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::StreamExt as _;
use plumbline::conformance::connection::{Target, connect};
use plumbline::conformance::dialog::{Step, parse};
use plumbline::conformance::play::{Pace, Play};
use plumbline::flow::Limits;
use plumbline::manifests::{Content, Manifests};
use serde_json::Value;
use tonic::transport::Channel;

use super::normal::{self, POOL, SATURATED_POOL, extent, extent_of};
use super::pages::{self, Pages};
use super::summaries;
use super::table::{Outcome, Table, updating};
use crate::harness::{Picker, Plan, PoolFile};

/// Setups that do not exist yet: how many dialogs each has, and what they come with.
const LATER: &[(&str, usize, &str)] = &[
    ("flow-evict", 2, "flow control"),
    ("flow-idle", 5, "flow control"),
    ("flow-saturated", 7, "flow control"),
    ("grpc", 7, "gRPC parser"),
    ("kube-appprotocol-h2c", 1, "Kubernetes"),
    ("kube-appprotocol-h2c-vllmgrpc", 1, "Kubernetes"),
    ("kube-appprotocol-http", 1, "Kubernetes"),
    ("kube-leader-election", 1, "Kubernetes"),
    ("kube-nopool", 2, "Kubernetes"),
    ("kube-ranks", 1, "Kubernetes"),
    ("kube-v6", 5, "Kubernetes"),
    ("no-endpoint-filter", 1, "plugins"),
    ("openai-only", 1, "parser lists"),
    ("passthrough", 1, "parser lists"),
    ("pd", 1, "plugins"),
    ("pd-decode-only", 1, "plugins"),
    ("probabilistic", 1, "plugins"),
    ("reporter", 5, "plugins"),
    ("scores", 2, "plugins"),
    ("session", 2, "plugins"),
    ("sglang", 2, "parser lists"),
    ("testing-filter", 6, "plugins"),
    ("tracing", 3, "tracing"),
];

/// Setup `kube`.
const MANIFESTS: &str = include_str!("kube.yaml");

/// A recorded dialog.
pub struct Recorded {
    pub case: String,
    setup: String,
    pub request: Vec<Value>,
    pub response: Vec<Value>,
    picks: Option<Vec<String>>,
}

/// Every line of a recorded file.
pub fn lines(name: &str) -> Vec<Value> {
    let path = format!("{}/tests/data/{name}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn recorded() -> Vec<Recorded> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let list = |value: &Value| value.as_array().unwrap().clone();
    let read = |line: &Value| Recorded {
        case: text(&line["case"]),
        setup: text(&line["setup"]),
        request: list(&line["request"]),
        response: list(&line["response"]),
        picks: line["picks"].as_array().map(|picks| picks.iter().map(text).collect()),
    };
    lines("wire-golden.jsonl").iter().map(read).collect()
}

/// Pickers for the setups that exist.
struct Worlds {
    _pages: [Pages; 2],
    idle: Picker,
    empty: Picker,
    /// Takes no notice of subsets.
    unfiltered: Picker,
    /// With the objectives and rewrites of the recorded cluster, from a file.
    kube: Picker,
    /// The same before a saturated pool.
    saturated: Picker,
    /// The same before an empty one.
    nobody: Picker,
    /// Its endpoints come from a file, so that they can leave.
    file: Picker,
    file_pool: PoolFile,
    /// Empty at first, and requests wait as long as they did when it was recorded.
    room: Picker,
    room_pool: PoolFile,
    _folder: tempfile::TempDir,
}

impl Worlds {
    async fn start() -> Self {
        let pages =
            [Pages::start(&POOL, pages::IDLE), Pages::start(&SATURATED_POOL, pages::SATURATED)];
        let folder = tempfile::tempdir().unwrap();
        let plan = Plan::default();
        let idle = Picker::inside(plan.settings(&POOL.join(","))).await;
        let empty = Picker::inside(plan.settings("")).await;
        let mut settings = plan.settings(&POOL.join(","));
        settings.options.disable_subset_filter = true;
        let unfiltered = Picker::inside(settings).await;
        let manifests = folder.path().join("manifests.yaml");
        std::fs::write(&manifests, MANIFESTS).unwrap();
        let (opened, findings) = Manifests::open(manifests, Some("p".to_owned())).unwrap();
        assert!(findings.errors.is_empty(), "{:?}", findings.errors);
        let Content { rewrites, objectives } = opened.content();
        let cluster = async |endpoints: &str| {
            let mut settings = plan.settings(endpoints);
            let (rewrites, objectives) = (rewrites.clone(), objectives.clone());
            settings.policy = settings.policy.with_documents(rewrites, objectives);
            Picker::inside(settings).await
        };
        let kube = cluster(&POOL.join(",")).await;
        let saturated = cluster(&SATURATED_POOL.join(",")).await;
        let nobody = cluster("").await;
        let (file_pool, room_pool) = (PoolFile::empty(), PoolFile::empty());
        let file = Picker::inside(file_pool.source(plan.settings(""))).await;
        let wait = Duration::from_millis(1_500);
        let waiting_room = Some(Limits { wait, ..Limits::default() });
        let plan = Plan { waiting_room, ..plan };
        let room = Picker::inside(room_pool.source(plan.settings(""))).await;
        for picker in [&idle, &empty, &unfiltered, &kube, &saturated, &nobody, &file, &room] {
            picker.ready().await;
        }
        file_pool.set(&file, &POOL).await;
        Self {
            _pages: pages,
            idle,
            empty,
            unfiltered,
            kube,
            saturated,
            nobody,
            file,
            file_pool,
            room,
            room_pool,
            _folder: folder,
        }
    }

    /// The picker of a setup; none for one that is listed as coming later.
    fn of(&self, dialog: &Recorded) -> Option<&Picker> {
        let leaves = dialog.request.iter().any(|step| step.get("event").is_some());
        match dialog.setup.as_str() {
            "two-idle" if leaves => Some(&self.file),
            // Our limits are those of the large one, and health is always on both ports.
            "two-idle" | "big-recv" | "two-idle + --health-checking" => Some(&self.idle),
            "no-subset-filter" => Some(&self.unfiltered),
            "empty" => Some(&self.empty),
            "kube" => Some(&self.kube),
            "kube-saturated" => Some(&self.saturated),
            "kube-empty" => Some(&self.nobody),
            "flow-empty" => Some(&self.room),
            _ => None,
        }
    }

    async fn event(&self, what: &str) {
        match what {
            "all endpoints removed from the pool" => self.file_pool.set(&self.file, &[]).await,
            "endpoints restored" => self.file_pool.set(&self.file, &POOL).await,
            "one endpoint joins" => self.room_pool.set(&self.room, &POOL[..1]).await,
            "it leaves" => self.room_pool.set(&self.room, &[]).await,
            other => panic!("{other}"),
        }
    }
}

/// How often a dialog runs whose picks were recorded. Two endpoints, 24 runs: one of eight million
/// random choices misses one of them.
const RUNS: usize = 24;

/// Plays a dialog against its picker. `paced_by` is the line that is expected, which decides how long
/// to wait for what, and nothing else.
async fn replay(worlds: &Worlds, picker: &Picker, dialog: &Recorded, paced_by: &str) -> Outcome {
    let Recorded { case, request, response, picks, .. } = dialog;
    if let Some(outcome) = summaries::replay(picker, dialog).await {
        return outcome;
    }
    let steps = parse(request).unwrap_or_else(|error| panic!("{case}: {error}"));
    let target = Target { address: picker.grpc.to_string(), tls: false };
    let channel = connect(&target).await.unwrap();
    let (answers, open) = play(worlds, &channel, &steps, paced_by).await;
    let mut outcome = Outcome {
        case: case.clone(),
        recorded: normal::recorded(request, response),
        ours: normal::ours(request, response, &answers, open),
    };
    if let Some(picks) = picks {
        let joined = |picks: &mut dyn Iterator<Item = &String>| {
            format!("; picks {}", picks.map(String::as_str).collect::<Vec<_>>().join(" "))
        };
        outcome.recorded += &joined(&mut picks.iter());
        let expected = paced_by.rfind("; picks ").map_or(&*outcome.recorded, |at| &paced_by[at..]);
        let mut seen = normal::picks(&answers);
        // A request of a dialog that runs beside this one draws ours to the other endpoint while it
        // lasts, so an endpoint that is expected and not seen yet gets more runs.
        for run in 1..RUNS * 20 {
            if run >= RUNS && expected.ends_with(&joined(&mut seen.iter())) {
                break;
            }
            seen.extend(normal::picks(&play(worlds, &channel, &steps, paced_by).await.0));
        }
        outcome.ours += &joined(&mut seen.iter());
    }
    outcome
}

async fn play(
    worlds: &Worlds,
    channel: &Channel,
    steps: &[Step],
    paced_by: &str,
) -> (Vec<plumbline::conformance::play::Answer>, bool) {
    // Against a line that is out of date every step waits in vain; what comes too early for it must
    // still be told after the step that it belongs to.
    let (patience, quiet) = if updating() { (3_000, 60) } else { (10_000, 5) };
    let pace =
        Pace { patience: Duration::from_millis(patience), quiet: Duration::from_millis(quiet) };
    let mut play = Play::open(channel, steps);
    for (index, step) in steps.iter().enumerate() {
        if let Step::Event(what) = step {
            worlds.event(what).await;
        }
        let due = extent_of(paced_by, index);
        let done = |answers: &[_]| {
            let said = extent(answers);
            // Every dialog ends, and an end is always listened for.
            index + 1 < steps.len() && said.0 >= due.0 && said.1 >= due.1 && said.2 >= due.2
        };
        play.step(index, step, &pace, done).await;
    }
    play.finish()
}

/// Every recorded dialog is equal, listed with a reason, or of a setup that is listed as coming later.
/// Mutants: any change of an answer, such as `clear_route_cache` left out; a line of the file removed,
/// added or changed.
#[tokio::test]
async fn recorded_dialogs_are_equal_or_differ_for_a_reason() {
    let dialogs = recorded();
    assert_eq!(dialogs.len(), 278);
    let table = Table::read("differences.txt");
    let worlds = Worlds::start().await;
    let mut later = BTreeMap::<&str, usize>::new();
    let (mut aside, mut shared) = (Vec::new(), Vec::new());
    for dialog in &dialogs {
        match worlds.of(dialog) {
            None => *later.entry(&dialog.setup).or_default() += 1,
            // What changes the pool, or counts what is in flight, runs alone.
            Some(picker) if summaries::runs_alone(dialog) => aside.push((dialog, picker)),
            Some(picker) => shared.push((dialog, picker)),
        }
    }
    let listed: BTreeMap<_, _> = LATER.iter().map(|(setup, count, _)| (*setup, *count)).collect();
    assert_eq!(later, listed, "setups that come later");
    let run = async |(dialog, picker): &(&Recorded, &Picker)| {
        let recorded = normal::recorded_or_summary(&dialog.request, &dialog.response);
        let listed = table.lines.get(&dialog.case).filter(|_| !updating());
        let expected = listed.map_or(&recorded, |listed| &listed.answer);
        replay(&worlds, picker, dialog, expected).await
    };
    let together = futures_util::stream::iter(&shared).map(run).buffer_unordered(24);
    let mut outcomes: Vec<_> = together.collect().await;
    for alone in &aside {
        outcomes.push(run(alone).await);
    }
    let waiting: usize = LATER.iter().map(|(_, count, _)| count).sum();
    println!("{waiting} dialogs of {} setups come later", LATER.len());
    table.judge(&outcomes, "dialogs");
}
