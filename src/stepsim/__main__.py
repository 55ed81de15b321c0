"""`python -m stepsim` is the command line."""

from stepsim.cli import main

if __name__ == "__main__":
    main()
