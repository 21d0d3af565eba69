//! Scenarios by name: files of a folder, and a few that are built in.

use super::scenario::{MAX_SCENARIO_BYTES, Scenario, ScenarioProblem};
use crate::model::ConfigProblem;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

/// Scenarios that exist without any file.
pub const BUILT_IN_SCENARIOS: &[(&str, &str)] = &[
    ("demo-coder", include_str!("library/demo-coder.toml")),
    ("demo-desk", include_str!("library/demo-desk.toml")),
    ("demo-payer", include_str!("library/demo-payer.toml")),
    ("echo", include_str!("library/echo.toml")),
    ("instant", include_str!("library/instant.toml")),
];

/// A folder of scenario files; a file that changed is read again.
#[derive(Debug)]
pub struct Library {
    folder: Option<PathBuf>,
    read: Mutex<BTreeMap<String, Read>>,
}

/// What was read, and the file's time and size then.
type Read = (Option<(SystemTime, u64)>, Arc<Scenario>);

impl Library {
    /// The scenarios of a folder, or only the built-in ones.
    pub fn new(folder: Option<PathBuf>) -> Self {
        Self { folder, read: Mutex::new(BTreeMap::new()) }
    }

    /// The scenario `NAME`, from `NAME.toml` or built in.
    ///
    /// # Errors
    /// When there is none, or it is wrong; says where and what to do.
    pub fn scenario(&self, name: &str) -> Result<Arc<Scenario>, ConfigProblem> {
        let is_plain = !name.is_empty()
            && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
            && !name.starts_with('.');
        let path = self.folder.as_ref().filter(|_| is_plain).map(|folder| folder.join(format!("{name}.toml")));
        match path.as_deref().and_then(|path| Some((path, std::fs::metadata(path).ok()?))) {
            Some((path, facts)) => {
                let stamp = facts.modified().ok().map(|at| (at, facts.len()));
                self.cached(name, stamp, || read(path, facts.len()))
            }
            None => {
                let built_in = BUILT_IN_SCENARIOS.iter().find(|(known, _)| *known == name);
                let (_, text) = built_in.ok_or_else(|| self.unknown(name))?;
                self.cached(name, None, || Scenario::parse(text).map_err(|problem| problem.in_file(name)))
            }
        }
    }

    fn cached(
        &self,
        name: &str,
        stamp: Option<(SystemTime, u64)>,
        make: impl FnOnce() -> Result<Scenario, ConfigProblem>,
    ) -> Result<Arc<Scenario>, ConfigProblem> {
        // The map is whole between any two of its operations.
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, scenario)) = read.get(name)
            && *known == stamp
        {
            return Ok(scenario.clone());
        }
        let scenario = Arc::new(make()?);
        read.insert(name.to_owned(), (stamp, scenario.clone()));
        Ok(scenario)
    }

    fn unknown(&self, name: &str) -> ConfigProblem {
        let built_in: Vec<&str> = BUILT_IN_SCENARIOS.iter().map(|(name, _)| *name).collect();
        let hint = match &self.folder {
            Some(folder) => {
                format!("put {name}.toml into {}, or use a built-in one: {}", folder.display(), built_in.join(", "))
            }
            None => format!(
                "set scenarios = \"FOLDER\" in [providers.script], or use a built-in one: {}",
                built_in.join(", ")
            ),
        };
        ConfigProblem { code: "scenario_not_found", message: format!("there is no scenario {name:?}"), hint }
    }
}

fn read(path: &Path, size: u64) -> Result<Scenario, ConfigProblem> {
    let file = path.display().to_string();
    let too_large = usize::try_from(size).is_ok_and(|size| size > MAX_SCENARIO_BYTES);
    let text = if too_large {
        Err(format!("it is larger than {MAX_SCENARIO_BYTES} bytes"))
    } else {
        std::fs::read_to_string(path).map_err(|error| error.to_string())
    };
    let problem = |reason| ScenarioProblem {
        line: None,
        message: format!("it cannot be read: {reason}"),
        hint: "check the file".to_owned(),
    };
    let text = text.map_err(|reason| problem(reason).in_file(&file))?;
    Scenario::parse(&text).map_err(|problem| problem.in_file(&file))
}
