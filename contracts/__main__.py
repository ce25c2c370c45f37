"""``python -m contracts``."""

from contracts.cli import run

if __name__ == "__main__":
    run()
