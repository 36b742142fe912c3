"""The pages of jobs: all jobs, one job, a localized push, templates, and how a job is made."""
