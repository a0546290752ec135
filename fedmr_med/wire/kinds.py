"""The kinds of messages between server and sites: the three exchanges, and a step of a secure sum."""

TRAIN, VALIDATE, HEAD, SECURE = "train", "validate", "head", "secure"
SUBMIT_MODEL = "submit_model"  # FLARE's cross-site evaluation asks for it
EXCHANGES = (TRAIN, VALIDATE, HEAD)
TASKS = (*EXCHANGES, SECURE, SUBMIT_MODEL)
