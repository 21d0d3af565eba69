//! Claims leases, drives the core, performs effects, streams previews.
