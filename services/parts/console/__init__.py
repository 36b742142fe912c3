"""The console: audit, overview and bulk actions."""
