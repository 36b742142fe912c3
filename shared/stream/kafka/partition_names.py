"""Partitions are named `topic/number` outside of the driver."""

from aiokafka.structs import TopicPartition


def name_of(partition: TopicPartition) -> str:
    """The name of a partition."""
    return f"{partition.topic}/{partition.partition}"


def partition_of(name: str) -> TopicPartition:
    """The partition of a name."""
    topic, _, number = name.rpartition("/")
    return TopicPartition(topic, int(number))
