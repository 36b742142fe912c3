"""What workers do for the bus: they deliver what waits in queues."""
