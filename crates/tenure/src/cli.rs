//! The commands that exist, and the way from arguments to an exit code.

#[cfg(test)]
mod reference;

use crate::commands;
use crate::config::Flags;
use crate::connection::Target;
use crate::failure::{Exit, Failure};
use crate::output::{self, Format};
use crate::suggest;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, CommandFactory, Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;

/// Runs AI agents whose work survives crashes, deploys and long waits.
#[derive(Debug, Parser)]
#[command(name = "tenure", version, disable_help_subcommand = true, max_term_width = 100)]
#[command(
    after_help = "Any id can be a unique tail of it. Exit codes: 0 ok, 1 failed, 2 usage, 3 not found, 4 auth, 5 conflict,\n6 session failed, 7 session cancelled, 8 timed out, 9 server unreachable.\nFirst steps: tenure demo, tenure dev, tenure run \"…\""
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Flags that every command takes.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Common {
    /// Address of the server [env: TENURE_SERVER]; without it, the server of the data folder.
    #[arg(long, global = true, value_name = "URL", help_heading = "Everywhere")]
    pub(crate) server: Option<String>,
    /// Data folder [env: TENURE_DATA].
    #[arg(long, global = true, value_name = "DIR", help_heading = "Everywhere")]
    pub(crate) data: Option<PathBuf>,
    /// Configuration file [env: TENURE_CONFIG], instead of ./tenure.toml, the user's and the machine's.
    #[arg(long, global = true, value_name = "FILE", help_heading = "Everywhere")]
    pub(crate) config: Option<PathBuf>,
    /// JSON for programs, one value per line.
    #[arg(long, global = true, help_heading = "Everywhere")]
    pub(crate) json: bool,
}

impl Common {
    /// How results are printed.
    pub(crate) fn format(&self) -> Format {
        if self.json { Format::Json } else { Format::Human }
    }

    /// The layer of the command line.
    pub(crate) fn flags(&self) -> Flags {
        Flags { config: self.config.clone(), data: self.data.clone(), ..Flags::default() }
    }

    /// The server that commands talk to.
    pub(crate) fn target(&self) -> Target {
        Target { server: self.server.clone(), flags: self.flags() }
    }
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start server and worker on this machine (data is kept).
    Dev(commands::dev::Dev),
    /// Run the server for real, without a worker.
    Serve(commands::serve::Serve),
    /// Lease runnable sessions and advance them.
    Worker(commands::worker::Worker),
    /// Print a link that opens the workbench in a browser, once.
    Workbench(commands::workbench::Workbench),
    /// Prove that an agent run survives kill -9; needs no model key.
    Demo(commands::demo::Demo),
    /// Measure this machine.
    Bench(commands::bench::Bench),
    /// Start a session (prompt, file or -), follow it by default.
    Run(commands::run::Run),
    /// List sessions.
    Ps(commands::ps::Ps),
    /// Say what a session waits for and what would unblock it.
    Why(commands::why::Why),
    /// Print or follow the events of a session.
    Logs(commands::logs::Logs),
    /// Send a message, or the result of a custom tool.
    Send(commands::send::Send),
    /// List what needs a person.
    Approvals(commands::approvals::Approvals),
    /// Allow a tool call that waits for it.
    Approve(commands::approve::Approve),
    /// Refuse a tool call that waits for an answer.
    Deny(commands::deny::Deny),
    /// What upstreams refuse: list it, probe, clear.
    Conditions(commands::conditions::Conditions),
    /// Hold a session at its next step; inputs are kept.
    Pause(commands::control::Control),
    /// Let a paused or waiting session go on now.
    Resume(commands::control::Control),
    /// End a session and its processes.
    Cancel(commands::control::Control),
    /// Change the limits of a session.
    Budget(commands::budget::Budget),
    /// Let a session use another model from its next request on.
    Model(commands::model::Model),
    /// Make a new session from a part of another one's conversation and files.
    Fork(commands::fork::Fork),
    /// List files of a session.
    Ls(commands::ls::Ls),
    /// Print a file of a session.
    Cat(commands::cat::Cat),
    /// Copy files from or to a session (SESSION:PATH).
    Cp(commands::cp::Cp),
    /// Which files of a session differ between two states.
    Diff(commands::diff::Diff),
    /// List what of a session's files is stored, or store it now.
    Snapshots(commands::snapshots::Snapshots),
    /// Agents: apply a definition, list them.
    Agents(commands::agents::Agents),
    /// Environments: apply a definition, list them.
    Environments(commands::environments::Environments),
    /// Check this machine and the configuration, with what to do about each problem.
    Doctor(commands::doctor::Doctor),
    /// The configuration in force.
    Config(commands::config::Config),
    /// Completions for a shell.
    Completions(commands::completions::Completions),
    /// Versions of this program and of the server.
    Version(commands::version::Version),
}

/// Reads the arguments, runs the command, shows what went wrong.
pub(crate) fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    let format = cli.common.format();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            output::fail(&Failure::new(Exit::Failed, "cannot start threads").why(error.to_string()), format);
            return Exit::Failed.into();
        }
    };
    let done = runtime.block_on(run(cli));
    // Reads of stdin that nobody waits for must not hold the process.
    runtime.shutdown_background();
    match done {
        Ok(exit) => exit.into(),
        Err(failure) => {
            output::fail(&failure, format);
            failure.exit.into()
        }
    }
}

async fn run(cli: Cli) -> Result<Exit, Failure> {
    let common = &cli.common;
    match cli.command {
        Command::Dev(command) => command.run(common).await,
        Command::Serve(command) => command.run(common).await,
        Command::Worker(command) => command.run(common).await,
        Command::Workbench(command) => command.run(common).await,
        Command::Demo(command) => command.run(common).await,
        Command::Bench(command) => command.run(common).await,
        Command::Run(command) => command.run(common).await,
        Command::Ps(command) => command.run(common).await,
        Command::Why(command) => command.run(common).await,
        Command::Logs(command) => command.run(common).await,
        Command::Send(command) => command.run(common).await,
        Command::Approvals(command) => command.run(common).await,
        Command::Approve(command) => command.run(common).await,
        Command::Deny(command) => command.run(common).await,
        Command::Conditions(command) => command.run(common).await,
        Command::Pause(command) => command.run(common, commands::control::Action::Pause).await,
        Command::Resume(command) => command.run(common, commands::control::Action::Resume).await,
        Command::Cancel(command) => command.run(common, commands::control::Action::Cancel).await,
        Command::Budget(command) => command.run(common).await,
        Command::Model(command) => command.run(common).await,
        Command::Fork(command) => command.run(common).await,
        Command::Ls(command) => command.run(common).await,
        Command::Cat(command) => command.run(common).await,
        Command::Cp(command) => command.run(common).await,
        Command::Diff(command) => command.run(common).await,
        Command::Snapshots(command) => command.run(common).await,
        Command::Agents(command) => command.run(common).await,
        Command::Environments(command) => command.run(common).await,
        Command::Doctor(command) => command.run(common).await,
        Command::Config(command) => command.run(common),
        Command::Completions(command) => command.run(),
        Command::Version(command) => command.run(common).await,
    }
}

/// Shows help as clap writes it, and mistakes in our own style.
fn usage(error: &clap::Error) -> ExitCode {
    let is_help = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    if is_help {
        // A closed stdout is no reason to fail.
        let _ = error.print();
        return Exit::Ok.into();
    }
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let _ = error.print();
        return Exit::Usage.into();
    }
    let wants_json = std::env::args_os().any(|argument| argument == "--json");
    output::fail(&explain(error), if wants_json { Format::Json } else { Format::Human });
    Exit::Usage.into()
}

fn explain(error: &clap::Error) -> Failure {
    if let (ErrorKind::InvalidSubcommand, Some(ContextValue::String(wrong))) =
        (error.kind(), error.get(ContextKind::InvalidSubcommand))
    {
        let cli = Cli::command();
        let names = cli.get_subcommands().filter(|command| !command.is_hide_set()).map(clap::Command::get_name);
        let failure = Failure::new(Exit::Usage, format!("unknown command {wrong:?}")).code("command_unknown");
        return match meaning(wrong).or_else(|| suggest::nearest(wrong, names)) {
            Some(nearest) => failure.fix(format!("did you mean tenure {nearest}?")),
            None => failure.fix("tenure --help"),
        };
    }
    let text = error.render().to_string();
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let what = lines.next().unwrap_or("the arguments are wrong").trim_start_matches("error: ").to_owned();
    let is_rest = |line: &&str| !line.starts_with("For more information");
    let failure =
        lines.filter(is_rest).fold(Failure::new(Exit::Usage, what), |failure, line| failure.why(line.to_owned()));
    failure.fix("tenure --help, or tenure COMMAND --help").code("usage")
}

/// Words that other programs use for our commands.
fn meaning(word: &str) -> Option<&'static str> {
    match word {
        "list" | "lits" | "sessions" => Some("ps"),
        "status" | "explain" => Some("why"),
        "start" | "create" | "new" => Some("run"),
        "kill" | "stop" => Some("cancel"),
        "up" => Some("dev"),
        "help" => Some("--help"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commands_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_wrong_command_gets_the_nearest_one() {
        let error = Cli::try_parse_from(["tenure", "aprove"]).expect_err("there is no such command");
        assert!(explain(&error).to_string().contains("did you mean tenure approve?"));
    }
}
