"""The collections of the bus, a module for each."""
