//! Routes, authentication and event streams.
