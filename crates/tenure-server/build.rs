//! Puts the built workbench (`web/dist`) into the binary. It never runs Node: `cargo xtask web` does.
//! Without a build the table is empty, and the server says what is missing.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

fn main() {
    let manifest = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let dist = manifest.join("../../web/dist");
    println!("cargo::rerun-if-changed=build.rs");
    // The folder is part of the repository, so that a build without Node is not stale each time.
    println!("cargo::rerun-if-changed={}", dist.display());
    let mut files = Vec::new();
    collect(&dist, &dist, &mut files);
    files.sort();
    let mut table = String::from("pub(super) static FILES: &[File] = &[\n");
    for (name, path) in &files {
        println!("cargo::rerun-if-changed={}", path.display());
        let packed = |end: &str| {
            let packed = PathBuf::from(format!("{}{end}", path.display()));
            if packed.exists() { format!("Some(include_bytes!({packed:?}))") } else { "None".to_owned() }
        };
        let _ = writeln!(
            table,
            "    File {{ path: {name:?}, plain: include_bytes!({path:?}), gzip: {}, brotli: {} }},",
            packed(".gz"),
            packed(".br")
        );
    }
    table.push_str("];\n");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it")).join("workbench.rs");
    fs::write(out, table).expect("the output folder of a build is writable");
}

/// Names, as in addresses, and places of the files that are served as they are.
fn collect(root: &Path, folder: &Path, files: &mut Vec<(String, PathBuf)>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if path.is_dir() {
            collect(root, &path, files);
        } else if !name.starts_with('.') && !name.ends_with(".gz") && !name.ends_with(".br") {
            let below = path.strip_prefix(root).expect("it was found below");
            files.push((format!("/{}", below.to_string_lossy()), path));
        }
    }
}
