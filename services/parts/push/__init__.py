"""Push: the kind of job whose records go to Kafka, and the feedback about them."""

PROCESSES = {"feedback": "Run the feedback consumer."}
