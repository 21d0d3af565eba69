//! Starting programs, with a line that says why.

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder of the workspace.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}

/// Where cargo builds.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// Runs cargo.
pub(crate) fn cargo(why: &str, arguments: &[&str]) -> Result<()> {
    let cargo = std::env::var_os("CARGO").map_or_else(|| PathBuf::from("cargo"), PathBuf::from);
    program(why, &cargo, arguments)
}

/// Runs a program in the folder of the workspace; fails if it does.
pub(crate) fn program(why: &str, program: &Path, arguments: &[&str]) -> Result<()> {
    eprintln!("==> {why}: {} {}", program.file_name().unwrap_or_default().to_string_lossy(), arguments.join(" "));
    let status = Command::new(program)
        .args(arguments)
        .current_dir(root())
        .status()
        .with_context(|| format!("start {}", program.display()))?;
    if !status.success() {
        bail!("{why}: {} ended with {status}", program.display());
    }
    Ok(())
}
