"""The workers: they take tasks from RabbitMQ and do them. Any number may run, and each may be killed at any instant.

`consumer` is the only module that takes, acknowledges and rejects messages. Each kind of task has a stage of its own:
`plan` cuts an audience into batches, `send` brings one batch to its end, `finish` closes a job, `call` makes an HTTP
callback. What a stage cannot do for more than a moment is put off: the clock brings it back.
"""
