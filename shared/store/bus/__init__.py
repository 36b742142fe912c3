"""What is stored of the bus: a module for each collection."""
