//! The flight recorder, run summaries, plots and reports.
