"""Accounts: apps, users, tokens, and secrets that sign callbacks."""
