"""The simulation: the gateway's own code in one thread, under a clock, a network and a database that a seed decides."""
