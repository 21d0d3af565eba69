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
    // Copied, so that a build of the workbench meanwhile does not take files away from the compiler.
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it"));
    let kept = out.join("workbench");
    let _ = fs::remove_dir_all(&kept);
    let mut files = Vec::new();
    collect(&dist, &dist, &mut files);
    files.sort();
    let mut table = String::from("pub(super) static FILES: &[File] = &[\n");
    for (name, path) in &files {
        println!("cargo::rerun-if-changed={}", path.display());
        let keep = |end: &str| {
            let bytes = fs::read(format!("{}{end}", path.display())).ok()?;
            let place = PathBuf::from(format!("{}{name}{end}", kept.display()));
            fs::create_dir_all(place.parent().expect("it is below the output folder")).ok()?;
            fs::write(&place, bytes).ok()?;
            Some(place)
        };
        let packed = |end: &str| match keep(end) {
            Some(place) => format!("Some(include_bytes!({place:?}))"),
            None => "None".to_owned(),
        };
        let plain = keep("").expect("a file of the workbench can be read and copied");
        let _ = writeln!(
            table,
            "    File {{ path: {name:?}, plain: include_bytes!({plain:?}), gzip: {}, brotli: {} }},",
            packed(".gz"),
            packed(".br")
        );
    }
    table.push_str("];\n");
    fs::write(out.join("workbench.rs"), table).expect("the output folder of a build is writable");
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
