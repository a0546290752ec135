"""The exchanges: what sites are asked for. Each has its statistics, see :mod:`fedmr_med.statistics.catalog`."""

TRAIN, VALIDATE, HEAD, SURVEY = "train", "validate", "head", "survey"
EXCHANGES = (TRAIN, VALIDATE, HEAD, SURVEY)
