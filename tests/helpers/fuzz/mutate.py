"""Mutations of nested values: of any type, at any place."""

import copy
import math
from collections.abc import Callable
from typing import Any

import numpy as np

Random = np.random.Generator


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


ODD: list[Callable[[], Any]] = [
    *(
        lambda value=value: value
        for value in (
            *(None, True, False, -1, 0, 1, 3, 2**31, 2**63, -(2**63), 10**400, 10**15),
            *(0.5, -0.0, 1e-320, 1e308, -1e300, math.nan, math.inf, -math.inf),
            *("", "1", "nan", "a" * 5000, "../../etc", "\x00", "é" * 9, b"bytes", (1, 2)),
        )
    ),
    lambda: [],
    lambda: {},
    lambda: nested(60),
    lambda: {"a": {"b": {"c": 1}}},
    lambda: [math.nan] * 8,
    lambda: dict.fromkeys(range(20), 1.0),
    lambda: np.int64(7),
    lambda: np.float32(math.nan),
    lambda: np.ones((2, 2)),
    lambda: object(),
]


def odd(random: Random) -> Any:
    """Return a value that is seldom the right one."""
    return ODD[random.integers(len(ODD))]()


def mutated(content: Any, random: Random, times: int = 1) -> Any:
    """Return a copy of nested dicts and lists with values replaced, removed, added, renamed or exchanged."""
    content = copy.deepcopy(content)
    for _ in range(times):
        places = list(_places(content))
        if not places:
            return odd(random)
        parent, key = places[random.integers(len(places))]
        action = random.integers(6)
        if action <= 2:
            parent[key] = _near(parent[key], random) if action == 0 else odd(random)
        elif action == 3:
            del parent[key]
        elif action == 4 and isinstance(parent, dict):
            name = odd(random)
            parent[name if isinstance(name, str | int | float) else "x"] = parent.pop(key)
        else:
            other, where = places[random.integers(len(places))]
            parent[key] = copy.deepcopy(other.get(where) if isinstance(other, dict) else other[where])
    return content


def _near(value: Any, random: Random) -> Any:
    """Return something of the same type, but larger, smaller, negative, or not finite."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return odd(random)
    factors = (-1, 2, 0, 10, 10**6) if isinstance(value, int) else (-1, 1e20, 0, math.nan, math.inf)
    changed = value * factors[random.integers(len(factors))]
    return int(changed) if isinstance(value, int) else changed


def _places(content: Any) -> Any:
    """Yield every container with each of its keys."""
    items = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for key, value in list(items):
        yield content, key
        yield from _places(value)


def mutated_array(array: Any, random: Random) -> Any:
    """Return an array with other values, another shape or another type."""
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "fiub":
        return odd(random)
    array, action = np.array(array), random.integers(12)
    if action < 5 and array.size and array.dtype.kind in "fi":
        largest = np.iinfo(array.dtype).max if array.dtype.kind == "i" else 1e30
        whole = (-3, -1, 0, largest, largest // 2)
        fractions = (math.nan, math.inf, -math.inf, -1e3, largest)
        with np.errstate(over="ignore"):
            array.flat[random.integers(array.size)] = (whole if array.dtype.kind == "i" else fractions)[action]
    elif action == 5:
        array = array * random.choice([-5, 100, 1e12])
    elif action == 6:
        array = array.astype(random.choice(["float64", "int32", "uint8", "bool", "float16", "complex64", "U8"]))
    elif action == 7:
        array = array.reshape(-1)[: max(1, array.size // 2)]
    elif action == 8:
        array = array[None]
    elif action == 9:
        array = array.T
    elif action == 10:
        array = np.array([{}], dtype=object)
    elif action == 11:
        array = (array * np.asarray(random.choice([-1, 0, 3]), dtype=array.dtype)).astype(array.dtype)
    return array


def mutated_bytes(content: bytes, random: Random) -> bytes:
    """Return bytes that were flipped, cut off, doubled, removed or added."""
    data = bytearray(content)
    for _ in range(int(random.integers(1, 8))):
        where = int(random.integers(len(data) or 1))
        action = random.integers(5)
        if action <= 1 and data:
            data[where % len(data)] = int(random.integers(256))
        elif action == 2:
            del data[where : where + int(random.integers(1, 64))]
        elif action == 3:
            data[where:where] = bytes(random.integers(0, 256, int(random.integers(1, 32)), dtype=np.uint8))
        else:
            data = data[:where] if random.random() < 0.3 else data + data[where : where + 64]
    return bytes(data)
