"""The commands of ``python -m contracts``: one module each, and what they share."""
