"""The commands of `fedmr-med` that are for researchers; :mod:`fedmr_med.cli.lab` finds them."""

import fedmr_med.cli  # noqa: F401  first, as it takes the commands out of the modules here
