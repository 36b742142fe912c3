"""Messages in workers: they send the batches of an account at its rate."""
