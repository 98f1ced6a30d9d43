//! Traces, arrival processes and the open-loop HTTP load generator.
