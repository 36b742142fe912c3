"""Jobs: the life of every kind of job, its plan, batches and end; localized groups; mails."""
