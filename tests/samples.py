"""What this process's `/metrics` would say now."""

from shared.runtime.metrics import REGISTRY


def sample(name: str, **labels: str) -> float:
    """A sample of ours, 0 where there is none."""
    return REGISTRY.get_sample_value(f"carillon_{name}", labels) or 0.0


def samples(name: str) -> list[tuple[dict[str, str], float]]:
    """All samples of this name, with their labels."""
    every = (each for family in REGISTRY.collect() for each in family.samples)
    return [(each.labels, each.value) for each in every if each.name == f"carillon_{name}"]
