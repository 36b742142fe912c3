"""The fan-out: reads the log of the bus and brings each subscription what it wants."""
