"""Secure sums: the server learns the total of the sites' vectors, and of no single one. docs/security.md has it all."""
