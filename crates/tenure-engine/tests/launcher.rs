//! The launcher of sandboxes as a program of its own, for this crate's tests.

fn main() {
    tenure_sandbox::main_if_requested();
    std::process::exit(2);
}
