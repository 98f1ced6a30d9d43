//! The HTTP data plane: proxying, balancing, health, latency histograms.
