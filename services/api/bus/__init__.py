"""Routes of the bus: those that Routemaster's clients know, and the native ones below `/bus`."""
