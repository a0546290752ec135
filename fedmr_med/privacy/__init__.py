"""What may leave a site."""
