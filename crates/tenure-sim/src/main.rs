//! The simulator from the command line; `cargo xtask sim` calls it.

use anyhow::{Context, Result, bail};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tenure_sim::{Bug, Plan, Report, run, shrink};

const USAGE: &str =
    "usage: tenure-sim [--seeds N] [--from N] [--seconds N] [--seed N [--keep 1,2]] [--plant BUG] [--history]

  --seeds N     so many seeds, counted up; 1,000 without any other word
  --from N      the first of them
  --seconds N   end after so long, however many seeds are left
  --seed N      one seed
  --keep LIST   of its faults only these, counted from 1; `none` for none
  --plant BUG   with a planted bug: no-fence, stale-inbox, effect-before-commit, lost-timer, lost-claim
  --history     print what happened in the seed";

/// Lines of history that are printed of a seed that breaks a promise.
const TAIL: usize = 40;

#[derive(Debug, Default)]
struct Wanted {
    seeds: Option<u64>,
    from: u64,
    seconds: Option<u64>,
    seed: Option<u64>,
    keep: Option<Vec<usize>>,
    bug: Option<Bug>,
    has_history: bool,
}

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
    let wanted = parse(std::env::args().skip(1))?;
    match wanted.seed {
        Some(seed) => one(seed, &wanted),
        None => many(&wanted),
    }
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Wanted> {
    let mut wanted = Wanted { from: 1, ..Wanted::default() };
    while let Some(name) = arguments.next() {
        if name == "--history" {
            wanted.has_history = true;
            continue;
        }
        let value = arguments.next().with_context(|| format!("{name} wants a value\n{USAGE}"))?;
        let number = || value.parse::<u64>().with_context(|| format!("{name} {value}: not a number"));
        match name.as_str() {
            "--seeds" => wanted.seeds = Some(number()?),
            "--from" => wanted.from = number()?,
            "--seconds" => wanted.seconds = Some(number()?),
            "--seed" => wanted.seed = Some(number()?),
            "--keep" if value == "none" => wanted.keep = Some(Vec::new()),
            "--keep" => {
                let places = value.split(',').map(str::parse::<usize>).collect::<Result<_, _>>();
                wanted.keep = Some(places.with_context(|| format!("--keep {value}: not a list of numbers"))?);
            }
            "--plant" => {
                wanted.bug = Some(Bug::by_name(&value).with_context(|| format!("there is no bug {value}\n{USAGE}"))?);
            }
            _ => bail!("there is no {name}\n{USAGE}"),
        }
    }
    Ok(wanted)
}

fn one(seed: u64, wanted: &Wanted) -> Result<()> {
    let mut plan = Plan::of(seed);
    if let Some(keep) = &wanted.keep {
        let mut place = 0;
        plan.faults.retain(|_| {
            place += 1;
            keep.contains(&place)
        });
    }
    println!("{plan:#?}");
    let report = run(&plan, wanted.bug);
    if wanted.has_history {
        report.history.iter().for_each(|line| println!("{line}"));
    }
    println!("digest {:016x}, {} lines, {} ms", report.digest, report.history.len(), report.millis);
    match report.violation {
        Some(violation) => bail!("seed {seed}: {}: {}", violation.promise, violation.what),
        None => Ok(()),
    }
}

/// Tries seeds on all processors; each seed by itself is on one thread.
fn many(wanted: &Wanted) -> Result<()> {
    let started = Instant::now();
    let next = AtomicU64::new(wanted.from);
    let seeds = wanted.seeds.unwrap_or(if wanted.seconds.is_some() { u64::MAX - wanted.from } else { 1_000 });
    let end = wanted.from.saturating_add(seeds);
    let (done, simulated) = (AtomicU64::new(0), AtomicU64::new(0));
    let failed: Mutex<Option<(u64, Report)>> = Mutex::new(None);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let is_late = wanted.seconds.is_some_and(|most| started.elapsed() >= Duration::from_secs(most));
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if is_late || seed >= end {
                        return;
                    }
                    let report = run(&Plan::of(seed), wanted.bug);
                    done.fetch_add(1, Ordering::Relaxed);
                    simulated.fetch_add(report.millis, Ordering::Relaxed);
                    if report.violation.is_some() {
                        let mut failed = failed.lock().expect("nobody panics while holding it");
                        if failed.as_ref().is_none_or(|(known, _)| seed < *known) {
                            *failed = Some((seed, report));
                        }
                        // Smaller seeds that are under way still end; no new ones begin.
                        next.store(end, Ordering::Relaxed);
                        return;
                    }
                }
            });
        }
    });
    let done = done.into_inner();
    println!(
        "{done} seeds from {} on, {} simulated hours, in {:.1} s",
        wanted.from,
        simulated.into_inner() / 3_600_000,
        started.elapsed().as_secs_f64()
    );
    match failed.into_inner().expect("nobody panics while holding it") {
        Some((seed, report)) => explain(seed, &report, wanted),
        None => {
            println!("no promise was broken");
            Ok(())
        }
    }
}

/// Says what a seed broke, with as few faults as possible and the command that shows it again.
fn explain(seed: u64, report: &Report, wanted: &Wanted) -> Result<()> {
    let Some(violation) = &report.violation else { return Ok(()) };
    let plan = Plan::of(seed);
    let fewer = shrink(&plan, wanted.bug, violation.promise);
    let report = run(&fewer, wanted.bug);
    let start = report.history.len().saturating_sub(TAIL);
    report.history.iter().skip(start).for_each(|line| println!("{line}"));
    println!("\n{} of {} faults are enough:", fewer.faults.len(), plan.faults.len());
    let mut keep = Vec::new();
    let mut left = fewer.faults.iter().peekable();
    for (place, fault) in (1..).zip(&plan.faults) {
        if left.next_if_eq(&fault).is_some() {
            println!("  {place}. {fault}");
            keep.push(place.to_string());
        }
    }
    let keep = if keep.is_empty() { "none".to_owned() } else { keep.join(",") };
    let planted = Bug::ALL.iter().find(|(_, bug)| Some(*bug) == wanted.bug);
    let planted = planted.map(|(name, _)| format!(" --plant {name}")).unwrap_or_default();
    println!("again: cargo xtask sim --seed {seed} --keep {keep}{planted} --history");
    let violation = report.violation.as_ref().unwrap_or(violation);
    bail!("seed {seed}: {}: {}", violation.promise, violation.what)
}
