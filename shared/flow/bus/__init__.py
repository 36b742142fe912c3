"""Flows of the bus."""
