"""Fuzzing of what comes from outside: replies of sites through the whole server, and files.

``python -m tests.helpers.fuzz --replies 20000 --files 10000 --seed 0`` runs it at length; ``make test`` a little.
"""
