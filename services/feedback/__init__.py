"""The readers of Kafka: answers about pushes (`listener`), and the log of the bus (`fan_out`)."""
