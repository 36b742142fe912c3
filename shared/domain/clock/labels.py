"""Labels of schedules, and their names in filters."""

from shared.domain.errors import Invalid

LABELS = 20
"""Maximum for a schedule and for a filter."""


def label_text(name: str, value: str) -> str:
    return f"{name}:{value}"


def is_findable(name: str, value: str) -> bool:
    """Whether a filter can name the label without ambiguity. Release 0.1.0 accepted other labels too."""
    return not {":", ","} & {*name} and "," not in value


def read_labels(text: str, *, field: str = "label") -> tuple[str, ...]:
    """The labels of a filter, such as `team:billing,env:prod`; none for an empty text."""
    labels = tuple(text.split(",")) if text else ()
    if len(labels) > LABELS:
        raise Invalid(f"must name at most {LABELS} labels", field=field)
    if not all(label.partition(":")[0] and ":" in label for label in labels):
        raise Invalid("must be name:value, such as team:billing; join several by commas", field=field, value=text)
    return labels
