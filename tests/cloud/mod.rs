//! Black-box tests of `edge-runner cloud`: the service and the client.

mod api;
mod builder;
mod builds;
mod client;
mod full_disk;
mod grants;
mod hostile;
mod images;
mod keys;
mod logs;
mod metrics;
mod recovery;
mod regions;
mod scale;
mod serve;
mod sweep;
mod uploads;

/// Each test that replicas do not run is one.
#[test]
fn tests_of_one_machine_exist() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cloud");
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).expect("it is there");
    let listed = read("one_machine.txt");
    let names = listed.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    for name in names {
        let (module, test) = name.split_once("::").expect("MODULE::NAME");
        let found = read(&format!("{module}.rs")).contains(&format!("\n#[test]\nfn {test}() {{\n"));
        assert!(found, "{name} is no test");
    }
}
