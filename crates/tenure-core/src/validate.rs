//! Judges whether messages are a valid model request (promise P4).
