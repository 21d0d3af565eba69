//! The conformance suite: what every adapter of the port must do, split by topic.
