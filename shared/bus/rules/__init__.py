"""The bus: services publish small events on topics, and subscriptions get them in batches over HTTP.

    topic ──fan-out──> chunks of a subscription ──cut──> deliveries ──call──> delivered, or a dead letter

The log (one topic of the stream) is where an event is accepted. A **chunk** is what one flush of the fan-out brings a
subscription. A **delivery** is one batch that is cut from chunks when it is due: one body, and one id on every attempt.
A **wake-up** is a subscription's only occurrence of the clock: it comes due when something is to be delivered.
"""
