//! The recorded answers of the Go file-discovery plugin, played against ours with real files.
//!
//! Where we answer otherwise, `DIFFERENCES` says what and why; a line there that is no longer true
//! fails as much as a difference that is not there.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use plumbline::discovery::file::{FileDiscovery, FileError, Reloads};
use plumbline::discovery::{Discovery, Members};
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

const VECTORS: &str = include_str!("../../data/epp-vectors/file-discovery.jsonl");

/// No test waits this long unless it fails.
const PATIENCE: Duration = Duration::from_secs(30);

/// Case, what we answer, why. The answer is the compact form of [`compact`].
const DIFFERENCES: &[(&str, &str, &str)] = &[
    (
        "file-discovery/empty-file",
        "refused: endpoint file DIR/f.yaml: the file is empty; an empty pool is written `endpoints: []`",
        "a file that is being written is empty for a moment; an empty pool has a spelling of its own",
    ),
    (
        "file-discovery/unknown-key",
        "refused: endpoint file DIR/f.yaml: line 1: endpoints[0]: key \"weight\" is unknown (known: name, \
         namespace, address, port, labels); line 2: top level: key \"other\" is unknown (known: endpoints)",
        "a key that is ignored is a wish that is ignored",
    ),
    (
        "file-discovery/misspelt-top-key",
        "refused: endpoint file DIR/f.yaml: line 1: top level: key \"endpoint\" is unknown, did you mean \
         \"endpoints\"? (known: endpoints)",
        "one missing letter must not empty the pool without a word",
    ),
    (
        "file-discovery/no-name",
        "refused: endpoint file DIR/f.yaml: no entry is valid: line 1: endpoints[0] without a name: name is \
         missing or empty",
        "entries without a name would all be one endpoint, default/",
    ),
    ("file-discovery/ipv6", "a=[::1]:8000", "IPv6 servers are servers"),
    (
        "file-discovery/ipv4-in-ipv6",
        "a=10.0.0.1:8000",
        "the destination header must name the address as the gateway's own endpoints do",
    ),
    (
        "file-discovery/port-plus",
        "refused: endpoint file DIR/f.yaml: no entry is valid: line 1: endpoints[0] \"a\": port \"+8000\" is \
         not a number from 1 to 65535 without sign or leading zeros",
        "it would stand in the destination header as written, and no gateway connects to it",
    ),
    ("file-discovery/port-integer", "a=10.0.0.1:8000", "an unquoted port has only one meaning"),
    ("file-discovery/multicluster-dns", NO_MULTICLUSTER, "another plugin, not built yet"),
    ("file-discovery/multicluster-ipv6", NO_MULTICLUSTER, "another plugin, not built yet"),
    ("file-discovery/multicluster-bad-name", NO_MULTICLUSTER, "another plugin, not built yet"),
    (
        "file-discovery/watch-empty",
        "a=10.0.0.1:8000 b=10.0.0.2:8000 | a=10.0.0.1:8000 b=10.0.0.2:8000 | \
         a=10.0.0.1:8000 b=10.0.0.2:8000; \
         upsert default/a 10.0.0.1:8000, upsert default/b 10.0.0.2:8000",
        "an empty file is an accident or half a rewrite; it changes nothing",
    ),
    (
        "file-discovery/watch-rewrite-in-place",
        "a=10.0.0.1:8000 b=10.0.0.2:8000 | a=10.0.0.9:8000; \
         upsert default/a 10.0.0.1:8000, upsert default/b 10.0.0.2:8000, \
         upsert default/a 10.0.0.9:8000, delete default/b",
        "the same end, but the pool is not emptied in between and counters live on",
    ),
    (
        "file-discovery/watch-delete-recreate",
        "a=10.0.0.1:8000 b=10.0.0.2:8000 | a=10.0.0.1:8000 b=10.0.0.2:8000 | a=10.0.0.9:8000 | \
         a=10.0.0.9:8000; \
         upsert default/a 10.0.0.1:8000, upsert default/b 10.0.0.2:8000, \
         upsert default/a 10.0.0.9:8000, delete default/b",
        "a new file under the old name is followed",
    ),
    (
        "file-discovery/watch-moved-away",
        "a=10.0.0.1:8000 b=10.0.0.2:8000 | a=10.0.0.1:8000 b=10.0.0.2:8000 | a=10.0.0.9:8000; \
         upsert default/a 10.0.0.1:8000, upsert default/b 10.0.0.2:8000, \
         upsert default/a 10.0.0.9:8000, delete default/b",
        "a new file under the old name is followed",
    ),
    (
        "file-discovery/watch-configmap-swap-old-kept",
        "a=10.0.0.1:8000 b=10.0.0.2:8000 | a=10.0.0.9:8000; \
         upsert default/a 10.0.0.1:8000, upsert default/b 10.0.0.2:8000, \
         upsert default/a 10.0.0.9:8000, delete default/b",
        "a swapped link is followed whether or not the old folder goes",
    ),
];

const NO_MULTICLUSTER: &str = "no source multicluster-file-discovery";

type Run = JoinHandle<Result<(), FileError>>;

/// A running discovery, and what it said so far.
struct Followed {
    sets: mpsc::Receiver<Members>,
    reloads: Arc<Reloads>,
    drain: watch::Sender<bool>,
    running: Run,
    /// Endpoints by id, as they stand.
    now: BTreeMap<String, Value>,
    /// What the sets so far mean as single events, in upstream's words.
    events: Vec<String>,
}

impl Followed {
    fn start(path: &Path) -> Self {
        let reloads = Arc::new(Reloads::default());
        let (sink, sets) = mpsc::channel(16);
        let (drain, draining) = watch::channel(false);
        let running =
            tokio::spawn(FileDiscovery::new(path, Arc::clone(&reloads)).run(sink, draining));
        Self { sets, reloads, drain, running, now: BTreeMap::new(), events: Vec::new() }
    }

    /// Waits until `versions` of the file have been judged, and takes the sets sent by then.
    async fn judged(&mut self, versions: u64) {
        let mut states = self.reloads.subscribe();
        let reached = states.wait_for(|state| state.ok + state.failed >= versions);
        let state = tokio::time::timeout(PATIENCE, reached).await.expect("a change was missed");
        let count = state.map(|state| state.ok + state.failed).unwrap();
        assert_eq!(count, versions, "a version was judged that nobody wrote");
        while let Ok(Members(members)) = self.sets.try_recv() {
            let set: BTreeMap<_, _> =
                members.iter().map(|e| (e.id.to_string(), endpoint(e))).collect();
            for (id, endpoint) in &set {
                self.events.push(format!("upsert {id} {}", endpoint["scrape"].as_str().unwrap()));
            }
            for id in self.now.keys().filter(|id| !set.contains_key(*id)) {
                self.events.push(format!("delete {id}"));
            }
            self.now = set;
        }
    }

    fn endpoints(&self) -> Value {
        self.now.values().cloned().collect()
    }

    async fn end(self) {
        self.drain.send(true).unwrap();
        self.running.await.unwrap().unwrap();
    }
}

/// An endpoint in the words of the recording.
fn endpoint(e: &plumbline::endpoint::Endpoint) -> Value {
    let mut value = json!({
        "address": e.ip().to_string(),
        "id": e.id.as_str(),
        "port": e.address.port().to_string(),
        "scrape": e.address.to_string(),
    });
    if !e.labels.is_empty() {
        value["labels"] = json!(e.labels);
    }
    value
}

/// Starts on one file: the set, or the error.
async fn start_case(content: Option<&str>) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("f.yaml");
    if let Some(content) = content {
        fs::write(&path, content).unwrap();
    }
    let mut followed = Followed::start(&path);
    followed.judged(1).await;
    if followed.reloads.now().failed == 0 {
        let answer = json!({"endpoints": followed.endpoints(), "ready": true});
        followed.end().await;
        return answer;
    }
    let error = followed.running.await.unwrap().unwrap_err();
    let causes = std::iter::successors(Some(&error as &(dyn Error + 'static)), |e| (*e).source());
    let text = causes.map(ToString::to_string).collect::<Vec<_>>().join(": ");
    let text = text.replace(folder.path().to_str().unwrap(), "DIR");
    json!({"endpoints": followed.now.values().collect::<Vec<_>>(), "error": text, "ready": false})
}

const FIRST: &str = "endpoints:\n- {name: a, address: 10.0.0.1, port: \"8000\"}\n\
                     - {name: b, address: 10.0.0.2, port: \"8000\"}\n";
const NINE: &str = "endpoints:\n- {name: a, address: 10.0.0.9, port: \"8000\"}\n";

/// Something done to the file in a folder.
type Act = fn(&Path);

fn over(folder: &Path, text: &str) {
    fs::write(folder.join("new"), text).unwrap();
    fs::rename(folder.join("new"), folder.join("e.yaml")).unwrap();
}

/// The acts behind one step, by the words of the recording. A step of two halves (truncate, later
/// write) is two acts: the second comes when the first has been judged.
fn acts(step: &str) -> Vec<Act> {
    match step {
        "rename a new file over it: a=10.0.0.9" | "rename over it: a=10.0.0.9" => {
            vec![|d| over(d, NINE)]
        }
        "rename the first content over it" => vec![|d| over(d, FIRST)],
        "rename over it: `endpoints: [`" => vec![|d| over(d, "endpoints: [")],
        "rename over it: a as before, b with address x" => {
            vec![|d| over(d, &FIRST.replace("10.0.0.2", "x"))]
        }
        "truncate in place to 0 bytes" => vec![truncate],
        "write the first content in place" => vec![|d| fs::write(d.join("e.yaml"), FIRST).unwrap()],
        "open with truncate, 100 ms later write a=10.0.0.9" => vec![truncate, write_nine],
        "delete the file" => vec![|d| fs::remove_file(d.join("e.yaml")).unwrap()],
        "create it again: a=10.0.0.9" => vec![write_nine],
        "rename the file to e.bak" => {
            vec![|d| fs::rename(d.join("e.yaml"), d.join("e.bak")).unwrap()]
        }
        "new folder ..2 (a=10.0.0.9), ..data renamed onto it" => vec![|d| {
            fs::create_dir(d.join("..2")).unwrap();
            fs::write(d.join("..2/e.yaml"), NINE).unwrap();
            symlink("..2", d.join("..tmp")).unwrap();
            fs::rename(d.join("..tmp"), d.join("..data")).unwrap();
        }],
        other => panic!("the recording has a step that this test cannot play: {other}"),
    }
}

fn truncate(folder: &Path) {
    fs::OpenOptions::new().write(true).truncate(true).open(folder.join("e.yaml")).unwrap();
}

fn write_nine(folder: &Path) {
    fs::write(folder.join("e.yaml"), NINE).unwrap();
}

/// Plays the steps on a real file. A sentinel at the end shows that nothing is still under way.
async fn watch_case(case: &str, steps: &[Value]) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("e.yaml");
    assert_eq!(steps[0], "start with a=10.0.0.1:8000, b=10.0.0.2:8000");
    if case.contains("configmap") {
        fs::create_dir(folder.path().join("..1")).unwrap();
        fs::write(folder.path().join("..1/e.yaml"), FIRST).unwrap();
        symlink("..1", folder.path().join("..data")).unwrap();
        symlink("..data/e.yaml", &path).unwrap();
    } else {
        fs::write(&path, FIRST).unwrap();
    }
    let mut followed = Followed::start(&path);
    let mut versions = 1;
    followed.judged(versions).await;
    let mut after_each = vec![followed.endpoints()];
    for step in &steps[1..] {
        for act in acts(step.as_str().unwrap()) {
            let before = fs::read(&path).ok();
            act(folder.path());
            // The same content in a new inode is no new version.
            versions += u64::from(fs::read(&path).ok() != before);
            followed.judged(versions).await;
        }
        after_each.push(followed.endpoints());
    }
    let events = followed.events.clone();
    over(folder.path(), &NINE.replace("10.0.0.9", "10.0.0.99"));
    followed.judged(versions + 1).await;
    let sentinel = followed.events[events.len()..].to_vec();
    assert_eq!(sentinel[0], "upsert default/a 10.0.0.99:8000", "{case}");
    assert!(sentinel[1..].iter().all(|event| event.starts_with("delete")), "{case}: {sentinel:?}");
    followed.end().await;
    json!({"endpoints_after_each": after_each, "events": events})
}

async fn ours(vector: &Value) -> Value {
    let input = &vector["input"];
    if let Some(plugin) = input["plugin"].as_str() {
        return json!({"no source": plugin});
    }
    match &input["watch"] {
        Value::Array(steps) => watch_case(vector["case"].as_str().unwrap(), steps).await,
        _ => start_case(input["file"].as_str()).await,
    }
}

/// An answer in one line: `a=ip:port b=ip:port` (namespace `default` left out), `refused: why`, or per step and the events.
fn compact(answer: &Value) -> String {
    let set = |endpoints: &Value| {
        let one = |e: &Value| {
            let id = e["id"].as_str().unwrap();
            format!(
                "{}={}",
                id.strip_prefix("default/").unwrap_or(id),
                e["scrape"].as_str().unwrap()
            )
        };
        endpoints.as_array().unwrap().iter().map(one).collect::<Vec<_>>().join(" ")
    };
    if let Some(error) = answer["error"].as_str() {
        return format!("refused: {error}");
    }
    if let Some(steps) = answer["endpoints_after_each"].as_array() {
        let events: Vec<_> =
            answer["events"].as_array().unwrap().iter().map(|e| e.as_str().unwrap()).collect();
        let steps = steps.iter().map(set).collect::<Vec<_>>().join(" | ");
        return format!("{steps}; {}", events.join(", "));
    }
    match answer["no source"].as_str() {
        Some(plugin) => format!("no source {plugin}"),
        None => set(&answer["endpoints"]),
    }
}

/// Two refusals agree when both name the same entries; each system has its own words.
fn agree(theirs: &Value, ours: &Value) -> bool {
    let (Some(their_error), Some(our_error)) = (theirs["error"].as_str(), ours["error"].as_str())
    else {
        return theirs == ours;
    };
    let named = their_error.split("endpoint \"").skip(1).filter_map(|rest| rest.split('"').next());
    theirs["endpoints"] == ours["endpoints"]
        && theirs["ready"] == ours["ready"]
        && our_error.contains("DIR/f.yaml")
        && named.into_iter().all(|name| our_error.contains(&format!("{name:?}")))
}

/// Mutants: any rule of the document or of reloading changed; a line of `DIFFERENCES` removed,
/// altered, or added for a case that agrees.
#[tokio::test]
async fn file_discovery_answers_as_recorded_or_as_listed() {
    let vectors: Vec<Value> = VECTORS.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let mut listed: BTreeMap<&str, (&str, &str)> =
        DIFFERENCES.iter().map(|(case, answer, reason)| (*case, (*answer, *reason))).collect();
    assert_eq!(listed.len(), DIFFERENCES.len(), "a case is listed twice");
    let (mut agreed, mut wrong) = (0, Vec::new());
    for vector in &vectors {
        let case = vector["case"].as_str().unwrap();
        let answer = ours(vector).await;
        let same = agree(&vector["output"], &answer);
        match listed.remove(case) {
            None if same => agreed += 1,
            None => wrong.push(format!("{case}: not listed\n  {}", compact(&answer))),
            Some(_) if same => wrong.push(format!("{case}: listed, but agrees")),
            Some((expected, reason)) => {
                assert!(!reason.is_empty());
                if compact(&answer) != expected {
                    wrong.push(format!(
                        "{case}: listed with another answer\n  {}",
                        compact(&answer)
                    ));
                }
            }
        }
    }
    wrong.extend(listed.keys().map(|case| format!("{case}: listed, but not recorded")));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(vectors.len(), 33);
    let differ = DIFFERENCES.len();
    println!(
        "file-discovery: {} recorded, {agreed} agree, {differ} differ as listed",
        vectors.len()
    );
}
