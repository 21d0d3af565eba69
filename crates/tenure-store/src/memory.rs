//! The port in memory: a model that the conformance suite also runs on, and that tests use.
