"""Accounts: apps, users, tokens, and what callbacks are signed by."""
