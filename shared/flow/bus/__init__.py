"""The work on the bus, in whichever process it is done."""
