//! One module a command.

pub mod agent;
pub mod capacity;
pub mod certs;
pub mod controller;
pub mod doctor;
pub mod gateway;
pub mod guard;
pub mod operate;
pub mod release;
pub mod report;
pub mod up;
