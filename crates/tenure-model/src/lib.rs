//! Model dialects: requests out, streamed answers in, no I/O in the decoders.
