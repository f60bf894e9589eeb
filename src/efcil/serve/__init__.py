"""A taught model behind HTTP: predictions, lessons in a process of their own, and the page; docs/serve.md."""
