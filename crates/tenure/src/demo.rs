//! `tenure demo`: the proof that an agent run survives kill -9, on real processes and a real sandbox.
//!
//! Two scripted agents work while their worker is killed under them. The coder is killed in the
//! middle of a tool call and in the middle of a model answer, and must end with the same
//! conversation as a run that nobody disturbed. The payer is killed in the middle of an effect that
//! must not happen twice, and must check before it repeats. The exit code is 0 only if all of it
//! holds.

mod actors;
mod house;
mod proof;

use anyhow::{Context, Result, bail};
use house::House;
use proof::Proof;
use serde_json::Value;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use tenure_api::client::{Client, is_loopback_address};
use tokio_util::sync::CancellationToken;

/// Argument by which the demo starts itself as the outside job that answers a callback.
const CI_JOB: &str = "__demo-ci";

/// How long any single step of the demo may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// What to play, and where.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    /// A running server; none starts one.
    pub(crate) server: Option<(String, Option<String>)>,
    /// Where to keep the data of the demo; none takes a folder that is removed afterwards.
    pub(crate) data: Option<PathBuf>,
    /// Prints one JSON object instead of text.
    pub(crate) json: bool,
}

/// Runs the outside job instead of a command, if this process was started as it.
pub(crate) fn ci_job_if_requested() -> Option<ExitCode> {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() != Some(CI_JOB) {
        return None;
    }
    let url = arguments.next().unwrap_or_default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let posted = runtime.map_err(anyhow::Error::from).and_then(|runtime| runtime.block_on(ci_job(&url)));
    match posted {
        Ok(()) => Some(ExitCode::SUCCESS),
        Err(error) => {
            eprintln!("error: {error:#}");
            Some(ExitCode::FAILURE)
        }
    }
}

/// Posts the result of the outside job to a callback.
async fn ci_job(url: &str) -> Result<()> {
    let body = r#"{"status":"green","commit":"4f2a"}"#;
    let reply = reqwest::Client::builder()
        .no_proxy()
        .build()?
        .post(url)
        .header("content-type", "application/json")
        .body(body)
        .send()
        .await?;
    if !reply.status().is_success() {
        bail!("the callback was refused with status {}", reply.status());
    }
    Ok(())
}

/// Plays the demo; returns whether the proof holds.
///
/// # Errors
/// When a part cannot be started or does not answer, or when somebody asked to stop.
pub(crate) async fn run(options: &Options) -> Result<bool> {
    let stop = crate::stop::on_signals()?;
    let mut proof = Proof::new(options.json);
    match &options.server {
        Some((server, key)) => {
            let client = Client::new(server, key.clone())?;
            until_stopped(&stop, on_a_running_server(&client, &mut proof)).await?;
        }
        None => {
            let driver = house::strongest_driver(&mut proof).await;
            let build = House::build(options.data.clone(), &mut proof);
            let built = until_stopped(&stop, build).await;
            let mut house = built.context("start the server and the worker of the demo")?;
            let played = until_stopped(&stop, on_own_house(&mut house, driver, &mut proof)).await;
            // Whatever happened, nothing that was started here is left behind.
            house.stop().await;
            played?;
        }
    }
    Ok(proof.finish())
}

async fn until_stopped<T>(stop: &CancellationToken, work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::select! {
        done = work => done,
        () = stop.cancelled() => bail!("the demo was stopped before its end; what it started is stopped too"),
    }
}

/// Plays on a server that belongs to somebody: nothing of it is killed.
async fn on_a_running_server(client: &Client, proof: &mut Proof) -> Result<()> {
    proof.say(&format!("The coder on the running server at {}:", client.base()));
    // The drivers of another machine are not known here: its default is taken.
    let driver = if is_loopback_address(client.base()) { Some(house::strongest_driver(proof).await) } else { None };
    let run = actors::coder(client, driver, None, proof).await?;
    proof.timeline(client, &run).await?;
    proof.check("the coder finished", run.text_contains("Done:"));
    proof.check("no committed event was lost: seq has no gap and no repeat", run.is_gap_free());
    proof.check("every call has exactly one result", run.has_one_result_per_call());
    proof.check("the 529 outage was waited out", run.failed_attempts() >= 2);
    proof.say("Not shown here, as the worker of a running server is not killed: that a session survives kill -9.");
    proof.say("hint: tenure demo, without --server, shows that with a server of its own");
    Ok(())
}

async fn on_own_house(house: &mut House, driver: &str, proof: &mut Proof) -> Result<()> {
    let client = house.client()?;
    let driver = Some(driver);

    proof.say("Undisturbed run, to compare with:");
    let undisturbed = actors::coder(&client, driver, None, proof).await.context("the undisturbed run")?;

    proof.say("The same run, with its worker killed twice by SIGKILL:");
    let killed = actors::coder(&client, driver, Some(house), proof).await.context("the disturbed run")?;

    proof.say("A payment, killed while it is on its way:");
    let payment = actors::payer(&client, driver, house, proof).await.context("the payment")?;

    proof.timeline(&client, &killed).await?;
    proof.check(
        "no committed event was lost: seq has no gap and no repeat",
        killed.is_gap_free() && payment.is_gap_free(),
    );
    proof.check("what was seen before each kill is still there, unchanged", killed.keeps_what_was_seen());
    proof.check("every call has exactly one result, no finished step ran twice", killed.has_one_result_per_call());
    proof.check("the conversation equals the undisturbed one", killed.conversation() == undisturbed.conversation());
    proof.check("the answer that was cut is there once", killed.count_text("All tests pass now") == 1);
    proof.check("the 529 outage was waited out", killed.failed_attempts() >= 2);
    proof.check("the killed payment came back as unknown", payment.text_contains("is unknown"));
    proof.check("the model checked before it repeated", payment.text_contains("I do not pay again"));
    let ledger = actors::file(&client, &payment.session, "ledger.txt").await?;
    proof.check("workers were killed in a tool call, in an answer and in a payment", house.kills == 3);
    proof.counter("payments in the ledger", ledger.lines().count());
    proof.check("the payment happened exactly once", ledger.trim() == "paid");
    Ok(())
}

/// A text field of a JSON value; empty if it is not there.
fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}
