"""The bus: events, subscriptions, and what is delivered of them."""

PROCESSES = {"fanout": "Run the fan-out of the bus."}
