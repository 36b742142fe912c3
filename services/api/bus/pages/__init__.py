"""The bus's pages: how subscriptions stand, what was delivered, and what nobody has taken.

Each is about one namespace: the reader's own, or the one that `?namespace=` names, which every link and form hands on.
"""
