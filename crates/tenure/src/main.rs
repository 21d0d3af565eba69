//! tenure: a self-hosted runtime for long-running AI agents.
//!
//! This crate is the composition root and the command line. `cli` says which commands exist,
//! `commands` holds one file for each, `compose` is the only place that names adapters.

mod bench;
mod cli;
mod commands;
mod compose;
mod config;
mod connection;
mod data_lock;
mod demo;
mod failure;
mod follow;
mod logging;
#[cfg(test)]
mod metrics_reference;
mod observed_store;
mod output;
mod port_holder;
mod stop;
mod suggest;

use std::process::ExitCode;

fn main() -> ExitCode {
    // First of all, before threads exist: this process may be meant as the launcher of a sandbox.
    tenure_sandbox::main_if_requested();
    // Not a command of the command line: it is for the demo alone.
    if let Some(exit) = demo::ci_job_if_requested() {
        return exit;
    }
    cli::main()
}
