"""What travels between server and sites: strict to read, and without FLARE."""
