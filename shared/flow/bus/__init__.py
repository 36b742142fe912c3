"""What is done with the bus, by whichever process."""
