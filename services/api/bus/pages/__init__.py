"""The pages of the bus: subscriptions, what they were sent, and topics."""
