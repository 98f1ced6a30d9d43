//! One module a command.

pub mod agent;
pub mod capacity;
pub mod certs;
pub mod controller;
#[cfg(feature = "lab")]
pub mod demo;
pub mod doctor;
pub mod gateway;
pub mod guard;
pub mod operate;
pub mod release;
pub mod report;
pub mod resize;
pub mod up;
#[cfg(feature = "lab")]
pub mod validate;
