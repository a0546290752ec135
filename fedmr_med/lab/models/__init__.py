"""Networks that benchmark datasets alone need, behind entry points of this package."""
