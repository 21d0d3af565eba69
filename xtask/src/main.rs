//! Set-up, checks, tests and the demo, for people and for CI: `cargo xtask NAME`.
//!
//! Does all set-up that it may, does what it can without the rest, and says at the end what it left
//! out.

mod clients;
mod crash;
mod machine;
mod run;
mod sim;
mod web;

use anyhow::{Result, bail};
use run::cargo;
use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask demo | test | sim | crash | clients | web | ui-test | ui-shots

  demo      set up, build, and run the demo
  test      set up, build, run the tests; says what is left out
  sim       the simulator: --seeds N [--from N], --seconds N, or --seed N [--keep LIST] [--plant BUG] [--history]
  crash     rounds of kill -9 with real processes: --rounds N [--store sqlite|postgres] [--seed N]
  clients   only the tests with the official clients
  web       build the workbench; needs Node.js. The next build of tenure has it in its binary
  ui-test   test the workbench in a real browser against the built binary
  ui-shots  pictures of all its pages, into target/ui-shots";

fn main() -> ExitCode {
    match work() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn work() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    match arguments.next().as_deref() {
        Some("demo") => demo(&arguments.collect::<Vec<_>>()),
        Some("test") => test(),
        Some("sim") => sim::run(&arguments.collect::<Vec<_>>()),
        Some("crash") => crash::run(arguments),
        Some("clients") => {
            let mut left_out = Vec::new();
            clients::test(&mut left_out)?;
            machine::tell(&left_out)
        }
        Some("web") => web::build(),
        Some(name @ ("ui-test" | "ui-shots")) => {
            let mut left_out = Vec::new();
            web::prepare(&mut left_out)?;
            cargo("build the product", &["build", "--package", "tenure"])?;
            if left_out.is_empty() {
                web::play(name, &mut left_out)?;
            }
            match left_out.is_empty() {
                true => Ok(()),
                false => bail!("{}", left_out.join("; ")),
            }
        }
        Some(other) => bail!("there is no task {other:?}\n{USAGE}"),
        None => bail!("{USAGE}"),
    }
}

fn demo(arguments: &[String]) -> Result<()> {
    machine::check()?;
    cargo("build the product", &["build", "--package", "tenure"])?;
    let program = run::target().join("debug").join("tenure");
    let arguments: Vec<&str> = ["demo"].into_iter().chain(arguments.iter().map(String::as_str)).collect();
    run::program("run the demo", &program, &arguments)
}

fn test() -> Result<()> {
    machine::check()?;
    let mut left_out = Vec::new();
    // Before anything is compiled: the build puts it into the binary.
    web::prepare(&mut left_out)?;
    // Components are not fetched: a toolchain without them still tests everything else.
    if machine::has("cargo", &["fmt", "--version"]) {
        cargo("check the format", &["fmt", "--all", "--check"])?;
    } else {
        left_out.push("the format check: this toolchain has no rustfmt".to_owned());
    }
    if machine::has("cargo", &["clippy", "--version"]) {
        cargo("check the lints", &["clippy", "--workspace", "--all-targets", "--quiet", "--", "--deny", "warnings"])?;
    } else {
        left_out.push("the lints: this toolchain has no clippy".to_owned());
    }
    cargo("build the product", &["build", "--package", "tenure"])?;
    // The suite of the sandbox puts itself into a control group and writes down what it left out.
    let unsafe_here = run::target().join("tmp").join("tenure-sandbox.left-out");
    let _ = std::fs::remove_file(&unsafe_here);
    // The suite of PostgreSQL starts a server of its own.
    let no_server = run::target().join("tmp").join("tenure-store-postgres.left-out");
    let _ = std::fs::remove_file(&no_server);
    if !std::path::Path::new("/usr/lib/postgresql").exists() {
        machine::install(&["postgresql"]);
    }
    if !machine::nginx(&run::target().join("tmp").join("nginx")) {
        left_out.push("the test behind nginx: there is no nginx, and none could be fetched".to_owned());
    }
    clients::compile_example()?;
    cargo("run the tests", &["test", "--workspace"])?;
    sim::run(&["--seconds".to_owned(), sim::CI_SECONDS.to_string()])?;
    left_out.extend(std::fs::read_to_string(&no_server).unwrap_or_default().lines().map(str::to_owned));
    left_out.extend(std::fs::read_to_string(&unsafe_here).unwrap_or_default().lines().map(str::to_owned));
    clients::test(&mut left_out)?;
    let program = run::target().join("debug").join("tenure");
    run::program("run the demo", &program, &["demo"])?;
    machine::tell(&left_out)
}
