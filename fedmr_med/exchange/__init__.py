"""What the server asks of the sites, in which order, and what it makes of the answers; whatever carries them."""
