//! The `headroom` command.
fn main() {}
