//! Snapshots: what is restored is what was taken, whatever happens on the way.

mod damage;
mod faults;
mod fidelity;
mod history;
mod house;
mod sharing;
