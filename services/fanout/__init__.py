"""The fan-out reads the log of the bus and queues each event for the subscriptions that want it."""
