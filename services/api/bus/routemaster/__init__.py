"""Routemaster's published API, for its clients as they are.

Its paths are at the root, since the clients ask for absolute ones and drop the path of their `url`. Callers show a
token by basic auth (`services.api.http.identity`). Statuses, empty bodies and media types are those of Routemaster's
code; what is refused is told by our problem documents, and neither makes nor claims anything. A mistake in the input is
a 400 here, as Routemaster's clients expect.
"""
