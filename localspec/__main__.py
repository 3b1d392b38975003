"""``python -m localspec`` is the command ``localspec``."""

from localspec.cli import main

if __name__ == "__main__":
    main()
