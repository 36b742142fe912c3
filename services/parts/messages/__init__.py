"""Messages: what jobs and single requests send through providers, by credentials and at their rates."""
