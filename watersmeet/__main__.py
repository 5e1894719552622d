"""`python -m watersmeet` is the `watersmeet` command."""

from watersmeet.cli import main

if __name__ == "__main__":
    main()
