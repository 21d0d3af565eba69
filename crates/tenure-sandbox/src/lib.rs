//! Sandbox drivers behind one port.
