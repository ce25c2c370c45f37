"""Contracts between the sizing and the allocation of a serving engine's KV pools."""

__version__ = "0.1.0"
