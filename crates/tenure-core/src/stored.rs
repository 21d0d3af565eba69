//! Stored forms: what of the core outlives a release, each with its version.
