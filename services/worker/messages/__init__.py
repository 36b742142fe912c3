"""What workers do for messages: they send the batches of an account at its rate."""
