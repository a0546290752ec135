"""A site at work: its data, its network, one local round, what it keeps. Without FLARE."""
