"""The bus's own API, below `/bus`: for services with a token and for people, strict, described and paged as the rest of
Carillon's API is. A mistake in the input is a 422 that names the field and its rule."""
