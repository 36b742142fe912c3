"""Messages: jobs and single requests send them through providers, by credentials and at their rates."""
