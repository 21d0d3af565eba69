//! A worker on a real store with a scripted model.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod children;
mod drain;
mod fence;
mod house;
mod kill;
mod observe;
mod poison;
mod previews;
mod stop;
mod turns;
