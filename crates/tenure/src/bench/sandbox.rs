//! Time from nothing to the output of the first command in a fresh sandbox.

use super::{Figure, fresh, millis};
use anyhow::{Context, Result, bail};
use serde_json::json;
use std::path::Path;
use std::time::Instant;
use tenure_sandbox::{Choice, Exec, Launcher, Spec};

/// Fresh sandboxes that are measured.
const ROUNDS: usize = 30;

pub(crate) async fn run(folder: &Path) -> Result<Vec<Figure>> {
    let chosen = tenure_sandbox::strongest(Launcher::default()).await;
    let Ok(Choice { driver, .. }) = chosen else { bail!("no sandbox driver works here; see tenure doctor") };
    let (mut first, mut second) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let place = fresh(folder, "sandbox");
        let (workspace, state) = (place.join("workspace"), place.join("state"));
        std::fs::create_dir_all(&workspace)?;
        std::fs::create_dir_all(&state)?;
        let started = Instant::now();
        let sandbox =
            driver.start(Spec::new(workspace, state, format!("bench-{round}"))).await.context("start a sandbox")?;
        sandbox.exec(Exec::new("echo hi")).await.context("run the first command")?;
        first.push(millis(started.elapsed()));
        let started = Instant::now();
        sandbox.exec(Exec::new("echo hi")).await.context("run the second command")?;
        second.push(millis(started.elapsed()));
        sandbox.stop().await;
    }
    let params = json!({ "driver": driver.name() });
    Ok(vec![
        Figure::new("sandbox", "first command in a fresh sandbox", "ms", first).with(params.clone()),
        Figure::new("sandbox", "second command", "ms", second).with(params),
    ])
}
