//! The followed file as a whole: any sequence of changes that ends with a good file ends with its set.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use tokio::sync::mpsc;

use super::*;

/// No test waits this long unless it fails.
const PATIENCE: Duration = Duration::from_secs(30);

/// A way of putting content where the file is, whatever is there.
#[derive(Debug, Clone, Copy)]
enum Put {
    InPlace,
    RenameOver,
    DeleteThenCreate,
    MoveAwayThenCreate,
    ConfigMap { keep_old: bool },
    NewParent,
    ParentMovedAway,
}

#[derive(Debug, Clone, Copy)]
enum Content {
    Good(u8),
    Bad,
    Empty,
}

impl Content {
    fn text(self) -> String {
        match self {
            Self::Good(n) => format!("endpoints: [{{name: a, address: 10.0.0.{n}, port: 80}}]\n"),
            Self::Bad => "endpoints: [\n".to_owned(),
            Self::Empty => String::new(),
        }
    }
}

/// Puts `content` at `root/conf/e.yaml`; `number` keeps names apart.
fn put(root: &Path, number: usize, way: Put, content: Content) -> std::io::Result<()> {
    let (conf, file) = (root.join("conf"), root.join("conf/e.yaml"));
    let text = content.text();
    match way {
        Put::InPlace => return fs::write(&file, text),
        Put::RenameOver => {
            fs::write(conf.join("new"), text)?;
            return fs::rename(conf.join("new"), &file);
        }
        Put::DeleteThenCreate => fs::remove_file(&file)?,
        Put::MoveAwayThenCreate => fs::rename(&file, conf.join("e.bak"))?,
        Put::ConfigMap { keep_old } => {
            let version = format!("..{number}");
            fs::create_dir(conf.join(&version))?;
            fs::write(conf.join(&version).join("e.yaml"), text)?;
            let old = fs::read_link(conf.join("..data"));
            symlink(&version, conf.join("..tmp"))?;
            fs::rename(conf.join("..tmp"), conf.join("..data"))?;
            if fs::read_link(&file).is_err() {
                fs::remove_file(&file)?;
                symlink("..data/e.yaml", &file)?;
            }
            return match old {
                Ok(old) if !keep_old => fs::remove_dir_all(conf.join(old)),
                _ => Ok(()),
            };
        }
        Put::NewParent => {
            fs::remove_dir_all(&conf)?;
            fs::create_dir(&conf)?;
        }
        Put::ParentMovedAway => {
            fs::rename(&conf, root.join(format!("old{number}")))?;
            fs::create_dir(&conf)?;
        }
    }
    fs::write(&file, text)
}

fn ways() -> impl Strategy<Value = Put> {
    prop_oneof![
        Just(Put::InPlace),
        Just(Put::RenameOver),
        Just(Put::DeleteThenCreate),
        Just(Put::MoveAwayThenCreate),
        any::<bool>().prop_map(|keep_old| Put::ConfigMap { keep_old }),
        Just(Put::NewParent),
        Just(Put::ParentMovedAway),
    ]
}

fn contents() -> impl Strategy<Value = Content> {
    prop_oneof![(1..=9_u8).prop_map(Content::Good), Just(Content::Bad), Just(Content::Empty)]
}

fn address(members: &Members) -> String {
    members.0.iter().map(|endpoint| endpoint.address.to_string()).collect()
}

/// Receives until the set at `wanted` comes; whatever comes before it is of no interest.
async fn reaches(sets: &mut mpsc::Receiver<Members>, wanted: &str) -> Result<(), TestCaseError> {
    let reached = tokio::time::timeout(PATIENCE, async {
        while let Some(members) = sets.recv().await {
            if address(&members) == wanted {
                return true;
            }
        }
        false
    });
    prop_assert_eq!(reached.await, Ok(true), "{} was never sent", wanted);
    Ok(())
}

/// Runs the changes, each after `pause` turns of the runtime, so that looks fall between and across
/// them; then a last good file. The set after that one must be the sentinel's.
async fn ends_right(changes: Vec<(Put, Content, u16)>, last: Put) -> Result<(), TestCaseError> {
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("conf/e.yaml");
    fs::create_dir(root.path().join("conf")).unwrap();
    fs::write(&file, Content::Good(100).text()).unwrap();

    let (sink, mut sets) = mpsc::channel(64);
    let discovery = FileDiscovery::new(&file, Arc::default());
    let watched = WatchedFile::on_events_alone(&file, Duration::from_millis(1));
    let following = tokio::spawn(async move { discovery.follow(watched, &sink).await });
    reaches(&mut sets, "10.0.0.100:80").await?;

    let count = changes.len();
    let all = changes.into_iter().chain([(last, Content::Good(200), 0)]);
    for (number, (way, content, pause)) in all.enumerate() {
        put(root.path(), number, way, content).unwrap();
        for _ in 0..pause {
            tokio::task::yield_now().await;
        }
    }
    reaches(&mut sets, "10.0.0.200:80").await?;
    put(root.path(), count + 1, Put::RenameOver, Content::Good(201)).unwrap();
    let after = tokio::time::timeout(PATIENCE, sets.recv()).await.unwrap().unwrap();
    prop_assert_eq!(address(&after), "10.0.0.201:80");
    following.abort();
    Ok(())
}

/// Mutants: keeping the watches when something moved, or watching the file instead of its directory
/// (a set that never comes).
#[test]
fn after_any_changes_the_last_good_file_counts() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let config = Config { cases: 64, failure_persistence: None, ..Config::default() };
    let mut runner =
        TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let changes = (prop::collection::vec((ways(), contents(), 0..2000_u16), 0..8), ways());
    runner.run(&changes, |(changes, last)| runtime.block_on(ends_right(changes, last))).unwrap();
}

/// Mutants: sending before the file is good, an error without path or cause, a bad start that waits.
#[tokio::test]
async fn a_bad_start_is_an_error_that_names_path_and_cause() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("e.yaml");
    for (content, cause) in [(None, "No such file"), (Some("endpoint: []"), "did you mean")] {
        if let Some(content) = content {
            fs::write(&path, content).unwrap();
        }
        let reloads = Arc::new(Reloads::default());
        let (sink, mut sets) = mpsc::channel(1);
        let (_keep, drain) = watch::channel(false);
        let discovery = FileDiscovery::new(&path, Arc::clone(&reloads));
        let error = in_one_line(&discovery.run(sink, drain).await.unwrap_err());
        assert!(error.contains(path.to_str().unwrap()) && error.contains(cause), "{error}");
        assert_eq!(reloads.now().last_error, Some(error));
        assert!(sets.recv().await.is_none());
    }
}

/// Mutants: counts swapped, an old error that stays after a good file, an unchanged set sent again,
/// a drain that is not heeded.
#[tokio::test]
async fn reloads_are_counted_and_the_drain_ends_it() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("e.yaml");
    let reloads = Arc::new(Reloads::default());
    let mut states = reloads.subscribe();
    let (sink, mut sets) = mpsc::channel(8);
    let (stop, drain) = watch::channel(false);
    fs::write(&path, Content::Good(1).text()).unwrap();
    let running = tokio::spawn(FileDiscovery::new(&path, Arc::clone(&reloads)).run(sink, drain));

    let partly =
        "endpoints: [{name: a, address: 10.0.0.1, port: 80}, {name: b, address: x, port: 1}]";
    let steps = [
        (None, (1, 0), 0, None),
        (Some(""), (1, 1), 0, Some("the file is empty")),
        (Some(partly), (2, 1), 1, Some("\"b\": address \"x\"")),
        (Some("endpoints: []"), (3, 1), 0, None),
    ];
    for (content, counts, rejected, error) in steps {
        if let Some(content) = content {
            fs::write(root.path().join("new"), content).unwrap();
            fs::rename(root.path().join("new"), &path).unwrap();
        }
        let reached = states.wait_for(|state| (state.ok, state.failed) == counts);
        let state = tokio::time::timeout(PATIENCE, reached).await.unwrap().unwrap().clone();
        assert_eq!(state.rejected, rejected);
        assert_eq!(state.last_error.is_some(), error.is_some(), "{state:?}");
        assert!(state.last_error.unwrap_or_default().contains(error.unwrap_or_default()));
    }
    stop.send(true).unwrap();
    running.await.unwrap().unwrap();
    let mut sent = Vec::new();
    while let Some(members) = sets.recv().await {
        sent.push(address(&members));
    }
    assert_eq!(sent, ["10.0.0.1:80", ""]);
}
