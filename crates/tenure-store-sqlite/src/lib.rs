//! The embedded store: one SQLite file, one writer, group commit.
