//! One module a command: its arguments, its help, and what it does.

pub mod compare;
pub mod demo;
pub mod emulate;
pub mod load;
pub mod reproduce;
pub mod service;
pub mod sim;
pub mod trace;
pub mod tune;
pub mod validate;
