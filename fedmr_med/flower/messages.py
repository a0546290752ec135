"""The wire format in Flower's records: an ``ArrayRecord`` for each part, and the plain values as JSON beside them."""

import json

import flwr.app

from fedmr_med.errors import WireError
from fedmr_med.wire.codec import Message
from fedmr_med.wire.kinds import HEAD, SECURE, SURVEY, TRAIN, VALIDATE

META = "meta"
NAME = "query.name"
"""Asks a node for the name of its site."""

TYPES = {TRAIN: "train", VALIDATE: "evaluate"} | {kind: f"query.{kind}" for kind in (HEAD, SURVEY, SECURE)}
"""Flower's type of message for each kind of ours."""


def to_records(message: Message) -> flwr.app.RecordDict:
    """Put a message into Flower's records."""
    records = flwr.app.RecordDict()
    for part, arrays in message.parts.items():
        records[part] = flwr.app.ArrayRecord({name: flwr.app.Array(array) for name, array in arrays.items()})
    records[META] = flwr.app.ConfigRecord({META: json.dumps(message.meta)})
    return records


def to_message(records: flwr.app.RecordDict) -> Message:
    """Take a message out of Flower's records.

    Raises:
        WireError: they hold something else than named numeric arrays and one JSON object.
    """
    try:
        meta = json.loads(str(records.config_records[META][META]))
        parts = {
            part: {name: array.numpy() for name, array in record.items()}
            for part, record in records.array_records.items()
        }
    except (KeyError, ValueError, TypeError) as e:
        raise WireError(f"the records cannot be read ({type(e).__name__})", code="wire.form") from e
    arrays = [array for named in parts.values() for array in named.values()]
    if len(records) != len(parts) + 1 or not isinstance(meta, dict) or any(a.dtype.kind not in "fiub" for a in arrays):
        raise WireError("the records are not numeric arrays and one JSON object", code="wire.form")
    return Message(parts, meta)
