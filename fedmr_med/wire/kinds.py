"""The kinds of messages between server and sites: the three exchanges, and a step of a secure sum."""

TRAIN, VALIDATE, HEAD, SECURE = "train", "validate", "head", "secure"
EXCHANGES = (TRAIN, VALIDATE, HEAD)
