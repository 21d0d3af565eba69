//! The server over a store, with a worker played by hand.
#![allow(clippy::unwrap_used, reason = "tests may")]

mod callbacks;
mod catalog;
mod conditions;
mod context;
mod events;
mod faulty;
mod feed;
mod files;
mod forks;
mod hand;
mod hostile;
mod house;
mod http2;
mod listener;
mod loops;
mod metrics;
mod nginx;
mod node;
mod openapi;
mod outage;
mod readers;
mod reading;
mod safety;
mod scopes;
mod search;
mod snapshots;
mod status;
mod stream;
mod workbench;

#[test]
fn every_file_of_this_folder_is_a_module() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it");
    let main = include_str!("main.rs");
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let module = name.trim_end_matches(".rs");
        assert!(module == "main" || main.contains(&format!("mod {module};")), "{name} is not part of the tests");
    }
}
