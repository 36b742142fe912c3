"""Labels of metrics whose values users choose: a limited number is told apart, all others become `other`."""

OTHER = "other"
MOST_LABELS = 1_000


class BoundedLabels:
    """The values of one label in this process: the first `most` that come, and `other`."""

    def __init__(self, most: int = MOST_LABELS) -> None:
        self._most = most
        self._known: set[str] = set()

    def __call__(self, value: str) -> str:
        if value not in self._known:
            if len(self._known) >= self._most:
                return OTHER
            self._known.add(value)
        return value
