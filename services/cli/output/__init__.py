"""Output of answers: all text is escaped before it reaches the terminal."""
