//! One Linux machine: meters, actuators, and the promise that whatever was changed is put back.
