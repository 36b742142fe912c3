"""The machinery of imports: how each thing is judged, brought and told.

`kinds` says what a kind of things has to offer, `carry` brings them page by page, `verdicts` decides, `report` tells,
and `command` is the command line.
"""
