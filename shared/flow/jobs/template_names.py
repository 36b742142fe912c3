"""The templates that a POST of a job names."""

from shared.domain.errors import Invalid
from shared.domain.jobs.templates import check_copies, normal_locale
from shared.store.jobs.templates import Outline

ENGLISH = "en"


def check_templates(names: tuple[str, ...], outlines: list[Outline]) -> None:
    """Raise `Invalid` for the first name that has no template, or none in English, or for too much to be copied."""
    known = {outline.name for outline in outlines}
    english = {outline.name for outline in outlines if normal_locale(outline.locale) == ENGLISH}
    for name in names:
        if name not in known:
            raise Invalid(f"the app has no template named {name!r}", field="template", value=name)
        if name not in english:
            raise Invalid("Cannot create job if there is no template for locale 'en'.", field="template", value=name)
    check_copies(sum(outline.size for outline in outlines))
