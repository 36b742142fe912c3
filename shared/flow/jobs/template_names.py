"""The templates that a request names."""

from collections.abc import Sequence

from shared.domain.audience.audiences import normal_locale
from shared.domain.errors import Invalid, suggest
from shared.domain.jobs.templates import Template, check_copies
from shared.store import Store

ENGLISH = "en"


async def find_templates(
    store: Store, app_id: str, names: Sequence[str], *, in_english: bool = False
) -> list[Template]:
    """The app's templates with these names, in all locales. Raises `Invalid` if a name has no template, or none in
    English if `in_english`, or the templates are too large to copy."""
    outlines = await store.templates.outlines(app_id, names)
    known = {outline.name for outline in outlines}
    english = {outline.name for outline in outlines if normal_locale(outline.locale) == ENGLISH}
    for name in names:
        if name not in known:
            hint = suggest(name, await store.templates.find_names(app_id))
            raise Invalid(f"the app has no template named {name!r}{hint}", field="template", value=name)
        if in_english and name not in english:
            raise Invalid("Cannot create job if there is no template for locale 'en'.", field="template", value=name)
    check_copies(sum(outline.size for outline in outlines))
    return await store.templates.find_named(app_id, names)
