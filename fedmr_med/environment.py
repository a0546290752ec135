"""Environment variables that commands name in their help: apart from what reads them, so that help needs no torch."""

DATA_VARIABLE = "FEDMR_MED_DATA"
"""Names the folder of all datasets, one folder each."""
