"""Imports: how each thing is judged, brought and reported.

`kinds` declares the interface of a kind of things, `carry` brings them page by page, `verdicts` decides, `report`
reports, and `command` is the command line.
"""
