"""The scheduler: upkeep, which finds work that lost its message or its process and has it done. Any number may run."""
