"""Push: the kind of job whose records go to Kafka, and what the receivers say about them."""

PROCESSES = {"feedback": "Run the feedback consumer."}
