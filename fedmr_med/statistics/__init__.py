"""What adds up over sites: weighted sums of models, and the moments that a classifier is solved from."""
