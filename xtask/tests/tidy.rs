//! Rules about the house itself: which crate may use which, and what must not be written down.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Most packages in the lock file; raised only in the commit that adds one, with its reason.
/// 321: the simulator is a package of our own.
const MOST_PACKAGES: usize = 321;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}

/// Files that git tracks.
fn files() -> Vec<PathBuf> {
    let listed = Command::new("git").args(["ls-files", "-z"]).current_dir(root()).output().unwrap();
    assert!(listed.status.success());
    let names = String::from_utf8(listed.stdout).unwrap();
    names
        .split('\0')
        .filter(|name| !name.is_empty())
        .map(|name| root().join(name))
        .filter(|path| path.exists())
        .collect()
}

fn sources() -> Vec<(PathBuf, String)> {
    let is_rust = |path: &PathBuf| path.extension().is_some_and(|end| end == "rs");
    files().into_iter().filter(is_rust).map(|path| (path.clone(), fs::read_to_string(path).unwrap())).collect()
}

/// The table of ARCHITECTURE.md.
fn allowed() -> BTreeMap<&'static str, Vec<&'static str>> {
    let ports = [
        "tenure-core",
        "tenure-files",
        "tenure-model",
        "tenure-sandbox",
        "tenure-store",
        "tenure-telemetry",
        "tenure-tools",
        "tenure-api",
    ];
    let all: Vec<&str> = ports
        .into_iter()
        .chain(["tenure-engine", "tenure-server", "tenure-store-sqlite", "tenure-store-postgres"])
        .collect();
    BTreeMap::from([
        ("tenure-core", vec![]),
        ("tenure-files", vec![]),
        ("tenure-telemetry", vec![]),
        ("tenure-sandbox", vec!["tenure-files"]),
        ("tenure-tools", vec!["tenure-core", "tenure-sandbox"]),
        ("tenure-store", vec!["tenure-core"]),
        ("tenure-model", vec!["tenure-core"]),
        ("tenure-api", vec!["tenure-core"]),
        ("tenure-store-sqlite", vec!["tenure-core", "tenure-store"]),
        ("tenure-store-postgres", vec!["tenure-core", "tenure-store"]),
        ("tenure-engine", ports.to_vec()),
        ("tenure-server", vec!["tenure-api", "tenure-core", "tenure-files", "tenure-store", "tenure-telemetry"]),
        ("tenure", all),
        ("tenure-sim", vec!["tenure-core", "tenure-engine", "tenure-model", "tenure-store", "tenure-telemetry"]),
        ("xtask", vec![]),
    ])
}

#[test]
fn arrows_between_crates_point_down() {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .unwrap();
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let names: BTreeSet<&str> = packages.iter().map(|package| package["name"].as_str().unwrap()).collect();
    let allowed = allowed();
    assert_eq!(names, allowed.keys().copied().collect(), "the table knows every crate");
    for package in packages {
        let name = package["name"].as_str().unwrap();
        for dependency in package["dependencies"].as_array().unwrap() {
            let used = dependency["name"].as_str().unwrap();
            let is_for_tests = dependency["kind"] == "dev";
            if names.contains(used) && !is_for_tests {
                assert!(allowed[name].contains(&used), "{name} must not use {used}");
            }
        }
    }
}

#[test]
fn the_core_knows_no_clock_no_io_and_no_randomness() {
    let manifest = fs::read_to_string(root().join("crates/tenure-core/Cargo.toml")).unwrap();
    let library = fs::read_to_string(root().join("crates/tenure-core/src/lib.rs")).unwrap();
    assert!(library.contains("#![no_std]"));
    let dependencies = manifest.split("[dev-dependencies]").next().unwrap();
    for banned in ["std\"", "rand", "tokio", "async"] {
        assert!(!dependencies.contains(banned), "{banned} in the core's dependencies");
    }
}

#[test]
fn nothing_is_left_unfinished_and_no_file_is_called_mod_rs() {
    // Put together here, so that this file does not hold them itself.
    let marks = [["to", "do!("], ["unimple", "mented!("], ["FIX", "ME"], ["#[ign", "ore"]].map(|parts| parts.concat());
    for (path, text) in sources() {
        assert_ne!(path.file_name().unwrap(), "mod.rs", "{}", path.display());
        for mark in &marks {
            assert!(!text.contains(mark.as_str()), "{mark} in {}", path.display());
        }
    }
    assert!(!root().join("rust-toolchain.toml").exists(), "it would make rustup download");
}

#[test]
fn no_path_of_a_machine_is_written_down() {
    let home = ["/wo", "rk/ma", "in"].concat();
    for path in files() {
        if let Ok(text) = fs::read_to_string(&path) {
            assert!(!text.contains(&home), "{}", path.display());
        }
    }
}

/// A file in `tests/it` that no module names would never run.
#[test]
fn no_test_file_is_forgotten() {
    for main in files().into_iter().filter(|path| path.ends_with("tests/it/main.rs")) {
        let text = fs::read_to_string(&main).unwrap();
        for entry in fs::read_dir(main.parent().unwrap()).unwrap() {
            let path = entry.unwrap().path();
            let module = path.file_stem().unwrap().to_str().unwrap().to_owned();
            let is_module = path.extension().is_some_and(|end| end == "rs") && module != "main";
            assert!(!is_module || text.contains(&format!("mod {module};")), "{}", path.display());
        }
    }
}

/// Only the sandbox speaks to the kernel in ways that the compiler cannot check; and one bench counts
/// allocations, which needs an allocator.
#[test]
fn unsafe_code_is_where_it_may_be_and_says_why_it_is_safe() {
    let word = ["uns", "afe {"].concat();
    for (path, text) in sources().into_iter().filter(|(_, text)| text.contains(&word)) {
        let is_counter = path.ends_with("crates/tenure/src/bench/allocations.rs");
        assert!(is_counter || path.starts_with(root().join("crates/tenure-sandbox")), "{}", path.display());
        assert!(text.matches("// SAFETY:").count() >= text.matches(&word).count(), "{}", path.display());
    }
}

/// Links between documents, which nobody clicks until they are needed.
#[test]
fn links_between_documents_lead_somewhere() {
    for path in files().into_iter().filter(|path| path.extension().is_some_and(|end| end == "md")) {
        let text = fs::read_to_string(&path).unwrap();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let file = link.split('#').next().unwrap();
            let is_here = !file.is_empty() && !file.contains(':') && !file.contains(' ');
            assert!(!is_here || path.parent().unwrap().join(file).exists(), "{link} in {}", path.display());
        }
    }
}

/// Hazard Z-23: closing another handle of the store file drops SQLite's locks.
#[test]
fn z_23_only_the_adapter_opens_the_store_file() {
    let open = ["Connection", "::open"].concat();
    for (path, text) in sources() {
        let is_adapter = path.starts_with(root().join("crates/tenure-store-sqlite"));
        assert!(is_adapter || !text.contains(&open), "{}", path.display());
    }
}

#[test]
fn the_readme_is_short_and_starts_with_what_it_is() {
    let text = fs::read_to_string(root().join("README.md")).unwrap();
    assert!(text.lines().count() < 250);
    assert!(text.contains("cargo xtask demo") && text.contains("cargo xtask test"));
}

#[test]
fn the_number_of_packages_grows_only_on_purpose() {
    let lock = fs::read_to_string(root().join("Cargo.lock")).unwrap();
    let packages = lock.matches("[[package]]").count();
    assert!(packages <= MOST_PACKAGES, "{packages} packages in Cargo.lock");
}
