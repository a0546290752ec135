"""Mutation testing: small defects are put into the code one at a time, and a test must fail for each of them."""
