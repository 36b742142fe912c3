"""Console: who did what."""
