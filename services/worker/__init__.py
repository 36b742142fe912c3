"""The workers: they take tasks from RabbitMQ and do them. Any number may run, and each may be killed at any instant.

`consumer` is the only module that takes, acknowledges and rejects messages. Each kind of task has a stage: `jobs.plan`
cuts an audience into batches, `push.send` sends one batch, `jobs.finish` closes a job and sends mails about it,
`clock.call` makes an HTTP callback. A task that a stage cannot do for more than a moment is put off: the clock
brings it back.
"""
