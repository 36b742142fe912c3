"""The console's pages: the overview, what runs, and who did what."""
