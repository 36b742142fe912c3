"""The bus in workers: they deliver the events that wait in queues."""
