"""Download, unpack and check image sets."""
