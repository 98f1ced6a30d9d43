//! Built-in services to control, so that a demo needs nothing from outside.
