//! One module a command.

pub mod agent;
pub mod beside;
pub mod capacity;
pub mod certs;
pub mod compare;
pub mod controller;
pub mod demo;
pub mod doctor;
pub mod emulate;
pub mod gateway;
pub mod guard;
pub mod load;
pub mod operate;
pub mod release;
pub mod report;
pub mod reproduce;
pub mod resize;
pub mod service;
pub mod sim;
pub mod trace;
pub mod tune;
pub mod up;
