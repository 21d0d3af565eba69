//! Built-in tools and their policies.
