//! The root of the shared object. `build.rs` compiles it.
#![no_std]

#[path = "../layout.rs"]
#[allow(dead_code, reason = "the other side's half of it")]
mod layout;
#[path = "mod.rs"]
mod preload;

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    preload::abort()
}
