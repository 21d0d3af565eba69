//! The tests with the official clients: their set-up, and their run against the built binary.

use crate::machine::{has, install};
use crate::run::{program, root, target};
use anyhow::Result;
use std::path::Path;

/// Runs both clients as far as the machine has their languages.
pub(crate) fn test(left_out: &mut Vec<String>) -> Result<()> {
    let binary = target().join("debug").join("tenure");
    let binary = binary.to_string_lossy().into_owned();
    python(&binary, left_out)?;
    typescript(&binary, left_out)
}

fn python(binary: &str, left_out: &mut Vec<String>) -> Result<()> {
    let folder = root().join("tests/clients/python");
    let venv = folder.join(".venv");
    let makes_venv = || has("python3", &["-c", "import venv, ensurepip"]);
    let is_ready = makes_venv() || install(&["python3", "python3-venv"]) && makes_venv();
    if !is_ready {
        left_out.push("the Python client: there is no python3 with venv".to_owned());
        return Ok(());
    }
    if !venv.join("bin/python").exists() {
        program("make a virtual environment", Path::new("python3"), &["-m", "venv", &venv.to_string_lossy()])?;
    }
    let requirements = folder.join("requirements.txt");
    let pip = [
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--requirement",
        &requirements.to_string_lossy(),
    ];
    program("install the Python client", &venv.join("bin/python"), &pip)?;
    program("test with the Python client", &folder.join("run.sh"), &[binary])
}

/// Compiles the example loop in TypeScript for its test; without Node.js the test says that it is left out.
pub(crate) fn compile_example() -> Result<()> {
    let folder = root().join("tests/clients/typescript");
    if !has("node", &["--version"]) || !has("npm", &["--version"]) {
        return Ok(());
    }
    install_client(&folder)?;
    let text = |path: std::path::PathBuf| path.to_string_lossy().into_owned();
    let (compiler, types) =
        (text(folder.join("node_modules/typescript/bin/tsc")), text(folder.join("node_modules/@types")));
    let (example, out) = (text(root().join("examples/loop.mts")), text(target().join("tmp")));
    let options = ["--target", "es2022", "--module", "nodenext", "--strict", "--skipLibCheck", "--types", "node"];
    let arguments = [&[compiler.as_str(), &example, "--outDir", &out, "--typeRoots", &types], &options[..]].concat();
    program("compile the example loop", Path::new("node"), &arguments)
}

fn install_client(folder: &Path) -> Result<()> {
    let folder = folder.to_string_lossy().into_owned();
    program(
        "install the TypeScript client",
        Path::new("npm"),
        &["ci", "--prefix", &folder, "--no-audit", "--no-fund", "--silent"],
    )
}

fn typescript(binary: &str, left_out: &mut Vec<String>) -> Result<()> {
    let folder = root().join("tests/clients/typescript");
    if !has("node", &["--version"]) || !has("npm", &["--version"]) {
        left_out.push("the TypeScript client: there is no Node.js with npm".to_owned());
        return Ok(());
    }
    install_client(&folder)?;
    program("test with the TypeScript client", &folder.join("run.sh"), &[binary])
}
