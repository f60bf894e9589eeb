"""What the server counts, as Prometheus reads it; routes and numbers only, never a name."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from starlette.types import Scope

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    """One registry for each server, so that two in a process do not mix."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        registry = self.registry
        labels = ("method", "route", "status")
        self.requests = Counter("efcil_requests", "Requests that were answered.", labels, registry=registry)
        self.seconds = Histogram(
            "efcil_request_seconds", "From the first byte to the last.", ("route",), buckets=SECONDS, registry=registry
        )
        self.photos = Counter("efcil_photos_answered", "Photos that were predicted.", registry=registry)
        self.batch = Histogram(
            "efcil_batch_photos",
            "Photos that passed the network together.",
            buckets=(1, 2, 4, 8, 16, 32),
            registry=registry,
        )
        self.lessons = Gauge("efcil_lessons", "Lessons in the list.", ("status",), registry=registry)
        self.classes = Gauge("efcil_classes", "Classes that the model knows.", registry=registry)
        self.held = Gauge("efcil_held_bytes", "Uploads and photos of lessons in memory.", registry=registry)

    def request(self, scope: Scope, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "none")  # the pattern: a name in a path is nobody's business
        method = scope["method"] if scope["method"] in METHODS else "other"
        self.requests.labels(method, route, str(status)).inc()
        self.seconds.labels(route).observe(seconds)

    def batched(self, photos: int, requests: int) -> None:
        self.photos.inc(photos)
        self.batch.observe(photos)

    def text(self) -> bytes:
        return generate_latest(self.registry)


METHODS = ("GET", "HEAD", "POST", "PATCH", "DELETE")
