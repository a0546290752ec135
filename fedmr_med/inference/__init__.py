"""Using a model outside the federation: on single images, on a hospital's own test set, with what it looked at."""
