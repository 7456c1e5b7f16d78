"""Bytes to values and back: no paths, no policy. FORMAT.md tells each of them byte by byte."""
