//! Changes, starts and power cuts between any two system calls.

use std::panic::{self, AssertUnwindSafe};

use edge_runner_http::testing::TempDir;

use super::*;

const OLD: &str = "# mine\nbot = \"parrot\"\n";
const NEW: &str = "# mine\nbot = \"echo\"\n";

struct Rig {
    folder: TempDir,
    store: SettingsStore,
}

impl Rig {
    fn new() -> Self {
        let folder = TempDir::new();
        let path = folder.path("a.toml");
        fs::write(&path, OLD).expect("the folder is the test's");
        let store = SettingsStore::open(&path).expect("it is there");
        Rig { folder, store }
    }

    fn names(&self) -> Vec<String> {
        let listed = fs::read_dir(&self.folder.0).expect("the folder is the test's");
        let mut names: Vec<String> = listed
            .map(|entry| {
                entry
                    .expect("it can be listed")
                    .file_name()
                    .into_string()
                    .expect("ASCII")
            })
            .collect();
        names.sort_unstable();
        names
    }

    fn text(&self) -> String {
        self.store.read().expect("it is whole")
    }
}

/// Ends at the step of this number as a power cut does: nothing is cleaned up. Returns whether it
/// got there.
fn cut(at: usize, act: impl FnOnce(Step<'_>) -> io::Result<()>) -> bool {
    let mut steps = 0;
    let mut step = || {
        if steps == at {
            // Without the message of a panic.
            panic::resume_unwind(Box::new(()));
        }
        steps += 1;
    };
    match panic::catch_unwind(AssertUnwindSafe(|| act(&mut step))) {
        Ok(done) => {
            done.expect("nothing fails");
            false
        }
        Err(_) => true,
    }
}

#[test]
fn a_change_is_kept_once_the_runner_has_started_with_it() {
    let rig = Rig::new();
    assert_eq!(rig.store.begin().expect("it works"), FoundSettings::Known);
    rig.store.change(NEW).expect("it works");
    // A second change before the start: what has started is kept.
    rig.store.change(&format!("{NEW}port = 1\n")).expect("it works");
    assert_eq!(rig.names(), ["a.toml", "a.toml.last"]);
    assert_eq!(rig.store.begin().expect("it works"), FoundSettings::Changed);
    rig.store.pass().expect("it works");
    assert_eq!(rig.names(), ["a.toml"]);
    assert!(rig.text().ends_with("port = 1\n"));
    assert_eq!(rig.store.begin().expect("it works"), FoundSettings::Known);
}

#[test]
fn a_change_that_fails_is_taken_back_with_its_reason() {
    let rig = Rig::new();
    rig.store.change(NEW).expect("it works");
    assert_eq!(rig.store.begin().expect("it works"), FoundSettings::Changed);
    rig.store.reject("port in use\nby 7").expect("it works");
    assert_eq!((rig.text().as_str(), rig.names().len()), (OLD, 2));
    assert_eq!(rig.store.rejection().as_deref(), Some("port in use by 7"));
    let rejected = fs::read_to_string(rig.folder.path("a.toml.rejected")).expect("it is kept");
    assert_eq!(rejected, format!("# Not taken: port in use by 7\n{NEW}"));
    assert_eq!(rig.store.begin().expect("it works"), FoundSettings::Known);
    rig.store.change(NEW).expect("it works");
    assert_eq!(rig.store.rejection(), None);
    rig.store.apply().expect("it works");
    assert_eq!(rig.names(), ["a.toml"]);
}

/// The reason is worth less than the last file, which comes back also where nothing can be written.
#[test]
fn a_change_is_taken_back_where_its_reason_cannot_be_kept() {
    for ends_early in [false, true] {
        let rig = Rig::new();
        // A folder of this name cannot be replaced by a file.
        fs::create_dir(rig.folder.path("a.toml.rejected")).expect("the folder is the test's");
        fs::write(rig.folder.path("a.toml.last"), OLD).expect("the folder is the test's");
        fs::write(rig.folder.path("a.toml"), NEW).expect("the folder is the test's");
        assert_eq!(rig.store.begin().expect("it works"), FoundSettings::Changed);
        match ends_early {
            true => assert_eq!(rig.store.begin().expect("it works"), FoundSettings::TakenBack),
            false => rig.store.reject("no").expect("the last one is back"),
        }
        assert_eq!(
            (&*rig.text(), rig.names()),
            (OLD, vec!["a.toml".into(), "a.toml.rejected".into()])
        );
        assert_eq!(rig.store.begin().expect("it works"), FoundSettings::Known);
    }
}

/// A process that was killed while it started has no time to say so.
#[test]
fn a_start_that_ended_early_is_noticed_by_the_next() {
    let rig = Rig::new();
    rig.store.change(NEW).expect("it works");
    assert_eq!(rig.store.begin().expect("it works"), FoundSettings::Changed);
    assert_eq!(rig.store.begin().expect("it works"), FoundSettings::TakenBack);
    assert_eq!(rig.text(), OLD);
    assert!(rig.store.rejection().is_some());
}

/// Whatever a power cut leaves, the file is one of the two, and the old one is not lost before the
/// runner has started with the new one.
#[test]
fn a_power_cut_leaves_a_whole_file_and_the_last_one() {
    let mut cuts = 0;
    for at in 0.. {
        let rig = Rig::new();
        let was_cut = cut(at, |step| rig.store.change_by(NEW, step));
        let changed = rig.text() == NEW;
        assert!(changed || rig.text() == OLD, "{at}: {}", rig.text());
        // The next start fails.
        match rig.store.begin().expect("it works") {
            FoundSettings::Changed => rig.store.reject("no").expect("it works"),
            found => assert!(!changed && found == FoundSettings::Known, "{at}: {found:?}"),
        }
        assert_eq!(rig.text(), OLD, "{at}");
        // What was left does no harm.
        rig.store.change(NEW).expect("it works");
        assert_eq!(rig.text(), NEW);
        cuts += usize::from(was_cut);
        if !was_cut {
            break;
        }
    }
    assert_eq!(cuts, 14, "seven steps for each of two files");
}

#[test]
fn a_power_cut_while_a_change_is_taken_back_takes_it_back_later() {
    for at in 0.. {
        let rig = Rig::new();
        rig.store.change(NEW).expect("it works");
        let was_cut = cut(at, |step| {
            assert_eq!(rig.store.begin_by(step)?, FoundSettings::Changed);
            rig.store.reject_by("no", step)
        });
        // Each start until then ends early, too.
        for _ in 0..2 {
            rig.store.begin().expect("it works");
        }
        assert_eq!(rig.text(), OLD, "{at}");
        assert!(rig.store.rejection().is_some(), "{at}");
        if !was_cut {
            break;
        }
    }
}

#[test]
fn owner_mode_and_links_stay() {
    let rig = Rig::new();
    let path = rig.folder.path("a.toml");
    let link = rig.folder.path("link.toml");
    std::os::unix::fs::symlink(&path, &link).expect("the folder is the test's");
    fs::set_permissions(&path, Permissions::from_mode(0o640)).expect("the file is the test's");
    let store = SettingsStore::open(&link).expect("it is there");
    store.change(NEW).expect("it works");
    assert!(link.is_symlink());
    for name in ["a.toml", "a.toml.last"] {
        let mode = fs::metadata(rig.folder.path(name)).expect("it is there").mode();
        assert_eq!(mode & 0o7777, 0o640, "{name}");
    }
    assert_eq!(fs::read_to_string(&path).expect("it is there"), NEW);
    // A folder has the name: the file is as before, and nothing else is left.
    let rig = Rig::new();
    fs::create_dir(rig.folder.path("a.toml.new")).expect("the folder is the test's");
    rig.store.change(NEW).expect_err("it cannot be written");
    assert_eq!((rig.text().as_str(), rig.names().len()), (OLD, 2));
}
