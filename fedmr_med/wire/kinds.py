"""The kinds of messages between server and sites: the four exchanges, and a step of a secure sum."""

from fedmr_med.statistics.exchanges import EXCHANGES, HEAD, SURVEY, TRAIN, VALIDATE

SECURE = "secure"
SUBMIT_MODEL = "submit_model"  # FLARE's cross-site evaluation asks for it
TASKS = (*EXCHANGES, SECURE, SUBMIT_MODEL)

__all__ = ["EXCHANGES", "HEAD", "SECURE", "SUBMIT_MODEL", "SURVEY", "TASKS", "TRAIN", "VALIDATE"]
