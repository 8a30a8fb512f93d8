//! Every way in which the documents of a folder change, seen by events alone and by polling alone.

use std::os::unix::fs::symlink;
use std::time::Duration;

use tempfile::TempDir;

use super::super::{Pace, WatchedFiles};
use super::*;

/// No test waits this long unless it fails.
const PATIENCE: Duration = Duration::from_secs(30);

/// Something done to the folder `conf`.
type Act = fn(&Path);

fn watchers(path: &Path) -> [WatchedFiles; 2] {
    let settle = Duration::from_millis(10);
    [
        WatchedFiles::on_events_alone(path, settle),
        WatchedFiles::paced(path.to_owned(), Pace { settle, poll: settle }, false),
    ]
}

/// Names and contents in one line, errors in brackets.
fn spelled(found: Found<Listing>) -> String {
    let Listing(files) = match found {
        Ok(listing) => listing,
        Err(error) => return format!("[{error}]"),
    };
    let spell = |(path, content): (PathBuf, Result<Bytes, String>)| {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let content = content.map(|text| String::from_utf8(text.to_vec()).unwrap());
        format!("{name}={}", content.unwrap_or_else(|error| format!("[{error}]")))
    };
    files.into_iter().map(spell).collect::<Vec<_>>().join(" ")
}

/// Takes prepared folders through `steps`; each must yield exactly its text, under both watchers. A
/// last document closes the list, so that an extra yield would show.
async fn sees(prepare: Act, first: &str, steps: &[(Act, &str)]) {
    for mode in 0..2 {
        let root = TempDir::new().unwrap();
        let folder = root.path().join("conf");
        fs::create_dir(&folder).unwrap();
        prepare(&folder);
        let [mut events, mut polls] = watchers(&folder);
        let files = if mode == 0 { &mut events } else { &mut polls };
        let mut next = async || {
            let found = tokio::time::timeout(PATIENCE, files.changed()).await;
            spelled(found.expect("a change was missed"))
        };
        assert_eq!(next().await, first, "mode {mode}");
        for (number, (step, expected)) in steps.iter().enumerate() {
            step(&folder);
            assert_eq!(next().await, *expected, "mode {mode}, step {number}");
        }
        put(&folder, "zz.json", "end");
        let last = next().await;
        assert!(last.ends_with("zz.json=end"), "mode {mode}: {last}");
    }
}

/// In one step, so that a slow machine sees no half of it.
fn put(folder: &Path, name: &str, text: &str) {
    fs::write(folder.join(".put"), text).unwrap();
    fs::rename(folder.join(".put"), folder.join(name)).unwrap();
}

/// Mutants: no watch on the folder itself; another order; dot files or other endings listed; folders
/// listed.
#[tokio::test]
async fn documents_come_change_and_go() {
    let prepare: Act = |f| {
        put(f, "b.yaml", "b");
        put(f, "a.yml", "a");
        for other in [".hidden.yaml", "notes.txt", "yaml"] {
            put(f, other, "x");
        }
        fs::create_dir(f.join("sub.yaml")).unwrap();
    };
    let steps: [(Act, &str); 6] = [
        (|f| put(f, "c.json", "c"), "a.yml=a b.yaml=b c.json=c"),
        (|f| fs::write(f.join("b.yaml"), "B").unwrap(), "a.yml=a b.yaml=B c.json=c"),
        (|f| put(f, "a.yml", "A"), "a.yml=A b.yaml=B c.json=c"),
        (|f| fs::remove_file(f.join("b.yaml")).unwrap(), "a.yml=A c.json=c"),
        (|f| fs::remove_file(f.join("a.yml")).unwrap(), "c.json=c"),
        (|f| fs::remove_file(f.join("c.json")).unwrap(), ""),
    ];
    sees(prepare, "a.yml=a b.yaml=b", &steps).await;
}

/// A ConfigMap mount: `x.yaml -> ..data/x.yaml`, `..data -> ..1`, swapped in one step.
/// Mutant: watches on the folder of the path only, not where its links lead.
#[tokio::test]
async fn a_configmap_swap() {
    fn version(f: &Path, name: &str, text: &str) {
        fs::create_dir(f.join(name)).unwrap();
        put(&f.join(name), "x.yaml", text);
        symlink(name, f.join("..tmp")).unwrap();
        fs::rename(f.join("..tmp"), f.join("..data")).unwrap();
    }
    let prepare: Act = |f| {
        version(f, "..1", "one");
        symlink("..data/x.yaml", f.join("x.yaml")).unwrap();
    };
    let steps: [(Act, &str); 3] = [
        (|f| version(f, "..2", "two"), "x.yaml=two"),
        (
            |f| {
                version(f, "..3", "three");
                fs::remove_dir_all(f.join("..2")).unwrap();
            },
            "x.yaml=three",
        ),
        (|f| fs::write(f.join("..3/x.yaml"), "in place").unwrap(), "x.yaml=in place"),
    ];
    sees(prepare, "x.yaml=one", &steps).await;
}

/// Mutants: an unreadable document that fails the whole folder; a folder that stays the old inode.
#[tokio::test]
async fn what_cannot_be_read_is_told_and_heals() {
    /// Another folder of one document under the name that is free.
    fn replace(f: &Path, name: &str, text: &str) {
        let new = f.with_extension("new");
        fs::create_dir(&new).unwrap();
        put(&new, name, text);
        fs::rename(new, f).unwrap();
    }
    let prepare: Act = |f| {
        put(f, "a.yaml", "a");
        symlink("nowhere", f.join("b.yaml")).unwrap();
    };
    let steps: [(Act, &str); 4] = [
        (|f| put(f, "nowhere", "b"), "a.yaml=a b.yaml=b"),
        (|f| fs::rename(f, f.with_extension("old")).unwrap(), "[the file cannot be read]"),
        (|f| replace(f, "a.yaml", "again"), "a.yaml=again"),
        (
            |f| {
                fs::rename(f, f.with_extension("older")).unwrap();
                replace(f, "b.yaml", "b");
            },
            "b.yaml=b",
        ),
    ];
    let first = "a.yaml=a b.yaml=[No such file or directory (os error 2)]";
    sees(prepare, first, &steps).await;
}
