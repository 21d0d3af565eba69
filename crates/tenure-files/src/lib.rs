//! The workspace folder of a session: paths that cannot leave it.
