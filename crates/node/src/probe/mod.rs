//! Which levers and meters this machine has, and why the others cannot be used.
