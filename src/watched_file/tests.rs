//! Every way in which a file changes, seen by events alone and by polling alone.

use std::os::unix::fs::symlink;

use futures_util::FutureExt;
use tempfile::TempDir;

use super::*;

/// No test waits this long unless it fails.
const PATIENCE: Duration = Duration::from_secs(30);

/// The file `e.yaml` in the folder `conf` of a fresh directory.
struct Place {
    root: TempDir,
}

impl Place {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("conf")).unwrap();
        Self { root }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }

    fn write(&self, path: &str, text: &str) {
        fs::write(self.at(path), text).unwrap();
    }

    fn rename(&self, from: &str, to: &str) {
        fs::rename(self.at(from), self.at(to)).unwrap();
    }

    fn link(&self, target: &str, link: &str) {
        symlink(target, self.at(link)).unwrap();
    }

    /// Points `link` elsewhere in one step, as the kubelet does.
    fn swap(&self, target: &str, link: &str) {
        self.link(target, "conf/..tmp");
        self.rename("conf/..tmp", link);
    }
}

/// Events with no poll that could help out, or polls without any event.
fn watchers(path: &Path) -> [WatchedFile; 2] {
    let settle = Duration::from_millis(10);
    let hour = Duration::from_secs(3600);
    [
        WatchedFile::paced(path.to_owned(), Pace { settle, poll: hour }, true),
        WatchedFile::paced(path.to_owned(), Pace { settle, poll: settle }, false),
    ]
}

/// What is yielded next: content, or the error in brackets.
async fn next(file: &mut WatchedFile) -> String {
    match tokio::time::timeout(PATIENCE, file.changed()).await.expect("a change was missed") {
        Ok(content) => String::from_utf8(content.to_vec()).unwrap(),
        Err(error) => format!("[{}]", spelled(&error)),
    }
}

const MISSING: &str = "[No such file or directory (os error 2)]";

/// Something done to the place.
type Act = fn(&Place);

/// Takes `prepare`d places through `steps`; each must yield exactly its text, under both watchers.
/// An extra yield would show as the wrong text of the next step, and a last rewrite closes the list.
async fn sees(prepare: Act, first: &str, steps: &[(Act, &str)]) {
    for mode in 0..2 {
        let place = Place::new();
        prepare(&place);
        let [mut events, mut polls] = watchers(&place.at("conf/e.yaml"));
        let file = if mode == 0 { &mut events } else { &mut polls };
        assert_eq!(next(file).await, first, "mode {mode}");
        for (number, (step, expected)) in steps.iter().enumerate() {
            step(&place);
            assert_eq!(next(file).await, *expected, "mode {mode}, step {number}");
        }
        place.write("conf/e.yaml", "the end");
        assert_eq!(next(file).await, "the end", "mode {mode}");
    }
}

fn one(place: &Place) {
    place.write("conf/e.yaml", "one");
}

/// A ConfigMap volume: `e.yaml -> ..data/e.yaml`, `..data -> ..1`.
fn configmap(place: &Place) {
    fs::create_dir(place.at("conf/..1")).unwrap();
    place.write("conf/..1/e.yaml", "one");
    place.link("..1", "conf/..data");
    place.link("..data/e.yaml", "conf/e.yaml");
}

fn swap_data(place: &Place, to: &str) {
    fs::create_dir(place.at(&format!("conf/..{to}"))).unwrap();
    place.write(&format!("conf/..{to}/e.yaml"), to);
    place.swap(&format!("..{to}"), "conf/..data");
}

/// Mutant: comparing size and time instead of content (same length, same tick).
#[tokio::test]
async fn rewrite_in_place() {
    sees(one, "one", &[(|p| p.write("conf/e.yaml", "two"), "two"), (one, "one")]).await;
}

/// Mutant: yielding the first look leaves "" before "two".
#[tokio::test]
async fn truncate_then_write_within_the_settle_time_is_one_change() {
    let place = Place::new();
    one(&place);
    let settle = Duration::from_millis(400);
    let pace = Pace { settle, poll: Duration::from_secs(3600) };
    let mut file = WatchedFile::paced(place.at("conf/e.yaml"), pace, true);
    assert_eq!(next(&mut file).await, "one");
    place.write("conf/e.yaml", "");
    // The look that finds it empty is over when a candidate is kept.
    while file.candidate.is_none() {
        let _ = tokio::time::timeout(Duration::from_millis(5), file.changed()).await;
    }
    assert_eq!(file.candidate, Some(Ok(Bytes::new())));
    place.write("conf/e.yaml", "two");
    assert_eq!(next(&mut file).await, "two");
}

/// Mutant: dropping empty content hides the first step.
#[tokio::test]
async fn emptied_for_long_then_written() {
    sees(
        one,
        "one",
        &[(|p| p.write("conf/e.yaml", ""), ""), (|p| p.write("conf/e.yaml", "two"), "two")],
    )
    .await;
}

/// Mutant: a watch on the file instead of its directory (here and in the next tests).
#[tokio::test]
async fn rename_over() {
    sees(
        one,
        "one",
        &[
            (
                |p| {
                    p.write("conf/new", "two");
                    p.rename("conf/new", "conf/e.yaml");
                },
                "two",
            ),
            (
                |p| {
                    p.write("new", "three");
                    p.rename("new", "conf/e.yaml");
                },
                "three",
            ),
        ],
    )
    .await;
}

#[tokio::test]
async fn delete_and_recreate() {
    sees(
        one,
        "one",
        &[
            (|p| fs::remove_file(p.at("conf/e.yaml")).unwrap(), MISSING),
            (one, "one"),
            (
                |p| {
                    fs::remove_file(p.at("conf/e.yaml")).unwrap();
                    p.write("conf/e.yaml", "two");
                },
                "two",
            ),
        ],
    )
    .await;
}

#[tokio::test]
async fn moved_away_and_recreated() {
    sees(
        one,
        "one",
        &[
            (|p| p.rename("conf/e.yaml", "conf/e.bak"), MISSING),
            (|p| p.write("conf/e.yaml", "two"), "two"),
            // The old inode, moved away, must not be listened to any more.
            (
                |p| {
                    p.write("conf/e.bak", "noise");
                    p.write("conf/e.yaml", "three");
                },
                "three",
            ),
        ],
    )
    .await;
}

/// Mutant: no watch on the directory in which `..data` lies.
#[tokio::test]
async fn configmap_swap_with_the_old_folder_kept() {
    sees(
        configmap,
        "one",
        &[(|p| swap_data(p, "two"), "two"), (|p| swap_data(p, "three"), "three")],
    )
    .await;
}

#[tokio::test]
async fn configmap_swap_with_the_old_folder_deleted() {
    sees(
        configmap,
        "one",
        &[
            (
                |p| {
                    swap_data(p, "two");
                    fs::remove_dir_all(p.at("conf/..1")).unwrap();
                },
                "two",
            ),
            (
                |p| {
                    swap_data(p, "three");
                    fs::remove_dir_all(p.at("conf/..two")).unwrap();
                },
                "three",
            ),
        ],
    )
    .await;
}

/// Mutants: no watch on the nearest existing directory; no fresh watches after a stir (a new
/// directory often gets the inode number of the old one).
#[tokio::test]
async fn parent_removed_and_recreated() {
    sees(
        one,
        "one",
        &[
            (|p| fs::remove_dir_all(p.at("conf")).unwrap(), MISSING),
            (
                |p| {
                    fs::create_dir(p.at("conf"))
                        .and_then(|()| fs::write(p.at("conf/e.yaml"), "two"))
                        .unwrap()
                },
                "two",
            ),
            (
                |p| {
                    fs::remove_dir_all(p.at("conf")).unwrap();
                    fs::create_dir(p.at("conf")).unwrap();
                    p.write("conf/e.yaml", "three");
                },
                "three",
            ),
            (|p| p.write("conf/e.yaml", "four"), "four"),
        ],
    )
    .await;
}

/// Mutant: comparing watched directories by path alone.
#[tokio::test]
async fn parent_moved_away_and_replaced() {
    sees(
        one,
        "one",
        &[
            (
                |p| {
                    p.rename("conf", "old");
                    fs::create_dir(p.at("conf")).unwrap();
                    p.write("conf/e.yaml", "two");
                },
                "two",
            ),
            (|p| p.write("conf/e.yaml", "three"), "three"),
        ],
    )
    .await;
}

/// `conf/e.yaml -> ../links/one -> two -> ../files/a`: each link is changed in turn, then the file.
/// Mutant: watches on the first and last directory only.
#[tokio::test]
async fn a_chain_of_links() {
    fn prepare(p: &Place) {
        fs::create_dir(p.at("links")).unwrap();
        fs::create_dir(p.at("files")).unwrap();
        for name in ["a", "b", "c"] {
            p.write(&format!("files/{name}"), name);
        }
        p.link("../links/one", "conf/e.yaml");
        symlink(p.at("links/two"), p.at("links/one")).unwrap();
        p.link("../files/a", "links/two");
    }
    sees(
        prepare,
        "a",
        &[
            (|p| p.swap("../files/b", "links/two"), "b"),
            (|p| p.swap("../files/c", "links/one"), "c"),
            (|p| p.write("files/c", "C"), "C"),
            (|p| p.swap("../files/a", "conf/e.yaml"), "a"),
            (|p| fs::remove_file(p.at("files/a")).unwrap(), MISSING),
            (|p| p.write("files/a", "A"), "A"),
        ],
    )
    .await;
}

/// Mutant: an error that is yielded at every look, or a first file that is never noticed.
#[tokio::test]
async fn errors_are_told_once_and_heal() {
    sees(
        |p| fs::remove_dir(p.at("conf")).unwrap(),
        MISSING,
        &[
            (|p| fs::create_dir_all(p.at("conf/e.yaml")).unwrap(), "[not a regular file]"),
            (
                |p| {
                    fs::remove_dir(p.at("conf/e.yaml")).unwrap();
                    File::create(p.at("conf/e.yaml")).unwrap().set_len(MAX_BYTES + 2).unwrap();
                },
                "[the file has 1048578 bytes or more, the limit is 1048576]",
            ),
            (one, "one"),
            (
                |p| {
                    fs::remove_file(p.at("conf/e.yaml")).unwrap();
                    p.link("e.yaml", "conf/e.yaml");
                },
                "[Too many levels of symbolic links (os error 40)]",
            ),
            (
                |p| {
                    fs::remove_file(p.at("conf/e.yaml")).unwrap();
                    one(p);
                },
                "one",
            ),
        ],
    )
    .await;
}

/// Mutant: letting our own reads count as movement looks again and again.
#[tokio::test]
async fn a_quiet_file_is_left_alone() {
    let place = Place::new();
    one(&place);
    let [mut file, _] = watchers(&place.at("conf/e.yaml"));
    assert_eq!(next(&mut file).await, "one");
    // Laying the first watches may leave an event or two; after that nothing calls for a look.
    let mut rounds = 0;
    while tokio::time::timeout(Duration::from_millis(100), file.turn()).await.is_ok() {
        rounds += 1;
        assert!(rounds < 5, "a look calls for the next one");
        let _ = file.look().await;
        file.looked = Instant::now();
        file.due = file.looked + file.pace.poll;
    }
}

/// Polls see a lasting error again and again; time is virtual. Mutant: comparing content only.
#[tokio::test(start_paused = true)]
async fn a_lasting_error_is_told_once() {
    let place = Place::new();
    let [_, mut file] = watchers(&place.at("conf/e.yaml"));
    assert_eq!(next(&mut file).await, MISSING);
    assert!(tokio::time::timeout(Duration::from_secs(1), file.changed()).await.is_err());
    one(&place);
    assert_eq!(next(&mut file).await, "one");
}

/// Mutant: a cancelled wait that starts over, so that an impatient caller never gets anywhere.
#[tokio::test]
async fn a_cancelled_wait_goes_on_where_it_was() {
    let place = Place::new();
    one(&place);
    let [mut file, _] = watchers(&place.at("conf/e.yaml"));
    let trail = Arc::clone(&file.trail);
    let looks = {
        // While the trail is taken, a look cannot end.
        let _taken = trail.lock().unwrap();
        let mut looks = Vec::new();
        for _ in 0..2 {
            assert!(file.changed().now_or_never().is_none());
            looks.push(file.looking.as_ref().map(JoinHandle::id));
        }
        looks
    };
    assert!(looks[0].is_some());
    assert_eq!(looks[0], looks[1]);
    assert_eq!(next(&mut file).await, "one");
}
