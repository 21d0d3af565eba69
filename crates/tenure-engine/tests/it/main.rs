//! A worker on a real store with a scripted model.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod children;
mod conditions;
mod drain;
mod fence;
mod files;
mod house;
mod kill;
mod long;
mod observe;
mod poison;
mod previews;
mod providers;
mod stop;
mod turns;

#[path = "../../../tenure-telemetry/tests/it/collector.rs"]
#[allow(dead_code, reason = "the tests of telemetry use more of it")]
mod collector;
#[path = "../../../tenure-telemetry/tests/it/spans.rs"]
mod spans;
