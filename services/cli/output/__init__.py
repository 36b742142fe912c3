"""How answers are shown: nothing of them reaches the terminal but as text."""
