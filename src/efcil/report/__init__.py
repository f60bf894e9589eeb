"""One HTML file about finished runs or about a taught model; it needs no network and no other file."""
