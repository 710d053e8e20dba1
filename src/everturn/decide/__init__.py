"""What the gateway decides, as pure functions: no I/O, no clock, no await."""
