//! The workbench: its build, and its tests in a real browser.

use crate::machine::{has, install};
use crate::run::{program, root, target};
use anyhow::{Result, bail};
use std::path::{Path, PathBuf};

/// Debian's browser without a screen.
const BROWSER: &str = "chromium-headless-shell";

/// Programs that can play the tests.
const BROWSERS: [&str; 4] =
    ["/usr/bin/chromium-headless-shell", "/usr/bin/chromium", "/usr/bin/google-chrome", "/usr/bin/chromium-browser"];

fn folder() -> PathBuf {
    root().join("web")
}

fn has_node() -> bool {
    has("node", &["--version"]) && has("npm", &["--version"])
}

/// Builds the workbench into `web/dist`, from where the server's build takes it.
pub(crate) fn build() -> Result<()> {
    if !has_node() {
        bail!("the workbench is built with Node.js (20.19 or newer) and npm, and they are not here");
    }
    let place = folder().to_string_lossy().into_owned();
    let npm = Path::new("npm");
    let is_installed = folder().join("node_modules/.package-lock.json").exists();
    if !is_installed || !is_newer("node_modules/.package-lock.json", "package-lock.json") {
        program(
            "install what the workbench is built with",
            npm,
            &["ci", "--prefix", &place, "--no-audit", "--no-fund", "--silent"],
        )?;
    }
    program("build the workbench", npm, &["run", "build", "--prefix", &place, "--silent"])
}

fn is_newer(file: &str, than: &str) -> bool {
    let changed = |name: &str| folder().join(name).metadata().and_then(|found| found.modified()).ok();
    changed(file) >= changed(than)
}

/// Builds it where Node.js is; without it the product works and says what is missing.
pub(crate) fn prepare(left_out: &mut Vec<String>) -> Result<()> {
    if has_node() {
        return build();
    }
    left_out.push("the workbench and its tests: there is no Node.js with npm".to_owned());
    Ok(())
}

/// Plays a script of `web/test` with a real browser, if there is one or one may be installed.
pub(crate) fn play(name: &str, left_out: &mut Vec<String>) -> Result<()> {
    if !has_node() {
        // Said already, when it was not built.
        return Ok(());
    }
    let is_there = || BROWSERS.iter().any(|browser| Path::new(browser).exists());
    if !(is_there() || install(&[BROWSER]) && is_there()) {
        left_out.push(format!("the tests of the workbench: there is no browser, and {BROWSER} may not be installed"));
        return Ok(());
    }
    let script = folder().join("test").join(format!("{}.mjs", name.trim_start_matches("ui-")));
    let binary = target().join("debug").join("tenure");
    let shots = target().join("ui-shots");
    let arguments = [script.to_string_lossy(), binary.to_string_lossy(), shots.to_string_lossy()];
    let arguments: Vec<&str> = arguments.iter().map(AsRef::as_ref).collect();
    program("play the workbench in a browser", Path::new("node"), &arguments)
}
