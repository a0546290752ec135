"""The commands of `fedmr-med` that are for researchers; :mod:`fedmr_med.cli.lab` finds them."""
