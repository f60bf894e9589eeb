"""Models that people teach from their own photos: a file with versions and one lock, lessons, and what they cost."""
