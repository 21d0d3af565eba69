//! Where files are on this machine.

use crate::failure::{Exit, Failure};
use std::path::{Path, PathBuf};

/// File of the data folder with the key of the installation.
pub(crate) const API_KEY_FILE: &str = "api.key";
/// File of the data folder with the address of its server.
pub(crate) const SERVER_FILE: &str = "server.url";
/// Configuration file of a project.
pub(crate) const PROJECT_FILE: &str = "tenure.toml";
/// Configuration file of the machine.
pub(crate) const MACHINE_FILE: &str = "/etc/tenure/config.toml";

/// The data folder by default.
pub(crate) fn data_folder() -> Result<PathBuf, Failure> {
    let base = base("XDG_DATA_HOME", ".local/share").ok_or_else(|| {
        Failure::new(Exit::Usage, "no data folder: neither HOME nor XDG_DATA_HOME is set")
            .fix("--data DIR      or   TENURE_DATA=DIR")
            .code("data_folder_unknown")
    })?;
    Ok(base.join("tenure/default"))
}

/// The configuration file of the user.
pub(crate) fn user_file() -> Option<PathBuf> {
    Some(base("XDG_CONFIG_HOME", ".config")?.join("tenure/config.toml"))
}

/// Resolves `~/` and paths relative to a folder.
pub(crate) fn resolve(path: &str, folder: &Path) -> PathBuf {
    match (path.strip_prefix("~/"), home()) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => folder.join(path),
    }
}

/// Shows a path shorter where it lies in the home folder.
pub(crate) fn shown(path: &Path) -> String {
    match home().and_then(|home| path.strip_prefix(home).ok().map(Path::to_path_buf)) {
        Some(rest) => format!("~/{}", rest.display()),
        None => path.display().to_string(),
    }
}

fn base(variable: &str, below_home: &str) -> Option<PathBuf> {
    // A relative XDG path is to be ignored, says its specification.
    let named = std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    named.or_else(|| Some(home()?.join(below_home)))
}

fn home() -> Option<PathBuf> {
    std::env::var_os("HOME").map(PathBuf::from).filter(|path| path.is_absolute())
}
