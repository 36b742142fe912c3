"""The verbs, a module a noun. Each has the noun's group as `command`."""
