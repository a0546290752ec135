"""What a picture may be before it is decoded: a small file can claim any size."""

MAX_PIXELS = 50_000_000
"""The largest picture that is decoded: 7,000 pixels square, which takes about 1 GB on the way."""


class UnreadableImageError(Exception):
    """An image file cannot be used; the message says why."""


def check_size(width: int, height: int) -> None:
    """Look at the size of a picture before it is decoded.

    Raises:
        UnreadableImageError: it has too many pixels.
    """
    if width * height > MAX_PIXELS:
        size = f"{width * height / 1e6:.0f} million pixels"
        raise UnreadableImageError(f"{size} are too many for a picture of a lesion; make it smaller")
