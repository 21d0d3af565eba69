//! The built binary, as people and programs use it.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod house;

mod agents_and_environments;
mod approvals;
mod bad_upstreams;
mod configuration;
mod crash;
mod demo;
mod exit_codes;
mod files;
mod forks;
mod inert;
mod kill;
mod loops;
mod pages;
mod postgres;
mod provider_failures;
mod run;
mod sessions;
mod start_and_stop;
mod telemetry;
mod two_workers;
mod upstream;

#[path = "../../../tenure-telemetry/tests/it/spans.rs"]
#[allow(dead_code, reason = "the tests of telemetry use more of it")]
mod spans;

/// A file of this folder that is not listed above would never run.
#[test]
fn every_file_of_this_folder_is_part_of_the_tests() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it");
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let Some(module) = name.strip_suffix(".rs").filter(|module| *module != "main") else { continue };
        assert!(include_str!("main.rs").contains(&format!("\nmod {module};")), "{name} is not a module of main.rs");
    }
}
