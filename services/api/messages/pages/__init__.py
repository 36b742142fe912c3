"""Pages of messages: accounts that send, what became of a job's messages, and recipients."""
