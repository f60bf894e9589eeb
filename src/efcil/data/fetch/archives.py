"""The image sets that can be fetched: where their archives lie, and what must be true of them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Archive:
    """One archive of one image set."""

    url: str
    """Its official address."""
    md5: str
    """Its checksum, as published."""
    folder: str
    """The one folder that it unpacks to."""
    needs: str
    """A file in that folder, by which a finished set is recognised."""
    max_bytes: int
    """Packed or unpacked it is smaller than this; more is a sign of harm."""
    max_files: int
    """It has fewer files and folders than this."""

    @property
    def file(self) -> str:
        """Name of the archive itself."""
        return self.url.rpartition("/")[2]


ARCHIVES = {
    "cifar100": Archive(
        url="https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
        md5="03b5dce01913d631647c71ecec9e9cb8",
        folder="cifar-100-binary",
        needs="train.bin",
        max_bytes=500_000_000,
        max_files=100,
    ),
    "tiny-imagenet": Archive(
        url="http://cs231n.stanford.edu/tiny-imagenet-200.zip",
        md5="90528d7ca1a48142e341f4ef8d21d0de",
        folder="tiny-imagenet-200",
        needs="wnids.txt",
        max_bytes=2_000_000_000,
        max_files=200_000,
    ),
}
