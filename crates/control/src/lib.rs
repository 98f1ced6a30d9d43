//! Control laws: pure state machines that are given what was seen in a period and answer with what to do and why.
