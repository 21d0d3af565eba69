//! Sandbox drivers behind one port.

mod port;

pub use port::*;
