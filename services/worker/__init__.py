"""The workers: they take tasks from RabbitMQ and do them. Any number may run, and each may be killed at any instant.

`consumer` is the only module that takes, acknowledges and rejects messages. Each kind of task has a stage of its own:
`jobs.plan` cuts an audience into batches, `push.send` brings one batch to its end, `jobs.finish` closes a job,
`jobs.mail` tells people of it, `clock.call` makes an HTTP callback. A task that a stage cannot do for more than a
moment is put off: the clock brings it back.
"""
