"""The server's side of a round: what it keeps, asks, checks, adds up and writes down. Without FLARE."""
