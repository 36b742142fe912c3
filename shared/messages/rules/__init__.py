"""Messages: sent through a provider's account at its rate, each with an entry in a ledger."""
