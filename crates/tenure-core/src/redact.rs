//! Masks known secret values in whatever is stored or shown.
