"""The kinds of messages between server and sites: the four exchanges, and a step of a secure sum."""

TRAIN, VALIDATE, HEAD, SURVEY, SECURE = "train", "validate", "head", "survey", "secure"
SUBMIT_MODEL = "submit_model"  # FLARE's cross-site evaluation asks for it
EXCHANGES = (TRAIN, VALIDATE, HEAD, SURVEY)
TASKS = (*EXCHANGES, SECURE, SUBMIT_MODEL)
