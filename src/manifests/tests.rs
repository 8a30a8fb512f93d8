//! What changes of real files and folders do to the documents in force.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::Duration;

use tempfile::TempDir;
use tokio::task::JoinHandle;

use super::*;

/// No test waits this long unless it fails.
const PATIENCE: Duration = Duration::from_secs(30);

fn objective(name: &str, pool: &str, priority: &str) -> String {
    format!(
        "kind: InferenceObjective\napiVersion: llm-d.ai/v1alpha2\nmetadata: {{name: {name}}}\n\
         spec: {{poolRef: {{name: {pool}}}, priority: {priority}}}\n---\n"
    )
}

/// In one step, so that a slow machine sees no half of it.
fn put(path: &Path, text: impl AsRef<[u8]>) {
    let new = path.with_file_name(".new");
    fs::write(&new, text).unwrap();
    fs::rename(new, path).unwrap();
}

/// Objectives as `name=priority`.
fn spelled(content: &Content) -> String {
    let spell = |(name, priority): (&str, i32)| format!("{name}={priority}");
    content.objectives.iter().map(spell).collect::<Vec<_>>().join(" ")
}

/// A path that is followed by events alone.
struct Followed {
    changes: mpsc::Receiver<Content>,
    loads: Arc<Loads>,
    running: JoinHandle<()>,
}

impl Followed {
    fn start(path: &Path, pool: Option<&str>) -> (Self, String) {
        let (manifests, _) = Manifests::open(path, pool.map(str::to_owned)).unwrap();
        let first = spelled(&manifests.content());
        let (sink, changes) = mpsc::channel(4);
        let loads = Arc::new(Loads::default());
        let files = WatchedFiles::on_events_alone(path, Duration::from_millis(10));
        let running = tokio::spawn(manifests.follow_by(files, sink, Arc::clone(&loads)));
        (Self { changes, loads, running }, first)
    }

    async fn next(&mut self) -> String {
        let next = tokio::time::timeout(PATIENCE, self.changes.recv()).await;
        spelled(&next.expect("a change was missed").unwrap())
    }

    /// Waits for this many judged versions.
    async fn judged(&self, ok: u64, failed: u64) -> LoadState {
        let mut states = self.loads.subscribe();
        let reached = states.wait_for(|state| state.ok + state.failed >= ok + failed);
        let state = tokio::time::timeout(PATIENCE, reached).await.unwrap().unwrap().clone();
        assert_eq!((state.ok, state.failed), (ok, failed), "{state:?}");
        state
    }
}

/// Mutants: sending the version of the start again, counting it twice, a bad document that is dropped
/// or that costs its neighbours, a removed document that stays.
#[tokio::test]
async fn a_file_is_followed_and_a_bad_document_keeps_its_last_valid_version() {
    let root = TempDir::new().unwrap();
    let path = root.path().join("m.yaml");
    let write = |texts: &[String]| put(&path, texts.concat());
    write(&[objective("a", "p", "1"), objective("b", "p", "2"), objective("c", "p", "3")]);
    let (mut followed, first) = Followed::start(&path, None);
    assert_eq!(first, "a=1 b=2 c=3");
    followed.judged(1, 0).await;

    write(&[objective("a", "p", "10"), objective("b", "p", "high")]);
    assert_eq!(followed.next().await, "a=10 b=2");
    let state = followed.judged(1, 1).await;
    assert_eq!(state.rejected, 1);
    let error = state.last_error.unwrap();
    assert!(
        error.contains("m.yaml: document 2 (InferenceObjective default/b): line 9: spec.priority")
    );
    assert!(error.ends_with("(its last valid version stays)"), "{error}");

    // Twice bad is still kept; a document that cannot be identified may be any of this file.
    write(&[objective("a", "p", "11"), "a: [\n".to_owned()]);
    assert_eq!(followed.next().await, "a=11 b=2");
    write(&[objective("b", "p", "4")]);
    assert_eq!(followed.next().await, "b=4");
    followed.judged(2, 2).await;

    // An unreadable path keeps all; coming back unchanged is told as good.
    fs::rename(&path, root.path().join("away")).unwrap();
    let state = followed.judged(2, 3).await;
    assert!(state.last_error.unwrap().contains("m.yaml: the file cannot be read: No such file"));
    write(&[objective("b", "p", "4")]);
    assert_eq!(followed.next().await, "b=4");
    assert_eq!(followed.judged(3, 3).await.last_error, None);

    drop(followed.changes);
    tokio::time::timeout(PATIENCE, followed.running).await.unwrap().unwrap();
}

/// Mutants: a removed file whose documents stay; a bad file that empties the folder; the earlier file
/// counting for one name.
#[tokio::test]
async fn documents_of_a_folder_come_and_go_with_their_files() {
    let root = TempDir::new().unwrap();
    let at = |name: &str| root.path().join(name);
    put(&at("1.yaml"), objective("a", "p", "1") + &objective("c", "p", "3"));
    let (mut followed, first) = Followed::start(root.path(), None);
    assert_eq!(first, "a=1 c=3");
    put(&at("2.yaml"), objective("b", "p", "2") + &objective("a", "p", "9"));
    assert_eq!(followed.next().await, "a=9 b=2 c=3");
    put(&at("1.yaml"), [0xff]);
    assert_eq!(followed.next().await, "a=9 b=2 c=3");
    fs::remove_file(at("2.yaml")).unwrap();
    assert_eq!(followed.next().await, "c=3");
    fs::remove_file(at("1.yaml")).unwrap();
    assert_eq!(followed.next().await, "");
}

/// A moved document that turns bad on the way is still the same document. Mutant: keeping by file.
#[tokio::test]
async fn a_configmap_swap_keeps_what_it_breaks() {
    let root = TempDir::new().unwrap();
    let at = |name: &str| root.path().join(name);
    let version = |folder: &str, text: &str| {
        fs::create_dir(at(folder)).unwrap();
        fs::write(at(folder).join("m.yaml"), text).unwrap();
        symlink(folder, at("..tmp")).unwrap();
        fs::rename(at("..tmp"), at("..data")).unwrap();
    };
    version("..1", &(objective("a", "p", "1") + &objective("b", "p", "2")));
    symlink("..data/m.yaml", at("m.yaml")).unwrap();
    let (mut followed, first) = Followed::start(root.path(), None);
    assert_eq!(first, "a=1 b=2");
    version("..2", &(objective("a", "p", "oops") + &objective("c", "p", "3")));
    assert_eq!(followed.next().await, "a=1 c=3");
}

/// Mutants: the pool's name not compared; compared for `None`; no warning for several pools or none.
#[test]
fn a_pool_name_chooses_documents() {
    let root = TempDir::new().unwrap();
    let path = root.path().join("m.yaml");
    let text = objective("a", "p", "1") + &objective("b", "q", "2") + "kind: ConfigMap\n";
    fs::write(&path, text).unwrap();
    let open = |pool: Option<&str>| {
        let (manifests, findings) = Manifests::open(&path, pool.map(str::to_owned)).unwrap();
        (spelled(&manifests.content()), findings)
    };
    let (content, findings) = open(None);
    assert_eq!((content.as_str(), findings.taken, findings.warnings.len()), ("a=1 b=2", 2, 1));
    assert_eq!(findings.ignored["ConfigMap"], 1);
    let (content, findings) = open(Some("q"));
    assert_eq!((content.as_str(), findings.taken, findings.warnings.len()), ("b=2", 1, 0));
    let (content, findings) = open(Some("r"));
    assert_eq!((content.as_str(), findings.warnings.len()), ("", 1));
    assert!(findings.warnings[0].contains("they name p, q"), "{:?}", findings.warnings);
}

/// Mutant: a missing path as an empty set.
#[test]
fn a_missing_path_is_an_error() {
    let root = TempDir::new().unwrap();
    let error = Manifests::open(root.path().join("none"), None).unwrap_err();
    assert!(error.to_string().ends_with("none"), "{error}");
    assert!(matches!(error.cause, WatchedFileError::Unreadable(_)));
}

/// Mutant: a typo in the example.
#[test]
fn the_example_is_good() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/manifests.yaml");
    let (manifests, findings) = Manifests::open(path, None).unwrap();
    assert_eq!((findings.errors, findings.warnings), (vec![], vec![]));
    assert_eq!(findings.taken, 3);
    let content = manifests.content();
    assert_eq!(spelled(&content), "batch=-1 interactive=10");
    assert_eq!(content.rewrites.rules().count(), 2);
}
