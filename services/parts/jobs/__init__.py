"""Jobs: what every kind of job has. Its life, its plan, its batches and its end; localized groups; mails."""
