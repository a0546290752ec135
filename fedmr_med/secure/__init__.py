"""Secure sums: the server learns the total of the sites' vectors, and of no single one. docs/security.md has it all."""

from typing import Literal

Secure = Literal["none", "statistics", "all"]
"""What a job sums securely, from least to most."""

FEWEST = 3
"""Sites without which no sum is opened: of two, each could subtract its own share."""

RESTORE = "restore it, or keep away from secure sums"
"""What is to be done about a record of secure sums that was changed."""
