"""The bus: events, subscriptions and deliveries."""

PROCESSES = {"fanout": "Run the fan-out of the bus."}
