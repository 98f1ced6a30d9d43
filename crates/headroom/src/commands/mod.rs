//! One module a command.

pub mod demo;
pub mod doctor;
pub mod gateway;
pub mod load;
pub mod report;
pub mod service;
pub mod trace;
pub mod up;
